/** The engine auto: the first one that works, and what to install where none does. */
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createEmbedded } from '../../../src/features/sandbox/embedded/embedded.ts'
import { createFirstEngine } from '../../../src/features/sandbox/first-engine.ts'
import { SIGNAL, sandboxWorld, shell } from './sandbox.ts'

const LIMITS = { cpuSeconds: 30, memoryBytes: 512 * 1024 * 1024, fileBytes: 1_000_000, files: 100 }
const embedded = (hasPackage: boolean) => createEmbedded(LIMITS, systemClock, () => hasPackage)

t.test('an engine that does not work makes room for the next one', async t => {
  const engine = createFirstEngine([embedded(false), embedded(true)])
  t.equal(await engine.refusal(), null)
  const container = await engine.create('a', null)
  const terms = { codes: [shell('echo it works')], timeoutMs: 20_000, outputBytes: 1_000 }
  t.match(await container.run(terms, SIGNAL), { outputs: [{ stdout: 'it works\n', exitCode: 0 }] })
  await engine.close()
})

t.test('without the package of the embedded engine, the refusal says what to install', async t => {
  const why =
    'the embedded engine needs the just-bash package next to the gateway: npm install --ignore-scripts just-bash@3.4'
  t.equal(await embedded(false).refusal(), why)
  t.equal(
    await createFirstEngine([embedded(false), embedded(false)]).refusal(),
    `no engine works on this machine: ${why}; ${why}`,
  )
})

t.test('the setting auto runs code on a machine with an engine', async t => {
  const world = sandboxWorld({ engine: 'auto' })
  t.teardown(() => world.close())
  t.match(await world.run([shell('echo it works')]), { outputs: [{ stdout: 'it works\n' }] })
})
