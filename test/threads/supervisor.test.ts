/** The threads of the product, in this process: one that dies, one that hangs, keys that change, and the end. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readdirSync } from 'node:fs'
import { Agent } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { BroadcastChannel } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { hashKey, keyRecord } from '../../src/access/api-key.ts'
import { systemClock } from '../../src/clock.ts'
import { type Config, loadConfig } from '../../src/config.ts'
import { createLog } from '../../src/log.ts'
import { simModel, simProvider } from '../../src/sim/rows.ts'
import { createSim } from '../../src/sim/sim.ts'
import { openStore } from '../../src/storage/open.ts'
import { spoolFiles } from '../../src/storage/spool-reader.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../src/storage/store.ts'
import { startShipper } from '../../src/threads/ledger-shipper.ts'
import { type SupervisorOptions, startSupervisor } from '../../src/threads/supervisor.ts'
import { FAULT_CHANNEL, type Order } from '../support/faulty-thread.ts'
import { eventually, openProbe, type ProbeResult } from '../support/stream-probe.ts'
import { TestClock } from '../support/test-clock.ts'

// Fourteen threads are started one after the other, some of them after a wait.
t.setTimeout(120_000)

const ENTRY = new URL('../support/faulty-thread.ts', import.meta.url)

async function start(
  t: Test,
  more: { timeouts?: Partial<Config['timeouts']>; threads?: number } = {},
  options: Partial<SupervisorOptions> = {},
) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-threads-'))
  const storageUrl = `sqlite:${join(folder, 'gateway.db')}`
  const store = await openStore(storageUrl)
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  await store.keys.add(keyRecord(apiKey, 'inference', { name: 'test', clock: systemClock }))
  await store.close()
  const sim = createSim({ keepRequests: 0 })
  const { url: simUrl } = await sim.listen()
  const lines: Record<string, unknown>[] = []
  const defaults = loadConfig([], { LOG_LEVEL: 'silent', GATEWAY_PORT: '0', GATEWAY_ADMIN_PORT: '0' })
  const supervisor = await startSupervisor({
    config: {
      ...defaults,
      storageUrl,
      providers: [simProvider(simUrl)],
      models: ['write-3', 'write-60-20', 'write-10000-20'].flatMap(name => [
        simModel(name, 'openai-responses'),
        simModel(name, 'openai-chat'),
      ]),
      threads: { serve: more.threads ?? 2, tasks: 1 },
      timeouts: { ...defaults.timeouts, ...more.timeouts },
    },
    simUrl: null,
    endUserKey: randomBytes(32).toString('base64'),
    vaultKeys: `test:${randomBytes(32).toString('base64')}`,
    spoolFolder: mkdtempSync(join(folder, 'spool-')),
    log: createLog('info', { write: line => void lines.push(JSON.parse(line) as Record<string, unknown>) }),
    entry: ENTRY,
    ...options,
  })
  const channel = new BroadcastChannel(FAULT_CHANNEL)
  t.teardown(async () => {
    channel.close()
    await supervisor.drain(0)
    await sim.close()
  })
  const port = Number(new URL(supervisor.url).port)
  return {
    supervisor,
    database: join(folder, 'gateway.db'),
    apiKey,
    lines,
    order: (order: Order) => channel.postMessage(order),
    stream: (model: string, agent?: Agent) =>
      openProbe(
        { model, input: 'x', stream: true },
        { port, apiKey, ...(agent === undefined ? {} : { agent }) },
      ),
    async admin(path: string) {
      const reply = await fetch(`${supervisor.adminUrl}${path}`)
      return { status: reply.status, text: await reply.text() }
    },
  }
}

const ends = (results: readonly ProbeResult[], last: string) =>
  results.filter(result => result.last === last && result.done && !result.cut && result.fault === null).length

t.test('a thread that dies tells its streams, is replaced, and disturbs nobody else', async t => {
  const { order, stream, admin, lines } = await start(t)
  const probes = Array.from({ length: 24 }, (_, index) =>
    stream(index % 2 === 0 ? 'sim/write-60-20' : 'sim/chat-write-60-20'),
  )
  t.ok(await eventually(() => probes.every(probe => probe.events > 5), 5000))
  const diedMs = performance.now()
  order({ thread: 'serve-0', fault: 'throw' })
  const firstFailure = Promise.race(
    probes.map(async probe => {
      if ((await probe.result).last === 'response.failed') return
      await new Promise(() => undefined)
    }),
  )
  await firstFailure
  t.ok(performance.now() - diedMs < 1000, 'the end is told at once')
  const results = await Promise.all(probes.map(probe => probe.result))
  const [failed, completed] = [ends(results, 'response.failed'), ends(results, 'response.completed')]
  t.equal(failed + completed, 24, 'every stream came to an end that its reader understands')
  t.ok(
    failed > 0 && completed > 0,
    `${failed} streams of the one thread failed, ${completed} of the other did not`,
  )

  t.ok(await eventually(() => lines.some(line => line['msg'] === 'serve thread died, restarting it'), 5000))
  const restarted = async () =>
    / 1$/m.test(
      (await admin('/metrics')).text
        .match(/^gateway_threads{state="down"}.*|^gateway_thread_restarts_total .*/gm)
        ?.join('\n') ?? '',
    )
  t.ok(await eventually(restarted, 5000))
  const both = async () => (await admin('/metrics')).text.includes('gateway_threads{state="up"} 2')
  t.ok(await eventually(both, 5000), 'both threads are up again')
  const after = await Promise.all(Array.from({ length: 16 }, () => stream('sim/write-3').result))
  t.equal(ends(after, 'response.completed'), 16)
  const { text } = await admin('/metrics')
  const counted = /^gateway_requests_total\{route="\/responses",status_class="2xx",outcome="(\w+)"\} (\d+)$/gm
  const sums = new Map([...text.matchAll(counted)].map(match => [match[1], Number(match[2])]))
  t.equal(sums.get('completed'), completed + 16)
  t.equal(sums.get('failed'), failed, 'what the dead thread counted is still counted')
})

