/** The output of commands whose reader stops early. */
import t from 'tap'
import { startCommand } from '../../support/command-line.ts'

t.test('a reader that stops early, such as head, is no fault to trace', async t => {
  const { child, ended } = startCommand(t, ['--help'])
  child.stdout?.destroy()
  t.match(await ended, { stderr: '' })
})
