/** Memory that an open stream holds after 2,000 deltas: its text and a constant, in every format and kind of item. */
import { once } from 'node:events'
import v8 from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import type { Config } from '../../src/process/config/settings.ts'
import { startGateway } from '../support/gateway.ts'
import { eventually } from '../support/stream-probe.ts'
import { SCRIPTS, type ToStreams } from './open-streams.ts'

const STREAMS = 100
const DELTAS = 2_000
const TEXT_BYTES = DELTAS * 5
/**
 * The request, the connections, the state of decoders and relay. The target is 20 KiB; rows hold 16.6 to 19.4, and
 * runs differ by half a KiB.
 */
const CONSTANT_BYTES = 20.5 * 1024
/** Records of usage, and what the heap had not settled: half of the rows end below zero or near it. */
const LEFT_BYTES = 10 * 1024

t.setTimeout(600_000)

v8.setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** What objects hold on the heap and beside it, after a full collection. */
async function heldBytes(): Promise<number> {
  for (let round = 0; round < 3; round++) {
    collect()
    await new Promise(resolve => setImmediate(resolve))
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

t.test('an open stream holds its text and a constant', async t => {
  const worker = new Worker(new URL('./open-streams.ts', import.meta.url))
  t.teardown(() => worker.terminate())
  const [port] = (await once(worker, 'message')) as [number]
  const tell = (message: ToStreams) => worker.postMessage(message)
  const rows = Object.keys(SCRIPTS).map(name => ({ name, slug: name.replace('/', '-') }))
  const gateway = await startGateway({
    limits: { maxLagMs: 3_600_000 },
    // The provider breaks off every stream at its end.
    routing: { breakerFailures: 1_000_000 },
    providers: rows.map(({ name, slug }) => ({
      slug,
      format: name.split('/')[0],
      baseUrl: `http://127.0.0.1:${port}/${name}`,
      apiKey: 'none',
      ...(name.endsWith('/translated') ? { quirks: ['no-relay'] } : {}),
    })) as unknown as Config['providers'],
    models: rows.map(({ slug }) => ({
      id: `${slug}/m`,
      contextLength: 128_000,
      endpoints: [{ provider: slug }],
    })) as unknown as Config['models'],
  })
  t.teardown(() => gateway.close())
  const { url, apiKey, serving } = gateway
  const gone = () => eventually(() => serving.server.openRequests === 0, 30_000)

  const held = (): Promise<number> => {
    // The gateway of tests keeps its log lines.
    ;(gateway.lines as unknown[]).length = 0
    return heldBytes()
  }

  for (const { name, slug } of rows) {
    const open = async () => {
      tell({ open: STREAMS, url, apiKey, model: `${slug}/m` })
      await once(worker, 'message')
      tell({ deltas: DELTAS })
      await once(worker, 'message')
    }
    // Compiled code, pools and caches are those of a process that has worked.
    await open()
    tell({ end: true })
    t.ok(await gone(), `${name}: all are ended`)
    const before = await held()
    await open()
    const some = await held()
    await open()
    t.equal(serving.server.openStreams, 2 * STREAMS)
    const each = ((await held()) - some) / STREAMS
    tell({ end: true })
    t.ok(await gone())
    const left = ((await held()) - before) / STREAMS / 2
    const kib = (bytes: number): string => (bytes / 1024).toFixed(1)
    t.comment(`${name}: ${kib(each - TEXT_BYTES)} KiB beside the text, ${kib(left)} KiB after the end`)
    const bound = TEXT_BYTES + CONSTANT_BYTES
    t.ok(each <= bound, `${name}: ${Math.round(each)} bytes for each open stream, of ${bound}`)
    t.ok(left <= LEFT_BYTES, `${name}: ${Math.round(left)} bytes for each that ended`)
  }
})
