/** Replies that are read on after their caller has left: how many, how long, and how much. */
import { getEventListeners } from 'node:events'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { Exchange } from '../../../src/exchange/exchange.ts'
import { FinalSink } from '../../../src/pipeline/answer/sink.ts'
import {
  AbandonedReplies,
  AbandonedTarget,
  READING_BOUNDS,
} from '../../../src/pipeline/turn/abandoned-replies.ts'
import { someKey } from '../../storage/records.ts'
import {
  scriptedContext,
  scriptedEndpoint,
  scriptedExchange,
  startScripted,
} from '../../support/scripted-attempt.ts'

const key = (hash: string) => someKey({ hash })

t.test('of replies that are read to their end a key has sixteen, and a thread sixty-four', async t => {
  const replies = new AbandonedReplies()
  const ends = Array.from({ length: 17 }, () => () => undefined)
  t.same(
    ends.map(end => replies.enter(end, key('a'))),
    ends.map((_, at) => at < 16),
  )
  const [first = () => undefined] = ends
  const last = ends[16] ?? first
  t.equal(replies.enter(last, null), true, 'those that end soon need no place')
  replies.leave(last)
  replies.leave(first)
  t.equal(replies.enter(last, key('a')), true, 'each leaves its place')
  const others = Array.from({ length: 49 }, () => () => undefined)
  t.same(
    others.map((end, at) => replies.enter(end, key(`other ${at % 12}`))),
    others.map((_, at) => at < 48),
  )
  t.equal(replies.count, 64)
})

t.test('a reply that is read on is closed when it brings too many bytes', async t => {
  const leave = new AbortController()
  const { clientRequest } = scriptedExchange({ stream: false })
  const exchange = new Exchange({ ...clientRequest, context: scriptedContext({ signal: leave.signal }) }, 1)
  const endpoint = scriptedEndpoint('openai-chat')
  const { client, handler, over } = startScripted(
    { ...endpoint, provider: { ...endpoint.provider, onAbort: 'drain' } },
    new FinalSink(),
    exchange,
  )
  const failed = t.rejects(over, { code: 'client_closed' })
  leave.abort(new GatewayError('client_closed', 'left'))
  t.equal(client.aborted, false)
  const most = READING_BOUNDS.drain?.maxBytes ?? 0
  handler.onData(Buffer.alloc(most, ' '))
  t.equal(client.aborted, false)
  handler.onData(Buffer.alloc(1, ' '))
  t.equal(client.aborted, true)
  await failed
})

t.test('a reply that is read on to its end leaves its place, and nothing waits for its caller', async t => {
  const leave = new AbortController()
  const { clientRequest } = scriptedExchange({ stream: false })
  const exchange = new Exchange({ ...clientRequest, context: scriptedContext({ signal: leave.signal }) }, 1)
  const endpoint = scriptedEndpoint('openai-chat')
  const { run, handler, abandoned, over } = startScripted(
    { ...endpoint, provider: { ...endpoint.provider, onAbort: 'drain' } },
    new FinalSink(),
    exchange,
  )
  t.equal(getEventListeners(leave.signal, 'abort').length, 1)
  leave.abort(new GatewayError('client_closed', 'left'))
  t.equal(abandoned.count, 1)
  const choice = { index: 0, message: { role: 'assistant', content: 'word' }, finish_reason: 'stop' }
  const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }
  handler.onData(
    Buffer.from(JSON.stringify({ id: 'c', object: 'chat.completion', choices: [choice], usage })),
  )
  handler.onEnd()
  await over
  t.match(run.figures.usage, { inputTokens: 1, outputTokens: 2 })
  t.equal(abandoned.count, 0)
  t.equal(getEventListeners(leave.signal, 'abort').length, 0)
})

t.test('of a reply that nobody reads the next word is the last, and an empty one is none', t => {
  let ends = 0
  const nothing = () => undefined
  const target = { sink: null, receive: nothing, message: nothing, end: nothing, close: nothing }
  const left = new AbandonedTarget(target, () => void ends++)
  left.receive({ kind: 'text', item: 0, part: 0, text: '', logprobs: null })
  t.equal(ends, 0)
  left.receive({ kind: 'text', item: 0, part: 0, text: ' ', logprobs: null })
  t.equal(ends, 1)
  t.end()
})
