/** The output of commands whose reader stops early. */
import { join } from 'node:path'
import t from 'tap'
import { startCommand } from '../../support/command-line.ts'

t.test('a reader that stops early, such as head, is no fault to trace', async t => {
  const { child, ended } = startCommand(t, ['--help'])
  child.stdout?.destroy()
  t.match(await ended, { stderr: '' })
})

t.test('a report that cannot be written names its file, without a trace', async t => {
  const path = join(t.testdir(), 'no-such-folder', 'report.json')
  const { ended } = startCommand(t, ['doctor', '--out', path])
  t.match(await ended, { code: 1, stderr: `sluice: ${path}: cannot be written (ENOENT)\n` })
})
