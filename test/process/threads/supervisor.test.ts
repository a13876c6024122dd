/** The threads of the product, in this process: one that dies, one that hangs, keys that change, and the end. */
import { createSecretKey, randomBytes } from 'node:crypto'
import { mkdtempSync, readdirSync } from 'node:fs'
import { Agent } from 'node:http'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { BroadcastChannel } from 'node:worker_threads'
import type { Test } from 'tap'
import t from 'tap'
import { simModel, simProvider } from '../../../src/apps/simulator/rows.ts'
import { createSim } from '../../../src/apps/simulator/simulator.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { hashKey, keyRecord } from '../../../src/callers/api-key.ts'
import type { CounterEntry } from '../../../src/callers/limits/counters.ts'
import { LocalCounters } from '../../../src/callers/limits/local-counters.ts'
import { loadConfig } from '../../../src/process/config/config.ts'
import type { Config } from '../../../src/process/config/settings.ts'
import { startShipper } from '../../../src/process/services/ledger-shipper.ts'
import type { SupervisorOptions } from '../../../src/process/threads/supervision.ts'
import { startSupervisor } from '../../../src/process/threads/supervisor.ts'
import { parseVaultKeys } from '../../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../../src/storage/open.ts'
import { spoolFiles } from '../../../src/storage/spool/spool.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../../src/storage/store.ts'
import { NO_SHEDDING } from '../../support/gateway-process.ts'
import { eventually, openProbe, type Probe, type ProbeResult } from '../../support/stream-probe.ts'
import { tempFolder } from '../../support/temp-folder.ts'
import { TestClock } from '../../support/test-clock.ts'
import { Block, FAULT_CHANNEL, type Order } from './faulty-thread.ts'

/** For what comes in a moment on a machine that is not busy. */
const PATIENCE_MS = 60_000

const ENTRY = new URL('./faulty-thread.ts', import.meta.url)

