/** Every subject of a bench that is installed here starts, serves both transports and formats, and ends. */
import t from 'tap'
import { usage } from '../../bench/cpu.ts'
import { startGateway } from '../../bench/gateway.ts'
import { direct, startHaproxy, startNginx } from '../../bench/peers.ts'
import { has } from '../../bench/processes.ts'
import { build, type Starter, takeDown, warm } from '../../bench/rig.ts'
import { scenario } from './sample.ts'

const ROOT = `${import.meta.dirname}/../..`
const plain = scenario('relay-20')
const secure = scenario('relay-256-tls')
const chat = scenario('translate-chat-256')

const built = await build([plain, secure, chat], ROOT, false)
t.teardown(() => takeDown(built))

const subjects: readonly (readonly [name: string, starter: Starter, installed: boolean])[] = [
  ['direct', async bench => direct(bench), true],
  ['nginx', startNginx, has('nginx')],
  ['haproxy', startHaproxy, has('haproxy')],
  ['sluice', bench => startGateway(bench, 'sluice', ''), true],
]

for (const [name, starter, installed] of subjects) {
  t.test(name, { skip: installed ? false : `${name} is not installed` }, async t => {
    const subject = await starter(built.bench)
    const pids = subject.pids()
    try {
      t.equal(pids.length > 0, name !== 'direct')
      await t.resolves(warm(subject, plain), 'plain')
      await t.resolves(warm(subject, chat), 'chat-completions upstream')
      if (name !== 'direct') {
        await t.resolves(warm(subject, secure), 'TLS to the upstream')
        t.ok(usage(pids).rssBytes > 1_000_000, 'its memory can be read')
        t.ok(usage(pids).cpuMicros > 0, 'and its CPU')
      }
    } finally {
      await subject.stop()
    }
    t.equal(usage(pids).cpuMicros, 0, 'nothing of it is left')
  })
}

t.test('a subject that is not there is an error that says so', async t => {
  const missing = { ...built.bench, root: '/nonexistent' }
  await t.rejects(startGateway(missing, 'sluice', ''), /ended/)
})
