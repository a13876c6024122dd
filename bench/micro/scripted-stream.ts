/**
 * Streams from a scripted provider into memory: the code between the two sockets, for the benchmarks in this folder.
 */
import { EventSink } from '../../src/api/event-sink.ts'
import { systemClock } from '../../src/base/clock.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import type { Dialect } from '../../src/dialects/dialect.ts'
import type { FormatName, Quirk } from '../../src/protocol/provider.ts'
import { HttpReply } from '../../src/server/reply.ts'
import type { ResponseSocket } from '../../src/server/response-socket.ts'
import { responsesDialect } from '../../test/support/dialects.ts'
import { scriptedEndpoint, startScripted } from '../../test/support/scripted-attempt.ts'

/** Takes what it is given as the socket library does: strings are encoded, bytes are copied. */
export class MemorySocket implements ResponseSocket {
  readonly address = ''
  readonly isEnded = false
  readonly #memory = Buffer.allocUnsafeSlow(1024 * 1024)
  writes = 0
  bytes = 0

  #take(chunk: string | Buffer): true {
    this.writes++
    this.bytes += typeof chunk === 'string' ? this.#memory.write(chunk) : chunk.copy(this.#memory)
    return true
  }

  send(): void {
    throw new Error('a stream was expected')
  }
  open(_status: string, _headers: readonly string[], chunk: string | Buffer): boolean {
    return this.#take(chunk)
  }
  write(chunk: string | Buffer): boolean {
    return this.#take(chunk)
  }
  end(chunk: string | Buffer): void {
    this.#take(chunk)
  }
  sendHead(): void {
    throw new Error('a stream was expected')
  }
  pause(): void {
    throw new Error('nothing is read')
  }
  resume(): void {
    throw new Error('nothing is read')
  }
  onProgress(): void {
    // Never slow.
  }
  abort(): void {
    throw new Error('the stream was dropped')
  }
  cutOff(): void {
    throw new Error('the stream was cut')
  }
}

export const sse = (type: string, fields: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
export const word = (n: number): string => ` word${n % 97}`

export interface Script {
  readonly format: FormatName
  /** Of the client; default: Responses. */
  readonly dialect?: Dialect
  readonly quirks?: readonly Quirk[]
  readonly opening: string
  readonly delta: (n: number) => string
  readonly ending: string
}

export const ITEM = 'msg_06c839edbdd88254016a3c11a93e1481908acf9bbba9834b75'
export const RESPONSE = { id: 'resp_1', object: 'response', status: 'in_progress', output: [] }

/** A relayed reply of this many deltas. */
export const responses = (events: number): Script => ({
  format: 'openai-responses',
  opening:
    sse('response.created', { response: RESPONSE, sequence_number: 0 }) +
    sse('response.in_progress', { response: RESPONSE, sequence_number: 1 }) +
    sse('response.output_item.added', {
      item: { id: ITEM, type: 'message', status: 'in_progress', content: [], role: 'assistant' },
      output_index: 0,
      sequence_number: 2,
    }) +
    sse('response.content_part.added', {
      content_index: 0,
      item_id: ITEM,
      output_index: 0,
      part: { type: 'output_text', annotations: [], logprobs: [], text: '' },
      sequence_number: 3,
    }),
  delta: n =>
    sse('response.output_text.delta', {
      content_index: 0,
      delta: word(n),
      item_id: ITEM,
      logprobs: [],
      obfuscation: 'hJ3kD9sLw0'.slice(n % 8),
      output_index: 0,
      sequence_number: 4 + n,
    }),
  ending: sse('response.completed', {
    response: { ...RESPONSE, status: 'completed' },
    sequence_number: 4 + events,
  }),
})

const metrics = createMetrics()

/** Begins a stream of the script, written to `socket`. */
export function openStream({ dialect = responsesDialect, format, quirks }: Script, socket: MemorySocket) {
  const reply = new HttpReply(socket, {
    id: 'gen-bench',
    generates: true,
    dialect,
    bodiless: false,
    closesAfter: () => false,
  })
  const sink = new EventSink(reply, dialect.name, dialect.frames({ input: '' }), {
    heartbeatMs: 60_000,
    stallMs: 60_000,
    clock: systemClock,
    metrics,
  })
  return { ...startScripted(scriptedEndpoint(format, quirks), sink), sink }
}