async function start(
  t: Test,
  more: { timeouts?: Partial<Config['timeouts']>; threads?: number } = {},
  options: Partial<SupervisorOptions> = {},
) {
  const folder = tempFolder('sluice-threads')
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
      storage: { url: storageUrl },
      providers: [simProvider(simUrl)],
      models: ['write-3', 'write-60-20', 'write-10000-20'].flatMap(name => [
        simModel(name, 'openai-responses'),
        simModel(name, 'openai-chat'),
      ]),
      threads: { serve: more.threads ?? 2, warmUpMs: 0, tasks: 1 },
      limits: { ...defaults.limits, ...NO_SHEDDING },
      timeouts: { ...defaults.timeouts, ...more.timeouts },
    },
    simUrl: null,
    endUserKey: createSecretKey(randomBytes(32)),
    vaultKeys: parseVaultKeys(`test:${randomBytes(32).toString('base64')}`),
    spoolFolder: mkdtempSync(join(folder, 'spool-')),
    log: createLog('info', { write: line => void lines.push(JSON.parse(line) as Record<string, unknown>) }),
    entries: { serve: ENTRY },
    ...options,
  })
  const channel = new BroadcastChannel(FAULT_CHANNEL)
  const blocks: Block[] = []
  const order = (given: Order): void => channel.postMessage(given)
  t.teardown(async () => {
    for (const block of blocks) block.release()
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
    order,
    /** The thread stands still when this resolves. */
    async block(thread: string): Promise<Block> {
      const block = new Block()
      blocks.push(block)
      order({ thread, fault: { block: block.shared } })
      if (!(await eventually(() => block.holds, PATIENCE_MS))) throw new Error('the thread goes on')
      return block
    },
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

t.test('the reference page is that of the operations which the threads serve', async t => {
  const { supervisor, admin } = await start(t, { threads: 1 })
  const { text, status } = await admin('/docs')
  t.equal(status, 200)
  const document = (await (await fetch(`${supervisor.url}/v1/openapi.json`)).json()) as {
    paths: Record<string, Record<string, { operationId: string }>>
  }
  const ids = Object.values(document.paths).flatMap(item =>
    Object.values(item).map(({ operationId }) => operationId),
  )
  t.ok(ids.length > 50)
  for (const id of ids) t.match(text, `id="${id}"`)
})

t.test('a thread that dies tells its streams, is replaced, and disturbs nobody else', async t => {
  const { order, stream, admin, lines } = await start(t)
  // Long ones are there when the thread dies, however late the order comes; short ones come to their own end.
  const streams = (count: number, name: string) =>
    Array.from({ length: count }, (_, index) => stream(`sim/${index % 2 === 0 ? '' : 'chat-'}${name}`))
  const [long, short] = [streams(24, 'write-10000-20'), streams(12, 'write-60-20')]
  t.ok(await eventually(() => [...long, ...short].every(probe => probe.events > 5), PATIENCE_MS))
  order({ thread: 'serve-0', fault: 'throw' })
  const over = new Set<Probe>()
  for (const probe of long) void probe.result.then(() => over.add(probe))
  t.ok(await eventually(() => over.size > 0, PATIENCE_MS), 'the end is told long before they would be over')
  t.ok(
    await eventually(
      () => lines.some(line => line['msg'] === 'serve thread died; restarting it'),
      PATIENCE_MS,
    ),
  )
  const before = new Map(long.map(probe => [probe, probe.events]))
  const goesOn = (probe: Probe) => over.has(probe) || probe.events > (before.get(probe) ?? 0) + 20
  t.ok(await eventually(() => long.every(goesOn), PATIENCE_MS), 'those of the other thread go on')
  const [dead, survivors] = [[...over], long.filter(probe => !over.has(probe))]
  for (const probe of survivors) probe.abort()
  const results = await Promise.all([...dead, ...short].map(probe => probe.result))
  const [failed, completed] = [ends(results, 'response.failed'), ends(results, 'response.completed')]
  t.equal(failed + completed, results.length, 'every stream came to an end that its reader understands')
  t.ok(failed >= dead.length, 'long ones by a failure')
  t.ok(completed > 0 && survivors.length > 0, `${failed} streams of the one thread failed, none of the other`)

  const restarted = async () =>
    / 1$/m.test(
      (await admin('/metrics')).text
        .match(/^gateway_threads{state="down"}.*|^gateway_thread_restarts_total .*/gm)
        ?.join('\n') ?? '',
    )
  t.ok(await eventually(restarted, PATIENCE_MS))
  const both = async () => (await admin('/metrics')).text.includes('gateway_threads{state="up"} 2')
  t.ok(await eventually(both, PATIENCE_MS), 'all threads are up again')
  const after = await Promise.all(Array.from({ length: 16 }, () => stream('sim/write-3').result))
  t.equal(ends(after, 'response.completed'), 16)
  const counted =
    /^gateway_requests_total\{route="\/responses",status_class="\wxx",outcome="(\w+)"\} ([1-9]\d*)$/gm
  let sums = new Map<string, number>()
  // A thread counts a request a moment after its reader has the end.
  const all = async () => {
    const { text } = await admin('/metrics')
    sums = new Map([...text.matchAll(counted)].map(([, outcome = '', count]) => [outcome, Number(count)]))
    return [...sums.values()].reduce((sum, count) => sum + count, 0) >= long.length + short.length + 16
  }
  t.ok(await eventually(all, PATIENCE_MS), 'every request is counted')
  t.equal(sums.get('completed'), completed + 16)
  t.equal(sums.get('failed'), failed, 'what the dead thread counted is still counted')
  t.equal(sums.get('aborted'), survivors.length)
})

t.test('a thread that hangs is told of, takes the readiness with it, and both come back', async t => {
  const { block, admin, lines } = await start(t, {}, { hungMs: 10_000 })
  const said = (message: string) => () =>
    lines.some(line => line['msg'] === message && line['thread'] === 'serve-1')
  t.equal((await admin('/readyz')).status, 200)
  const hanging = await block('serve-1')
  t.ok(await eventually(said('serve thread is not responding'), PATIENCE_MS))
  t.match(await admin('/readyz'), { status: 503, text: /a serve thread hangs/ })
  hanging.release()
  t.ok(await eventually(said('serve thread is responding again'), PATIENCE_MS))
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
  supervisor.invalidate({ kind: 'key', hash })
  // Well below the 30 s for which a key is believed without word of its change.
  t.ok(await eventually(async () => (await statuses()).has(400) === false, 10_000))
  t.same(await statuses(), new Set([401]))
})

t.test('readiness goes first, then the listener; a second order to stop cuts the wait short', async t => {
  const { supervisor, admin, stream } = await start(t, { timeouts: { drainDelayMs: 60_000 } })
  const running = stream('sim/write-10000-20')
  t.ok(await eventually(() => running.events > 3, PATIENCE_MS))
  const stopped = supervisor.drain(60_000)
  t.match(await admin('/readyz'), { status: 503, text: /draining/ })
  t.equal(ends([await stream('sim/write-3').result], 'response.completed'), 1, 'still taken')
  const sinceMs = performance.now()
  t.ok(await supervisor.drain(0))
  t.ok(await stopped)
  t.ok(performance.now() - sinceMs < 30_000, 'neither the delay nor the grace is waited for')
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
  const { supervisor, block, stream } = await start(t, { threads: 1 }, { stopMs: 200 })
  t.equal(ends([await stream('sim/write-3').result], 'response.completed'), 1)
  const hanging = await block('serve-0')
  t.equal(await supervisor.drain(1), false)
  hanging.release()
})

t.test('a thread that dies again and again leaves no files, and all it recorded arrives', async t => {
  const root = tempFolder('sluice-shipped')
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
    { spoolFolder: shipper.folder, writerGone: writer => shipper.writerEnded(writer) },
  )
  const ids: string[] = []
  const ask = async () => {
    const results = await Promise.all(Array.from({ length: 8 }, () => stream('sim/write-3').result))
    for (const { status, headers } of results)
      if (status === 200) ids.push(String(headers['x-generation-id']))
    return ends(results, 'response.completed') === results.length
  }
  for (let deaths = 0; deaths < 3; deaths++) {
    t.ok(await eventually(ask, PATIENCE_MS))
    const running = Array.from({ length: 4 }, () => stream('sim/write-60-20'))
    t.ok(await eventually(() => running.every(probe => probe.events > 3), PATIENCE_MS))
    const writers = new Set(readdirSync(shipper.folder))
    order({ thread: 'serve-0', fault: 'throw' })
    for (const { result } of running) {
      const { status, headers } = await result
      if (status === 200) ids.push(String(headers['x-generation-id']))
    }
    t.ok(await eventually(() => readdirSync(shipper.folder).some(name => !writers.has(name)), PATIENCE_MS))
  }
  t.ok(await eventually(ask, PATIENCE_MS), 'it serves again')
  await shipper.ship()
  t.equal(spoolFiles(shipper.folder).length, 1, 'only the living writer has a file')
  t.ok(ids.length >= 44, `${ids.length} answers`)
  const kept = await Promise.all(ids.map(id => ledger.ledger.find(id, DEFAULT_ORGANIZATION_ID)))
  t.equal(kept.filter(record => record === null).length, 0, 'nothing is missing')
  await supervisor.drain(0)
  await shipper.ship()
  t.same(readdirSync(shipper.folder), [])
})

t.test('what a thread had reserved when it ended is given back', async t => {
  const counters = new LocalCounters({ clock: new TestClock(), nodes: 1, spending: { sum: async () => 0 } })
  t.teardown(() => counters.close())
  const given: unknown[] = []
  const watched = {
    degraded: false,
    reserve: (entries: readonly CounterEntry[]) => counters.reserve(entries),
    settle(entries: readonly CounterEntry[], used: readonly number[]) {
      counters.settle(entries, used)
      given.push({ id: entries[0]?.id, used, left: counters.reserved('requests/k/1') })
    },
  }
  const entries = { serve: new URL('./reserving-thread.ts', import.meta.url) }
  await start(t, { threads: 1 }, { counters: watched, entries })
  t.ok(await eventually(() => given.length > 0, PATIENCE_MS), 'it is given back')
  t.same(given[0], { id: 'requests/k/1', used: [], left: 0 })
})
