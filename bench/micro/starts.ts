/**
 * Cost of beginning and ending a relayed stream between the two sockets, hot and after pauses: when only some hundred
 * streams begin each second, other code uses the caches and branch predictors in between.
 * `npx node bench/micro/starts.ts`. Figures are comparable only within one hour on one machine.
 */
import { ITEM, MemorySocket, openStream, RESPONSE, responses, sse, word } from './scripted-stream.ts'

const EVENTS = 100
const PRACTICE = 6_000
const STREAMS = 300
const PAUSES_MS = [0, 1, 5, 20]

const script = responses(EVENTS)
const text = Array.from({ length: EVENTS }, (_, n) => word(n)).join('')
const part = { type: 'output_text', annotations: [], logprobs: [], text }
const item = { id: ITEM, type: 'message', status: 'completed', role: 'assistant', content: [part] }
const opening = Buffer.from(script.opening)
const deltas = Array.from({ length: EVENTS }, (_, n) => Buffer.from(script.delta(n)))
const place = { item_id: ITEM, output_index: 0, content_index: 0 }
const ending = Buffer.from(
  sse('response.output_text.done', { ...place, text, logprobs: [], sequence_number: 4 + EVENTS }) +
    sse('response.content_part.done', { ...place, part, sequence_number: 5 + EVENTS }) +
    sse('response.output_item.done', { output_index: 0, item, sequence_number: 6 + EVENTS }) +
    sse('response.completed', {
      response: { ...RESPONSE, status: 'completed', output: [item] },
      sequence_number: 7 + EVENTS,
    }),
)

const socket = new MemorySocket()

/** Microseconds of one stream: its begin, all its deltas, its end. */
async function stream(): Promise<readonly [begin: number, deltas: number, end: number]> {
  const startedMs = performance.now()
  const { handler, over, sink } = openStream(script, socket)
  handler.onData(opening)
  const begunMs = performance.now()
  for (const delta of deltas) handler.onData(delta)
  const saidMs = performance.now()
  handler.onData(ending)
  handler.onEnd()
  await over
  sink.end()
  const endedMs = performance.now()
  return [1_000 * (begunMs - startedMs), 1_000 * (saidMs - begunMs), 1_000 * (endedMs - saidMs)]
}

for (let count = 0; count < PRACTICE; count++) await stream()
for (const pauseMs of PAUSES_MS) {
  const streams: (readonly number[])[] = []
  for (let count = 0; count < STREAMS; count++) {
    streams.push(await stream())
    if (pauseMs > 0) await new Promise(resolve => setTimeout(resolve, pauseMs))
  }
  const median = (at: number): string => {
    const sorted = streams.map(times => times[at] ?? 0).sort((a, b) => a - b)
    return (sorted[STREAMS >> 1] ?? 0).toFixed(0)
  }
  process.stdout.write(
    `pause of ${pauseMs} ms: begin ${median(0)} us, ${EVENTS} deltas ${median(1)} us, end ${median(2)} us\n`,
  )
}