t.test('a thread that hangs is told of, takes the readiness with it, and both come back', async t => {
  const { order, admin, lines } = await start(t, {}, { hungMs: 1200 })
  const said = (message: string) => () =>
    lines.some(line => line['msg'] === message && line['thread'] === 'serve-1')
  t.equal((await admin('/readyz')).status, 200)
  order({ thread: 'serve-1', fault: { blockMs: 3000 } })
  t.ok(await eventually(said('serve thread hangs'), 5000))
  t.match(await admin('/readyz'), { status: 503, text: /a serve thread hangs/ })
  t.ok(await eventually(said('serve thread goes on'), 5000))
  t.equal((await admin('/readyz')).status, 200)
  t.notOk(lines.some(line => line['thread'] === 'serve-0'))
})

t.test('a key that was changed counts in all threads at once', async t => {
  const { supervisor, database, apiKey, stream } = await start(t)
  // Each of these connections stays with its thread, and both threads remember the key.
  const agents = Array.from({ length: 12 }, () => new Agent({ keepAlive: true, maxSockets: 1 }))
  t.teardown(() => {
    for (const agent of agents) agent.destroy()
  })
  const statuses = async () =>
    new Set(await Promise.all(agents.map(async agent => (await stream('sim/nowhere', agent).result).status)))
  t.same(await statuses(), new Set([400]), 'the key is good, the model is not')
  const hash = hashKey(apiKey)
  const direct = new DatabaseSync(database)
  direct.prepare('UPDATE api_keys SET disabled = 1 WHERE hash = ?').run(hash)
  direct.close()
  t.same(await statuses(), new Set([400]), 'known keys are not looked up')
  supervisor.changed({ kind: 'key', hash })
  t.ok(await eventually(async () => (await statuses()).has(400) === false, 1000))
  t.same(await statuses(), new Set([401]))
})

