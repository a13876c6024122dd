/**
 * What one streamed delta costs between the upstream socket and the socket to the client, both left out: decode or
 * relay, assemble, serialise, encode. `npx node bench/micro/stream.ts`. Compare only figures of one machine and hour.
 */
import assert from 'node:assert/strict'
import { EventSink } from '../../src/api/event-sink.ts'
import { systemClock } from '../../src/clock.ts'
import type { Dialect } from '../../src/dialects/dialect.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import type { FormatName, Quirk } from '../../src/providers/provider.ts'
import { HttpReply } from '../../src/server/reply.ts'
import type { ResponseSocket } from '../../src/server/response-socket.ts'
import { chatCompletions, responsesDialect } from '../../test/support/dialects.ts'
import { scriptedEndpoint, startScripted } from '../../test/support/scripted-attempt.ts'

const EVENTS = 5_000
const ROUNDS = 15

/** Takes what it is given as the socket library does: strings are encoded, bytes are copied. */
class MemorySocket implements ResponseSocket {
  readonly address = ''
  readonly dead = false
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
}

const sse = (type: string, fields: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
const word = (n: number): string => ` word${n % 97}`

interface Script {
  readonly format: FormatName
  /** Of the client; default: Responses. */
  readonly dialect?: Dialect
  readonly quirks?: readonly Quirk[]
  readonly opening: string
  readonly delta: (n: number) => string
  readonly ending: string
}

const ITEM = 'msg_06c839edbdd88254016a3c11a93e1481908acf9bbba9834b75'
const RESPONSE = { id: 'resp_1', object: 'response', status: 'in_progress', output: [] }

const responses: Script = {
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
    sequence_number: 4 + EVENTS,
  }),
}

const chat: Script = {
  format: 'openai-chat',
  opening: '',
  delta: n =>
    `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1700000000,"model":"some-model","choices":[{"index":0,"delta":{"content":"${word(n)}"},"finish_reason":null}]}\n\n`,
  ending:
    'data: {"id":"chatcmpl-123","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
}

const SCRIPTS: Readonly<Record<string, Script>> = {
  'responses, relay': responses,
  'responses, general': { ...responses, quirks: ['no-relay'] },
  'chat, to responses': chat,
  'chat, relay': { ...chat, dialect: chatCompletions },
  'chat, general': { ...chat, dialect: chatCompletions, quirks: ['no-relay'] },
  messages: {
    format: 'anthropic-messages',
    opening:
      sse('message_start', {
        message: { id: 'm', type: 'message', role: 'assistant', content: [], usage: { input_tokens: 1 } },
      }) + sse('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    delta: n => sse('content_block_delta', { index: 0, delta: { type: 'text_delta', text: word(n) } }),
    ending:
      sse('content_block_stop', { index: 0 }) +
      sse('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 5 } }) +
      sse('message_stop', {}),
  },
  gemini: {
    format: 'google-gemini',
    opening: '',
    delta: n =>
      `data: {"candidates":[{"content":{"parts":[{"text":"${word(n)}"}],"role":"model"},"index":0}],"modelVersion":"m","responseId":"r"}\n\n`,
    ending:
      'data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}\n\n',
  },
}

const metrics = createMetrics()

/** Nanoseconds per delta of one stream, `perRead` deltas in each read. */
async function pass(script: Script, chunks: readonly Buffer[]): Promise<number> {
  const { dialect = responsesDialect } = script
  const socket = new MemorySocket()
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
  const { handler, over } = startScripted(scriptedEndpoint(script.format, script.quirks), sink)
  handler.onData(Buffer.from(script.opening))
  let spent = 0n
  for (const chunk of chunks) {
    // Each read is a turn of its own; what the sink does when the turn is over counts as well.
    await new Promise(resolve => {
      const started = process.hrtime.bigint()
      handler.onData(chunk)
      process.nextTick(() => {
        spent += process.hrtime.bigint() - started
        setImmediate(resolve)
      })
    })
  }
  assert.ok(socket.writes >= chunks.length, `${socket.writes} writes of ${chunks.length} reads`)
  assert.ok(socket.bytes > EVENTS * 150)
  handler.onData(Buffer.from(script.ending))
  handler.onEnd()
  await over
  sink.end()
  return Number(spent) / EVENTS
}

const only = process.argv[2]
for (const [name, script] of Object.entries(SCRIPTS)) {
  if (only !== undefined && only !== name) continue
  const frames = Array.from({ length: EVENTS }, (_, n) => Buffer.from(script.delta(n)))
  for (const perRead of [1, 10]) {
    const chunks: Buffer[] = []
    for (let at = 0; at < EVENTS; at += perRead) chunks.push(Buffer.concat(frames.slice(at, at + perRead)))
    const times: number[] = []
    for (let round = 0; round < ROUNDS; round++) times.push(await pass(script, chunks))
    times.sort((a, b) => a - b)
    const spread = `${(times[0] ?? 0).toFixed(0)}..${(times.at(-1) ?? 0).toFixed(0)}`
    process.stdout.write(
      `${name.padEnd(20)} ${String(perRead).padStart(3)} per read ${(times[ROUNDS >> 1] ?? 0).toFixed(0).padStart(7)} ns/delta (${spread})\n`,
    )
  }
}
