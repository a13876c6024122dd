/**
 * Cost of one server-sent event in the parser, for whole input, 256-byte reads and single bytes:
 * `npx node bench/micro/sse.ts`. Figures are comparable only within one run; each round asserts the count of events.
 */
import assert from 'node:assert/strict'
import { SseParser } from '../../src/providers/upstream/sse.ts'

const EVENTS = 10_000
const ROUNDS = 9

const chat = (n: number): string =>
  `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1700000000,"model":"some-model","choices":[{"index":0,"delta":{"content":" word${n % 97}"},"finish_reason":null}]}\n\n`
const named = (n: number): string =>
  `event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word${n % 97}"}}\n\n`

const STREAMS: Readonly<Record<string, (n: number) => string>> = {
  'data only': chat,
  'event and data': named,
  'CRLF lines': n => chat(n).replaceAll('\n', '\r\n'),
  'with comments': n => `: keep-alive\n\n${chat(n)}`,
}
const CHUNKS: Readonly<Record<string, number>> = { whole: Number.POSITIVE_INFINITY, '256 B': 256, '1 B': 1 }

function cut(bytes: Buffer, size: number): Buffer[] {
  if (size >= bytes.length) return [bytes]
  const chunks: Buffer[] = []
  for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size))
  return chunks
}

/** Nanoseconds per event of one pass over all chunks. */
function pass(chunks: readonly Buffer[]): number {
  let events = 0
  let characters = 0
  const parser = new SseParser((_event, data) => {
    events++
    characters += data.length
  })
  const started = process.hrtime.bigint()
  for (const chunk of chunks) parser.push(chunk)
  parser.end()
  const spent = Number(process.hrtime.bigint() - started)
  assert.equal(events, EVENTS)
  assert.ok(characters > EVENTS * 50)
  return spent / EVENTS
}

for (const [stream, event] of Object.entries(STREAMS)) {
  const bytes = Buffer.from(Array.from({ length: EVENTS }, (_, n) => event(n)).join(''))
  for (const [name, size] of Object.entries(CHUNKS)) {
    const chunks = cut(bytes, size)
    const times = Array.from({ length: ROUNDS }, () => pass(chunks)).sort((a, b) => a - b)
    const median = times[ROUNDS >> 1] ?? 0
    const spread = `${(times[0] ?? 0).toFixed(0)}..${(times.at(-1) ?? 0).toFixed(0)}`
    process.stdout.write(
      `${stream.padEnd(16)} ${name.padEnd(6)} ${median.toFixed(0).padStart(7)} ns/event (${spread})  ${(bytes.length / EVENTS).toFixed(0)} B/event\n`,
    )
  }
}