t.test('readiness goes first, then the listener; a second order to stop cuts the wait short', async t => {
  const { supervisor, admin, stream } = await start(t, { timeouts: { drainDelayMs: 60_000 } })
  const running = stream('sim/write-10000-20')
  t.ok(await eventually(() => running.events > 3, 5000))
  const stopped = supervisor.drain(60_000)
  t.match(await admin('/readyz'), { status: 503, text: /draining/ })
  t.equal(ends([await stream('sim/write-3').result], 'response.completed'), 1, 'still taken')
  const sinceMs = performance.now()
  t.ok(await supervisor.drain(0))
  t.ok(await stopped)
  t.ok(performance.now() - sinceMs < 2000)
  t.equal(ends([await running.result], 'response.failed'), 1)
  t.ok((await stream('sim/write-3').result).cut, 'nobody listens')
})

t.test('a scrape tells whether the storage can be reached now', async t => {
  let reached = true
  const { admin } = await start(t, { threads: 1 }, { storageUp: () => reached })
  t.match((await admin('/metrics')).text, /^gateway_storage_up 1$/m)
  reached = false
  t.match((await admin('/metrics')).text, /^gateway_storage_up 0$/m)
})

t.test('a thread that does not stop is told apart', async t => {
  const { supervisor, order, stream } = await start(t, { threads: 1 }, { stopMs: 200 })
  t.equal(ends([await stream('sim/write-3').result], 'response.completed'), 1)
  order({ thread: 'serve-0', fault: { blockMs: 1500 } })
  t.equal(await supervisor.drain(1), false)
})

t.test('a thread that dies again and again leaves no files, and all it recorded arrives', async t => {
  const root = mkdtempSync(join(tmpdir(), 'sluice-shipped-'))
  const clock = new TestClock()
  const shipper = await startShipper({
    storageUrl: `sqlite:${join(root, 'ledger.db')}`,
    clock,
    log: createLog('silent', { write: () => undefined }),
  })
  const ledger = await openStore(`sqlite:${join(root, 'ledger.db')}`)
  t.teardown(async () => {
    await shipper.close()
    await ledger.close()
  })
  const { order, stream, supervisor } = await start(
    t,
    { threads: 1 },
    { spoolFolder: shipper.folder, writerGone: writer => shipper.gone(writer) },
  )
  const ids: string[] = []
  const ask = async () => {
    const results = await Promise.all(Array.from({ length: 8 }, () => stream('sim/write-3').result))
    for (const { status, headers } of results)
      if (status === 200) ids.push(String(headers['x-generation-id']))
    return ends(results, 'response.completed') === results.length
  }
  for (let deaths = 0; deaths < 3; deaths++) {
    t.ok(await eventually(ask, 10_000))
    const running = Array.from({ length: 4 }, () => stream('sim/write-60-20'))
    t.ok(await eventually(() => running.every(probe => probe.events > 3), 5_000))
    const writers = new Set(readdirSync(shipper.folder))
    order({ thread: 'serve-0', fault: 'throw' })
    for (const { result } of running) {
      const { status, headers } = await result
      if (status === 200) ids.push(String(headers['x-generation-id']))
    }
    t.ok(await eventually(() => readdirSync(shipper.folder).some(name => !writers.has(name)), 10_000))
  }
  t.ok(await eventually(ask, 10_000), 'it serves again')
  await shipper.ship()
  t.equal(spoolFiles(shipper.folder).length, 1, 'only the living writer has a file')
  t.ok(ids.length >= 44, `${ids.length} answers`)
  const kept = await Promise.all(ids.map(id => ledger.ledger.find(id, DEFAULT_ORGANIZATION_ID)))
  t.equal(kept.filter(record => record === null).length, 0, 'nothing is missing')
  await supervisor.drain(0)
  await shipper.ship()
  t.same(readdirSync(shipper.folder), [])
})
