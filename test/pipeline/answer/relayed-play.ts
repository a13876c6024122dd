/** Plays provider streams to a client twice, relayed and through decoder and answer, and compares what it reads. */
import type { Test } from 'tap'
import type { Dialect, FrameWriter } from '../../../src/dialects/dialect.ts'
import type { Sink } from '../../../src/pipeline/answer/sink.ts'
import type { StreamEvent } from '../../../src/protocol/events.ts'
import type { Quirk } from '../../../src/protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../../../src/protocol/request.ts'
import { chatCompletions, messages, responsesDialect } from '../../support/dialects.ts'
import { arrivals } from '../../support/recordings.ts'
import { scriptedEndpoint, scriptedExchange, startScripted } from '../../support/scripted-attempt.ts'

/** The formats whose frames are relayed, and the dialect that speaks alike: the client's, where no other is named. */
export const DIALECTS = {
  'openai-responses': responsesDialect,
  'openai-chat': chatCompletions,
  'anthropic-messages': messages,
} as const
export type Relayed = keyof typeof DIALECTS
export const DOORS: readonly Dialect[] = Object.values(DIALECTS)

const FORMAT: Relayed = 'openai-responses'

/** Keeps what a client would get. */
class KeepingSink implements Sink {
  readonly live = true
  readonly relays: DialectName
  readonly #frames: FrameWriter
  lastFrames = ''
  text = ''
  /** Number of the last event that was written. */
  number = -1
  events = 0
  /** Events that came as bytes. */
  relayed = 0
  /** Whether the reader can follow. */
  flowing = true

  constructor(dialect: Dialect, request: ResponsesRequest) {
    this.relays = dialect.name
    this.#frames = dialect.frames(request)
  }

  write(event: StreamEvent): boolean {
    this.lastFrames = this.#frames.write(event)
    this.text += this.lastFrames
    this.number = event.sequence_number
    this.events++
    return this.flowing
  }
  overhear(event: StreamEvent): void {
    this.#frames.write(event)
  }
  relay(frames: Buffer, events: number): boolean {
    this.text += frames.toString('utf8')
    this.events += events
    this.relayed += events
    return this.flowing
  }
  cork(): void {
    // Everything leaves at once.
  }
  flush(): boolean {
    return true
  }
  onDrain(): void {
    // The scripted client ignores it as well.
  }
  end(): void {
    this.text += this.#frames.end()
  }
}

export interface Outcome {
  readonly sink: KeepingSink
  /** What the client read; padding, which the general way leaves out, is dropped. */
  readonly events: readonly Record<string, unknown>[]
  readonly error: string | null
  readonly paused: number
  readonly usage: unknown
  readonly characters: number
}

interface Play {
  readonly format?: Relayed
  /** Dialect of the client. */
  readonly door?: Dialect
  readonly quirks?: readonly Quirk[]
  readonly fields?: Readonly<Record<string, unknown>>
  readonly slow?: boolean
}

export async function play(
  chunks: readonly Buffer[],
  { format = FORMAT, door = DIALECTS[format], quirks = [], fields = {}, slow = false }: Play,
): Promise<Outcome> {
  const exchange = scriptedExchange(fields)
  const sink = new KeepingSink(door, exchange.request)
  sink.flowing = !slow
  const { run, handler, client, over } = startScripted(scriptedEndpoint(format, quirks), sink, exchange)
  let error: string | null = null
  const settled = over.catch(thrown => {
    error = String(thrown)
  })
  for (const chunk of chunks) {
    if (client.aborted) break
    // What is lent may be used again.
    const lent = Buffer.from(chunk)
    handler.onData(lent)
    lent.fill(0x21)
  }
  if (!client.aborted) handler.onEnd()
  await settled
  return {
    sink,
    events: door === chatCompletions ? readChunks(sink.text) : read(sink.text),
    error,
    paused: client.pauses,
    usage: run.figures.usage,
    characters: run.figures.outputQuarters,
  }
}

/** The frames of a stream without the one that ends it. */
function framesOf(text: string): string[] {
  const frames = text.split('\n\n')
  if (frames.pop() !== '') throw new Error('the stream does not end at the border of a frame')
  return frames.filter(one => one !== 'data: [DONE]')
}

/** Reads chat chunks of ours: strictly one line a frame, with the members of a chunk. */
function readChunks(text: string): Record<string, unknown>[] {
  return framesOf(text).map(one => {
    if (!one.startsWith('data: {') || one.includes('\n')) throw new Error(`no chunk: ${one.slice(0, 200)}`)
    const chunk = JSON.parse(one.slice(6)) as Record<string, unknown>
    if (chunk['obfuscation'] !== undefined) throw new Error('a chunk has padding')
    return chunk
  })
}

