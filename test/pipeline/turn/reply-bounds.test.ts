/** Replies of hostile or broken providers: how large, how deep and how long they may be, and what they count. */
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { GatewayError } from '../../../src/base/errors.ts'
import { FORMATS } from '../../../src/formats/table.ts'
import { ReplyReading } from '../../../src/pipeline/turn/reply-reading.ts'
import type { Endpoint } from '../../../src/protocol/provider.ts'
import { EventCollector } from '../../support/event-collector.ts'
import {
  scriptedEndpoint,
  scriptedExchange,
  scriptedRecord,
  startScripted,
} from '../../support/scripted-attempt.ts'
import { play } from '../answer/relayed-play.ts'

const TEXT_MODEL: Endpoint = { ...scriptedEndpoint('openai-chat'), drawsImages: false }
const IMAGE_MODEL: Endpoint = { ...TEXT_MODEL, drawsImages: true }

/** Counts what is held, up to `room`. */
function counter(room = Number.POSITIVE_INFINITY) {
  return {
    bytes: 0,
    most: 0,
    count(more: number) {
      this.bytes += more
      this.most = Math.max(this.most, this.bytes)
      return more < 0 || this.bytes <= room
    },
  }
}

interface Played {
  readonly endpoint?: Endpoint
  readonly fields?: Readonly<Record<string, unknown>>
  readonly room?: number
}

/** Plays the bytes of a reply, in pieces as a socket brings them. */
async function read(reply: string, { endpoint = TEXT_MODEL, fields = {}, room }: Played) {
  const held = counter(room)
  const sink = new EventCollector()
  const { run, handler, client, over } = startScripted(endpoint, sink, scriptedExchange(fields, held))
  const failed = over.then(
    () => null,
    (thrown: unknown) => thrown,
  )
  const bytes = Buffer.from(reply)
  for (let at = 0; at < bytes.length && !client.aborted; at += 65_536)
    handler.onData(bytes.subarray(at, at + 65_536))
  const beforeEnd = held.bytes
  if (!client.aborted) handler.onEnd()
  return { error: await failed, events: sink.events, held, beforeEnd, run, client }
}

const whole = (message: string, more = '') =>
  `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":${message}}}]${more}}`
const chunk = (delta: string, more = '') =>
  `data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":${delta}}]${more}}\n\n`
const END =
  'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)
const many = (parts: number) => `[${'{},'.repeat(parts - 1)}{}]`
const DEEP = { code: 'reply_too_large', message: 'The provider sent a value that is nested too deeply' }
const MANY = { code: 'reply_too_large', message: 'The provider sent a value with too many elements' }

t.test(
  'a whole reply that is nested too deeply or has too many parts is the fault of its provider',
  async t => {
    t.match((await read(whole('"hi"', `,"x":${nested(20_000)}`), {})).error, DEEP)
    t.match((await read('['.repeat(3_000_000), {})).error, DEEP)
    t.match((await read(whole('"hi"', `,"x":${many(300_000)}`), {})).error, MANY)
    t.equal((await read(whole('"hi"', `,"x":${nested(100)},"y":${many(100_000)}`), {})).error, null)
  },
)

t.test('so is a frame of a stream', async t => {
  const hello = chunk('{"content":"hi"}')
  t.match((await read(chunk('{}', `,"x":${nested(20_000)}`), {})).error, DEEP)
  t.match((await read(chunk('{}', `,"x":${many(210_000)}`), {})).error, MANY)
  t.equal((await read(`${chunk('{}', `,"x":${nested(100)}`)}${hello}${END}`, {})).error, null)
  const late = await read(hello + chunk('{}', `,"x":${nested(20_000)}`), {})
  t.match(late.events.at(-1), { type: 'response.failed', response: { error: { message: DEEP.message } } })
})

t.test('log probabilities, of which there are many, have bounds of their own', async t => {
  const probabilities = `,"x":${many(300_000)}`
  t.match((await read(whole('"hi"', probabilities), {})).error, MANY)
  const fields = { top_logprobs: 20 }
  t.equal((await read(whole('"hi"', probabilities), { fields })).error, null)
  t.equal((await read(whole(`"${'x'.repeat(5_000_000)}"`), { fields })).error, null)
})

t.test('only a model that draws may answer with many megabytes', async t => {
  const reply = whole(`"${'x'.repeat(5_000_000)}"`)
  t.match((await read(reply, {})).error, {
    code: 'reply_too_large',
    message: 'The provider sent a reply that is too large',
  })
  t.equal((await read(reply, { endpoint: IMAGE_MODEL })).error, null)
})

const SAID = chunk(`{"content":"${'x'.repeat(1_000)}"}`)

t.test('a stream that says more than its tokens can is ended as at its limit', async t => {
  const { error, events, client, run } = await read(SAID.repeat(1_300), {
    fields: { max_output_tokens: 100 },
  })
  t.equal(error, null)
  t.ok(client.aborted)
  const last = events.at(-1)
  t.match(last, {
    type: 'response.incomplete',
    response: { incomplete_details: { reason: 'max_output_tokens' }, output: [{ status: 'incomplete' }] },
  })
  t.ok(run.figures.outputCharacters > 1_048_576 && run.figures.outputCharacters < 1_048_576 + 65_536)
  t.equal(run.figures.usage, null, 'estimated by what was said')
})

