/**
 * Cost of one streamed delta between the upstream socket and the client socket, without either of them: decode or
 * relay, assemble, serialise, encode. `npx node bench/micro/stream.ts`. Figures are comparable only within one hour on
 * one machine.
 */
import assert from 'node:assert/strict'
import { chatCompletions } from '../../test/support/dialects.ts'
import { MemorySocket, openStream, responses, type Script, sse, word } from './scripted-stream.ts'

const EVENTS = 5_000
const ROUNDS = 15

const chat: Script = {
  format: 'openai-chat',
  opening: '',
  delta: n =>
    `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1700000000,"model":"some-model","choices":[{"index":0,"delta":{"content":"${word(n)}"},"finish_reason":null}]}\n\n`,
  ending:
    'data: {"id":"chatcmpl-123","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
}

const SCRIPTS: Readonly<Record<string, Script>> = {
  'responses, relay': responses(EVENTS),
  'responses, general': { ...responses(EVENTS), quirks: ['no-relay'] },
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

/** Nanoseconds per delta of one stream, `perRead` deltas in each read. */
async function pass(script: Script, chunks: readonly Buffer[]): Promise<number> {
  const socket = new MemorySocket()
  const { handler, over, sink } = openStream(script, socket)
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
