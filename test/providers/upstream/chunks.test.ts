/** How a server cuts its reply into chunks, which both transports, pages and MCP servers are read from alike. */
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { REPLY_PIECES } from '../../../src/base/fairness/short-chunks.ts'
import { TRANSPORTS } from '../../../src/protocol/provider.ts'
import { createPageFetcher, resolverOf } from '../../../src/providers/upstream/pages/fetch-page.ts'
import { openServiceFetch } from '../../../src/providers/upstream/pages/service-fetch.ts'
import { ReadTurns } from '../../../src/providers/upstream/read-turns.ts'
import { chunk, STREAM_HEAD } from '../../support/fault-server.ts'
import { Notes, serve, setUp, turns } from './calls.ts'

const END = '0\r\n\r\n'
const { freePieces, minMeanBytes } = REPLY_PIECES
const OPEN = { allowHttp: true, allowPrivate: true }

/** A body in chunks of so many bytes, more of them than may have any length. */
const bodyIn = (bytes: number): string => chunk('x'.repeat(bytes)).repeat(freePieces + 100)

for (const by of TRANSPORTS) {
  t.test(`${by}: chunks that arrive together go on together`, async t => {
    const { client, request } = setUp(t, {}, by)
    const letters = [...'abcdefghijklmnopqrstuvwxyz']
    const server = await serve(t, answering => answering.send(`${STREAM_HEAD}${letters.map(chunk).join('')}`))
    const arrived = server.next()
    const notes = new Notes()
    const parts: string[] = []
    client.start(
      request(server.url()),
      Object.assign(notes, { onData: (bytes: Buffer) => parts.push(bytes.toString()) }),
    )
    const answering = await arrived
    while (parts.join('').length < letters.length) await turns(1)
    t.ok(parts.length <= 3, `${parts.length} parts`)
    answering.send(chunk('!'), END)
    await notes.ended
    t.equal(parts.join(''), `${letters.join('')}!`)
  })

  t.test(`${by}: a paused call gets its last chunks and its end after it resumes`, async t => {
    const { client, request } = setUp(t, {}, by)
    const server = await serve(t, answering => answering.send(STREAM_HEAD, chunk('a')))
    const arrived = server.next()
    const notes = new Notes()
    let text = ''
    const call = client.start(
      request(server.url()),
      Object.assign(notes, {
        onData: (bytes: Buffer) => {
          text += bytes.toString()
          call.pause()
        },
      }),
    )
    const answering = await arrived
    while (text === '') await turns(1)
    answering.send(chunk('b'), chunk('c'), END)
    await turns(20)
    t.equal(text, 'a')
    t.same(notes.seen, ['head 200'])
    while (notes.seen.at(-1) !== 'end') {
      call.resume()
      await turns(1)
    }
    t.equal(text, 'abc')
  })

  t.test(`${by}: a reply in many chunks of a few bytes is refused`, async t => {
    const { client, request } = setUp(t, {}, by)
    const server = await serve(t, answering => answering.send(STREAM_HEAD, bodyIn(minMeanBytes - 1), END))
    const notes = new Notes()
    client.start(request(server.url()), Object.assign(notes, { onData: () => undefined }))
    await notes.ended
    t.match(notes.error, {
      code: 'provider_unavailable',
      message: 'The provider sent a reply in chunks that are too small',
    })
  })

  t.test(`${by}: a reply in many chunks that are a little longer is read`, async t => {
    const { client, request } = setUp(t, {}, by)
    const server = await serve(t, answering => answering.send(STREAM_HEAD, bodyIn(minMeanBytes + 1), END))
    const notes = new Notes()
    let length = 0
    client.start(
      request(server.url()),
      Object.assign(notes, {
        onData: (bytes: Buffer) => {
          length += bytes.length
        },
      }),
    )
    await notes.ended
    t.equal(length, (freePieces + 100) * (minMeanBytes + 1))
  })
}

t.test('a page in many chunks of a few bytes is refused', async t => {
  const server = await serve(t, answering =>
    answering.send(
      'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n',
      bodyIn(1),
      END,
    ),
  )
  const fetchPage = createPageFetcher({ ...OPEN, clock: systemClock, maxBytes: 1_000_000, timeoutMs: 60_000 })
  const signal = new AbortController().signal
  await t.rejects(fetchPage(server.url().href, { types: ['text/plain'], signal, key: 'one' }), {
    fault: 'refused',
    message: 'the link answers in chunks that are too small',
  })
})

t.test('an answer to a checked fetch in many chunks of a few bytes is refused', async t => {
  const server = await serve(t, answering => answering.send(STREAM_HEAD, bodyIn(1), END))
  const terms = {
    url: server.url(),
    headers: {},
    turns: new ReadTurns(),
    maxRequests: 1,
    maxReplyBytes: 1_000_000,
    maxBytes: 1_000_000,
  }
  const network = await openServiceFetch(OPEN, resolverOf(OPEN), terms, new AbortController().signal)
  t.teardown(() => network.close())
  const reply = await network.fetch(server.url(), { method: 'POST', body: '{}' })
  await t.rejects(reply.text(), {
    fault: 'refused',
    message: 'the server answered in chunks that are too small',
  })
})