t.test('as many characters as the tokens allow pass', async t => {
  const text = SAID.repeat(1_300) + END
  const some = await read(text, { fields: { max_output_tokens: 100_000 } })
  t.match(some.events.at(-1), { type: 'response.completed' })
  t.equal(some.run.figures.outputCharacters, 1_300_000)
  const unknown = await read(text, {})
  t.match(unknown.events.at(-1), { type: 'response.completed' })
  const bounded = await read(text, { endpoint: { ...TEXT_MODEL, maxOutputTokens: 4_096 } })
  t.match(bounded.events.at(-1), { type: 'response.incomplete' })
})

t.test('a relayed stream ends there too, with all that it said in its last event', async t => {
  const event = (type: string, fields: object) =>
    `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
  const item = { id: 'msg_1', type: 'message', role: 'assistant', status: 'in_progress', content: [] }
  const response = { id: 'resp_1', object: 'response', status: 'in_progress', output: [] }
  const part = { type: 'output_text', text: '', annotations: [] }
  const place = { item_id: 'msg_1', output_index: 0, content_index: 0 }
  const text = [
    event('response.created', { sequence_number: 0, response }),
    event('response.output_item.added', { sequence_number: 1, output_index: 0, item }),
    event('response.content_part.added', { sequence_number: 2, ...place, part }),
    ...Array.from({ length: 1_300 }, (_, at) =>
      event('response.output_text.delta', {
        sequence_number: 3 + at,
        ...place,
        delta: 'x'.repeat(1_000),
        logprobs: [],
      }),
    ),
  ].join('')
  const bytes = Buffer.from(text)
  const chunks = Array.from({ length: Math.ceil(bytes.length / 65_536) }, (_, at) =>
    bytes.subarray(at * 65_536, (at + 1) * 65_536),
  )
  const { events, error, sink } = await play(chunks, {
    format: 'openai-responses',
    fields: { max_output_tokens: 16 },
  })
  t.equal(error, null)
  t.ok(sink.relayed > 1_000, 'frames were relayed')
  const said = events.reduce((sum, one) => sum + String(one['delta'] ?? '').length, 0)
  t.match(events.at(-1), {
    type: 'response.incomplete',
    response: { output: [{ content: [{ text: /^x{1000}/ }] }] },
  })
  const [message] = (events.at(-1) as { response: { output: { content: { text: string }[] }[] } }).response
    .output
  t.equal(message?.content[0]?.text.length, said)
  t.same(
    events.map(one => one['sequence_number']),
    events.map((_, at) => at),
  )
})

t.test('what a stream has said counts, and so does half a frame', async t => {
  const said = await read(SAID.repeat(200), {})
  t.ok(said.beforeEnd > 380_000, `${said.beforeEnd} bytes`)
  const half = await read(`data: {"x":"${'x'.repeat(900_000)}`, {})
  t.ok(half.beforeEnd > 850_000, `${half.beforeEnd} bytes`)
  t.equal(half.held.bytes, 0, 'the reply failed')
  const call = `{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"${'x'.repeat(100_000)}"}}]}`
  t.ok((await read(chunk(call), {})).beforeEnd > 380_000)
})

t.test('what no decoder keeps does not count', async t => {
  const unknown = chunk('{"content":"x"}', `,"citations":["${'x'.repeat(2_000)}"]`)
  const { beforeEnd } = await read(unknown.repeat(200), {})
  t.ok(beforeEnd < 65_536, `${beforeEnd} bytes`)
})

t.test('a whole reply counts as it comes, and for its parts', async t => {
  const reply = whole('"hi"', `,"x":${many(100_000)}`)
  const { held, beforeEnd } = await read(reply, {})
  t.ok(beforeEnd > reply.length - 65_536)
  t.ok(held.most > 100_000 * 96)
})

t.test('a long request counts until the provider has answered', async t => {
  const held = counter()
  const input = 'x'.repeat(500_000)
  const exchange = scriptedExchange({ input }, held)
  const { over, run } = startScripted(TEXT_MODEL, new EventCollector(), exchange)
  t.ok(held.most > 500_000)
  t.equal(held.bytes, 0, 'its head has come')
  run.fail(new GatewayError('client_closed', 'over'))
  await t.rejects(over, { code: 'client_closed' })
})

t.test('a reply for which there is no room ends, and not by its provider', async t => {
  const { error, held, client } = await read(whole(`"${'x'.repeat(500_000)}"`), { room: 100_000 })
  t.match(error, { code: 'overloaded', status: 503, retryAfterSeconds: 1 })
  t.ok(client.aborted)
  t.equal(held.bytes, 0)
  const stream = await read(SAID.repeat(200), { room: 100_000 })
  t.match(stream.events.at(-1), { type: 'response.failed', response: { error_type: 'provider_overloaded' } })
  t.ok(stream.client.aborted)
})

t.test('an event may be as large as a whole reply, and repeat the request', t => {
  const reading = (endpoint: Endpoint) =>
    new ReplyReading(
      { format: FORMATS['openai-chat'], body: null, takeMessage: null, clock: systemClock },
      scriptedExchange(),
      scriptedRecord({ endpoint }),
      () => undefined,
    )
  const reader = reading(TEXT_MODEL)
  const plainBytes = reader.frameBytes
  t.ok(reading(IMAGE_MODEL).frameBytes > plainBytes, 'with an image')
  reader.countRequest('x'.repeat(100_000))
  t.equal(reader.frameBytes, plainBytes + 100_000)
  reader.head({ status: 200, headers: {} })
  t.equal(reader.frameBytes, plainBytes + 100_000, 'also once the provider answers')
  reader.drop({ fault: () => undefined })
  t.end()
})
