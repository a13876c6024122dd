/** The embedded engine as the package has it: compiled. `npm test` builds it first. */
import { globSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import type { createEmbedded } from '../../../src/features/sandbox/embedded/embedded.ts'
import { python, SIGNAL, shell } from './sandbox.ts'

const CODE = join(import.meta.dirname, '../../../dist/code')
const [file] = globSync('embedded-*.js', { cwd: CODE })
const skip = file === undefined && 'nothing is compiled: npm run build'

t.test('the compiled engine runs shell and Python', { skip }, async t => {
  const compiled = (await import(join(CODE, file ?? ''))) as { createEmbedded: typeof createEmbedded }
  const limits = { cpuSeconds: 30, memoryBytes: 512 * 1024 * 1024, fileBytes: 1_000_000, files: 10 }
  const container = await compiled.createEmbedded(limits, systemClock).create('x', null)
  const codes = [shell('echo hi | rev'), python('print(6 * 7)')]
  t.match(await container.run({ codes, timeoutMs: 10_000, outputBytes: 1_000 }, SIGNAL), {
    outputs: [{ stdout: 'ih\n' }, { stdout: '42\n' }],
    stopped: null,
  })
})
