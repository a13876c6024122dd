/** Streams that are cut at any byte and read on, over two threads: nothing is told twice, nothing is missing. */
import t, { type Test } from 'tap'
import { SIM_FORMATS, simModel } from '../../src/apps/simulator/rows.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import { createTranscripts } from '../../src/process/threads/transcripts.ts'
import { startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { until } from '../support/patience.ts'
import {
  ask,
  counted,
  drawFrom,
  idOf,
  joinThread,
  normalized,
  numberOf,
  type Piece,
  readPiece,
  resume,
  textOf,
} from '../support/resumable.ts'
import { isExhaustive } from '../support/share.ts'
import { TestClock } from '../support/test-clock.ts'

const STREAMS = isExhaustive ? 500 : 100
const AT_ONCE = 20
const SEED = 20261123
/** Some run on while they are read again, others have ended by then. */
const ROWS = SIM_FORMATS.flatMap(format =>
  ['write-40-2', 'write-60-0', 'reason-1'].map(name => simModel(name, format)),
)
const MODELS = ROWS.map(({ id }) => id)

/** Two servers with one main thread between them. */
async function startTwo(t: Test) {
  const clock = new TestClock()
  const config = loadConfig([], {})
  const store = createTranscripts(config, clock)
  const start = async (options: TestGatewayOptions) => {
    const thread = joinThread(store)
    const gateway = await startGateway({
      clock,
      transcripts: thread.client,
      models: ROWS as NonNullable<TestGatewayOptions['models']>,
      timeouts: { requestMs: 86_400_000, upstreamIdleMs: 86_400_000, stallMs: 86_400_000 },
      ...options,
    })
    t.teardown(async () => {
      await gateway.close()
      await thread.close()
    })
    return gateway
  }
  const one = await start({})
  const two = await start({ storageUrl: one.storageUrl })
  const { apiKey } = one
  return { clock, config, store, one, two, apiKey, ports: [one.port, two.port] as const }
}

t.test(`${STREAMS} streams cut at random points and resumed`, async t => {
  const { clock, config, store, one, ports, apiKey } = await startTwo(t)
  const draw = drawFrom(SEED)
  const anyPort = (): number => ports[draw(2)] ?? 0
  const whole = new Map<string, Piece>()
  for (const model of MODELS) {
    const piece = await readPiece('/responses', {
      port: one.port,
      apiKey,
      body: { model, input: 'Where to?', stream: true },
    })
    t.ok(piece.isDone && counted(piece.frames), model)
    whole.set(model, piece)
  }
  t.equal(store.count, 0, 'who does not ask for it leaves nothing')

  const tally = { pieces: 0, running: 0 }
  const once = async (model: string): Promise<void> => {
    const uncut = whole.get(model)
    if (uncut === undefined) throw new Error(model)
    // Not before the head: the client knows no id then.
    const most = uncut.body.length
    const first = await ask({ port: anyPort(), apiKey, model, input: 'Where to?', cutAfter: 1 + draw(most) })
    const id = idOf(first)
    const frames = [...first.frames]
    let last = first
    for (let cuts = draw(4); !last.isDone; cuts--) {
      const after = frames.length === 0 ? null : numberOf(frames.at(-1) ?? '')
      const cutAfter = cuts > 0 ? 1 + draw(most) : Number.POSITIVE_INFINITY
      last = await resume(id, after, { port: anyPort(), apiKey, cutAfter })
      if (last.status !== 200) throw new Error(`${last.status} ${last.body}`)
      frames.push(...last.frames)
      tally.pieces++
    }
    const again = await resume(id, null, { port: anyPort(), apiKey })
    const isSame =
      counted(frames) &&
      frames.join() === again.frames.join() &&
      textOf(frames) === textOf(uncut.frames) &&
      normalized(frames).join() === normalized(uncut.frames).join()
    if (!isSame) t.same(normalized(frames), normalized(uncut.frames), `${model} ${id}`)
  }
  for (let done = 0; done < STREAMS; done += AT_ONCE) {
    const models = Array.from({ length: AT_ONCE }, (_, at) => MODELS[(done + at) % MODELS.length] ?? '')
    await Promise.all(models.map(once))
  }
  t.ok(tally.pieces > STREAMS / 2, `${tally.pieces} pieces were read again`)
  await until('the end of all streams', () => one.serving.server.openRequests === 0)
  t.equal(store.count, STREAMS)
  t.comment(`${store.bytes} bytes for ${store.count} streams, ${tally.pieces} resumed pieces`)
  t.ok(store.bytes <= config.resume.maxBytesPerKey)
  clock.advance(config.resume.windowMs)
  t.equal(store.count, 0)
  t.equal(store.bytes, 0, 'nothing is kept after the window')
})