/** Reads an event stream of ours: strictly two lines a frame, the name the type. */
function read(text: string): Record<string, unknown>[] {
  return framesOf(text).map(one => {
    const lines = one.split('\n')
    const [name, data] = lines
    if (lines.length !== 2 || !name?.startsWith('event: ') || !data?.startsWith('data: ')) {
      throw new Error(`no proper frame: ${one.slice(0, 200)}`)
    }
    const { obfuscation, ...event } = JSON.parse(data.slice(6)) as Record<string, unknown>
    if (event['type'] !== name.slice(7)) throw new Error('a frame under another name than its type')
    if (obfuscation !== undefined && (typeof obfuscation !== 'string' || !name.endsWith('.delta'))) {
      throw new Error('only deltas have padding')
    }
    return event
  })
}

const MADE_ID = /^(msg|rs|fc|ctc|st|call|toolu|thk)_[\w-]+$/
/** A signature of ours has ids in it, in base64url. */
const OUR_SIGNATURE = /^gateway-reasoning-v1\./

/** Ids that we made, because the provider gave none, are random: each becomes its number in order of appearance. */
function comparable(outcome: Outcome, upstream: Buffer): string {
  const given = upstream.toString('utf8')
  const made = new Map<string, number>()
  const named = (value: string): string => {
    if (!MADE_ID.test(value) || given.includes(value)) return value
    if (!made.has(value)) made.set(value, made.size)
    return `made ${made.get(value)}`
  }
  return JSON.stringify(
    { ...outcome, sink: [outcome.sink.events, outcome.sink.number] },
    (_key, value: unknown) => {
      if (typeof value !== 'string') return sorted(value)
      if (!OUR_SIGNATURE.test(value)) return named(value)
      return value
        .split('.')
        .map(part => named(Buffer.from(part, 'base64url').toString()))
        .join('.')
    },
  )
}

/** The order of the keys is the provider's in the one and ours in the other. */
function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

const general: Play = { quirks: ['no-relay'] }

interface Counts {
  readonly relayed: number
  readonly deltas: number
}

export async function compare(
  t: Test,
  format: Relayed,
  door: Dialect,
  name: string,
  bytes: Buffer,
): Promise<Counts> {
  const expected = await play([bytes], { ...general, format, door })
  const wanted = comparable(expected, bytes)
  t.equal(expected.sink.relayed, 0)
  const deltas = expected.events.filter(isDelta).length
  let relayed = 0
  for (const arrival of arrivals(bytes)) {
    const outcome = await play(arrival.chunks, { format, door })
    if (comparable(outcome, bytes) !== wanted)
      tellDifference(t, `${name}, ${arrival.name}`, outcome, expected)
    if (arrival.name === 'whole') relayed = outcome.sink.relayed
  }
  return { relayed, deltas }
}

function isDelta({ type, choices }: Record<string, unknown>): boolean {
  if (typeof type === 'string') return type.endsWith('.delta') || type === 'content_block_delta'
  const [choice] = choices as readonly { readonly delta?: object }[]
  const delta = choice?.delta ?? {}
  return 'content' in delta || 'reasoning' in delta || 'tool_calls' in delta
}

async function same(t: Test, name: string, chunks: readonly Buffer[], played: Play = {}): Promise<Outcome> {
  const bytes = Buffer.concat(chunks)
  const expected = await play(chunks, { ...played, ...general })
  const outcome = await play(chunks, played)
  if (comparable(outcome, bytes) !== comparable(expected, bytes)) tellDifference(t, name, outcome, expected)
  return outcome
}

/** Fails, and shows the first kind of fact that differs. */
function tellDifference(t: Test, name: string, outcome: Outcome, expected: Outcome): void {
  t.same(outcome.error, expected.error, name)
  t.same(outcome.events, expected.events, name)
  t.same([outcome.usage, outcome.characters], [expected.usage, expected.characters], name)
  t.fail(`${name}: the relayed stream reads otherwise (${outcome.paused} and ${expected.paused} pauses)`)
}

/** As `same`, for the clients of every dialect; the outcome is that of the dialect that speaks as the provider does. */
export async function sameAtAllDoors(
  t: Test,
  name: string,
  chunks: readonly Buffer[],
  played: Play = {},
): Promise<Outcome> {
  const own = DIALECTS[played.format ?? FORMAT]
  for (const door of DOORS) {
    if (door !== own) await same(t, `${name}, read by a client of ${door.name}`, chunks, { ...played, door })
  }
  return same(t, name, chunks, played)
}
