/** Memory that an open stream holds after 2,000 deltas: its text and a constant, in every format and kind of item. */
import { once } from 'node:events'
import v8 from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import type { Config } from '../../src/config/config.ts'
import { startGateway } from '../support/gateway.ts'
import { SCRIPTS, type ToStreams } from '../support/open-streams.ts'
import { eventually } from '../support/stream-probe.ts'

const STREAMS = 100
const DELTAS = 2_000
const TEXT_BYTES = DELTAS * 5
/** The request, the connections, the state of decoders and relay, and the log lines that the test keeps. */
const CONSTANT_BYTES = 40 * 1024
/** Log lines and records of usage. */
const LEFT_BYTES = 6 * 1024

t.setTimeout(300_000)

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
  const worker = new Worker(new URL('../support/open-streams.ts', import.meta.url))
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

  for (const { name, slug } of rows) {
    const open = async (deltas: number) => {
      tell({ open: STREAMS, url, apiKey, model: `${slug}/m` })
      await once(worker, 'message')
      tell({ deltas })
      await once(worker, 'message')
    }
    // Compiled code, pools and caches are those of a process that has worked.
    await open(DELTAS)
    tell({ end: true })
    t.ok(await gone(), `${name}: all are ended`)
    const before = await heldBytes()
    await open(DELTAS)
    t.equal(serving.server.openStreams, STREAMS)
    const each = ((await heldBytes()) - before) / STREAMS
    tell({ end: true })
    t.ok(await gone())
    const left = ((await heldBytes()) - before) / STREAMS
    t.comment(
      `${name}: ${(each / 1024).toFixed(1)} KiB a stream, ${(left / 1024).toFixed(1)} KiB after its end`,
    )
    t.ok(each <= TEXT_BYTES + CONSTANT_BYTES, `${name}: ${Math.round(each)} bytes for each open stream`)
    t.ok(left <= LEFT_BYTES, `${name}: ${Math.round(left)} bytes for each that ended`)
  }
})
