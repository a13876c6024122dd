/** A request on a kept connection that its provider closes as the request comes goes out once more, and only then. */
import tap, { type Test } from 'tap'
import { TRANSPORTS, type TransportName } from '../../../src/protocol/provider.ts'
import { type Answering, chunk, reply, STREAM_HEAD } from '../../support/fault-server.ts'
import { GONE, Notes, serve, setUp, turns } from './calls.ts'

const LOST = 'The connection to the provider was lost'

/** A provider with one kept connection, on which the second request is ended by `fault`. */
async function start(t: Test, by: TransportName, fault: (answering: Answering) => void) {
  let replays = 0
  const parts = setUp(t, { onReplay: () => replays++ }, by)
  const server = await serve(t, answering => answering.send(reply(200, '{"n":1}')))
  t.same((await parts.ask(server.url())).seen, ['head 200', 'data', 'end'])
  await turns(3)
  server.answer = answering => {
    if (server.requests.length === 2) fault(answering)
    else answering.send(reply(200, `{"n":${server.requests.length}}`))
  }
  return { ...parts, server, replays: () => replays }
}

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    for (const ending of ['reset', 'end'] as const) {
      t.test(`a request that crosses the close of its connection is sent again: ${ending}`, async t => {
        const { ask, server, replays } = await start(t, by, answering => answering[ending]())
        const notes = await ask(server.url(), { body: '{"text":"again"}' })
        t.same([notes.seen, notes.bytes.toString()], [['head 200', 'data', 'end'], '{"n":3}'])
        t.same([server.accepted, replays()], [2, 1], 'on a connection of its own, and counted')
        t.same(server.requests[2]?.body, '{"text":"again"}')
        t.same((await ask(server.url())).seen, ['head 200', 'data', 'end'])
      })
    }
    t.test('a second break is final', async t => {
      const { ask, server, replays } = await start(t, by, answering => answering.reset())
      server.answer = answering => answering.reset()
      const notes = await ask(server.url())
      t.same([notes.seen, notes.error?.message, server.requests.length, replays()], [[GONE], LOST, 3, 1])
    })
    t.test('a break on a fresh connection is final', async t => {
      let replays = 0
      const { ask } = setUp(t, { onReplay: () => replays++ }, by)
      const server = await serve(t, answering => answering.reset())
      t.same([(await ask(server.url())).seen, server.requests.length, replays], [[GONE], 1, 0])
    })
    t.test('a break after bytes is final, also after a part of the head', async t => {
      for (const bytes of ['HTTP/1.1 20', 'HTTP/1.1 200 OK\r\n', STREAM_HEAD, STREAM_HEAD + chunk('a')]) {
        const { ask, server, replays } = await start(t, by, answering => {
          answering.send(bytes)
          answering.end()
        })
        const notes = await ask(server.url())
        t.same([notes.seen.at(-1), server.requests.length, replays()], [GONE, 2, 0], JSON.stringify(bytes))
      }
    })
    t.test('a break later than a round trip is final: the provider may have begun to work', async t => {
      for (const [waitMs, seen, sent] of [
        [50, 'end', 3],
        [51, GONE, 2],
      ] as const) {
        const { client, clock, request, server } = await start(t, by, () => undefined)
        const arrived = server.next()
        const notes = new Notes()
        client.start(request(server.url()), notes)
        const answering = await arrived
        clock.advance(waitMs)
        answering.reset()
        await notes.ended
        t.same([notes.seen.at(-1), server.requests.length], [seen, sent], `${waitMs} ms`)
      }
    })
    t.test('an abort ends it before it goes out again', async t => {
      const { client, request, server, replays } = await start(t, by, () => undefined)
      const arrived = server.next()
      const notes = new Notes()
      const call = client.start(request(server.url()), notes)
      const answering = await arrived
      answering.reset()
      call.abort()
      await answering.closed
      await turns(20)
      t.same([notes.seen, server.requests.length, replays()], [[], 2, 0])
    })
  })
}

tap.test('a request of more than 256 KiB is not held to be sent again', async t => {
  const { ask, server, replays } = await start(t, 'direct', answering => answering.reset())
  const notes = await ask(server.url(), { body: 'x'.repeat(256 * 1024) })
  t.same([notes.seen, replays()], [[GONE], 0])
})
