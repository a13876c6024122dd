/** Replies that are read on after their caller has left: how many, how long, and how much. */
import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { AbandonedReplies, READING_ON } from '../../src/gateway/abandoned-replies.ts'
import { FinalSink } from '../../src/gateway/answer/sink.ts'
import { Exchange } from '../../src/gateway/exchange.ts'
import { scriptedEndpoint, scriptedExchange, startScripted } from '../support/scripted-attempt.ts'

t.test(
  'of replies that are read to their end a thread has sixty-four, and each leaves its place',
  async t => {
    const replies = new AbandonedReplies()
    const ends = Array.from({ length: 65 }, () => () => undefined)
    t.same(
      ends.map(end => replies.enter(end, true)),
      ends.map((_, at) => at < 64),
    )
    const [first = () => undefined, last = () => undefined] = [ends[0], ends[64]]
    t.equal(replies.enter(last, false), true, 'those that end soon need none')
    replies.leave(last)
    replies.leave(first)
    t.equal(replies.enter(last, true), true)
    t.equal(replies.count, 64)
  },
)

t.test('a reply that is read on is closed when it brings too many bytes', async t => {
  const leave = new AbortController()
  const asked = scriptedExchange({ stream: false })
  const exchange = new Exchange({ ...asked, signal: leave.signal }, 1)
  const endpoint = scriptedEndpoint('openai-chat')
  const { client, handler, over } = startScripted(
    { ...endpoint, provider: { ...endpoint.provider, onAbort: 'drain' } },
    new FinalSink(),
    exchange,
  )
  const failed = t.rejects(over, { code: 'client_closed' })
  leave.abort(new GatewayError('client_closed', 'left'))
  t.equal(client.aborted, false)
  const most = READING_ON.drain?.maxBytes ?? 0
  handler.onData(Buffer.alloc(most, ' '))
  t.equal(client.aborted, false)
  handler.onData(Buffer.alloc(1, ' '))
  t.equal(client.aborted, true)
  await failed
})
