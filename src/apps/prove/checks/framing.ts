/** Checks of HTTP itself, byte by byte: connections, framing, and requests that two parsers might read differently. */
import {
  BASIS,
  byStatus,
  type Check,
  type CheckRow,
  type CheckVerdict,
  checksOf,
  fail,
  pass,
  skip,
  warn,
} from '../check.ts'
import type { RawConnection } from '../connection.ts'
import type { Dialect } from '../dialects.ts'
import { UNKNOWN_MODEL } from '../provider.ts'
import type { SeenReply } from '../raw-reply.ts'
import type { Tester } from '../tester.ts'

/** A path that costs nothing, whether it exists or not. */
const CHEAP_PATH = '/models'
/** Maximum wait for a reply that may not come. */
const QUIET_MS = 3_000
const HEADER_BYTES = 256 * 1024
const COMMON = { group: 'conformance', dialects: null, basis: BASIS.http1, sends: 1 } as const
const SMUGGLING_HARM =
  'behind a proxy that reads it differently, one client gets the answer meant for another'

/**
 * Requests that must be refused: a server that reads them differently than a proxy in front can be attacked through it.
 */
const MALFORMED_REQUESTS: readonly {
  readonly name: string
  readonly asserts: string
  readonly basis: string
  bytes(tester: Tester, dialect: Dialect): string
}[] = [
  {
    name: 'two-lengths',
    asserts: 'two different Content-Lengths are refused with 400',
    basis: `${BASIS.http1}, 6.3`,
    bytes: (tester, dialect) =>
      `${tester.head('POST', dialect.path)}Content-Length: 5\r\nContent-Length: 4\r\n\r\n{}   `,
  },
  {
    name: 'bad-length',
    asserts: 'a Content-Length that is not a number is refused with 400',
    basis: `${BASIS.http1}, 6.3`,
    bytes: (tester, dialect) => `${tester.head('POST', dialect.path)}Content-Length: 0x2\r\n\r\n{}`,
  },
  {
    name: 'bad-chunk',
    asserts: 'a chunk without a valid size is refused with 400',
    basis: `${BASIS.http1}, 7.1`,
    bytes: (tester, dialect) =>
      `${tester.head('POST', dialect.path)}Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n`,
  },
  {
    name: 'unknown-coding',
    asserts: 'an unknown Transfer-Encoding is refused with 400 or 501',
    basis: `${BASIS.http1}, 6.1`,
    bytes: (tester, dialect) =>
      `${tester.head('POST', dialect.path)}Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  },
  {
    name: 'no-host',
    asserts: 'a request without Host is refused with 400',
    basis: `${BASIS.http1}, 3.2`,
    bytes: tester => `${tester.head('GET', CHEAP_PATH).replace(/\r\nHost: [^\r]*/, '')}\r\n`,
  },
  {
    name: 'space-in-name',
    asserts: 'a header with a space before its colon is refused with 400',
    basis: `${BASIS.http1}, 5.1`,
    bytes: tester => `${tester.head('GET', CHEAP_PATH)}Content-Length : 0\r\n\r\n`,
  },
]

export const FRAMING_CHECKS: readonly Check[] = checksOf('framing', COMMON, [
  ...MALFORMED_REQUESTS.map(
    ({ bytes, ...row }): CheckRow => ({
      ...row,
      matters: SMUGGLING_HARM,
      async run(tester, dialect) {
        const connection = await tester.open()
        tester.sendRaw(connection, bytes(tester, dialect), 1)
        const reply = await connection.read({ silenceMs: QUIET_MS })
        if (reply === null) return unanswered(connection)
        if (reply.status < 400) return fail(`it was served: status ${reply.status}`)
        return byStatus(reply, reply.status === 501 || reply.status < 500)
      },
    }),
  ),
  {
    name: 'smuggling',
    asserts:
      'Content-Length together with Transfer-Encoding: at most one answer, and the connection is closed',
    matters: SMUGGLING_HARM,
    basis: `${BASIS.http1}, 6.1`,
    sends: 2,
    async run(tester, dialect) {
      const hidden = `${tester.head('GET', CHEAP_PATH)}\r\n`
      const body = `0\r\n\r\n${hidden}`
      const head = `${tester.head('POST', dialect.path)}Content-Length: ${body.length}\r\nTransfer-Encoding: chunked\r\n\r\n`
      const connection = await tester.open()
      tester.sendRaw(connection, head + body, 2)
      const first = await connection.read({ silenceMs: QUIET_MS })
      if (first === null) return unanswered(connection)
      const second = await connection.read({ silenceMs: QUIET_MS })
      if (second !== null)
        return fail(`the hidden request was served: ${first.status}, then ${second.status}`)
      return connection.isClosed
        ? pass(`${first.status}, closed`)
        : fail(`${first.status}, and the connection stays open`)
    },
  },
  {
    name: 'large-head',
    asserts: 'a head of 256 KiB is refused with 431 (or 400), and the server continues to work',
    matters: 'one client could take the memory that all others need',
    basis: 'RFC 6585, 5',
    weight: 'should',
    sends: 2,
    async run(tester) {
      const connection = await tester.open()
      tester.sendRaw(
        connection,
        `${tester.head('GET', CHEAP_PATH)}X-Large: ${'x'.repeat(HEADER_BYTES)}\r\n\r\n`,
        1,
      )
      const reply = await connection.read({ silenceMs: QUIET_MS }).catch(() => null)
      const after = await tester.request('GET', CHEAP_PATH, null)
      if (after.status >= 500) return fail(`the next request: status ${after.status}`)
      if (reply === null) return unanswered(connection)
      return byStatus(reply, reply.status >= 400 && reply.status < 500)
    },
  },
  {
    name: 'keep-alive',
    asserts: 'a connection serves a second request, or says Connection: close',
    matters: 'clients that reuse connections see resets, at random times',
    basis: `${BASIS.http1}, 9.3`,
    sends: 2,
    async run(tester) {
      const connection = await tester.open()
      const first = await tester.request('GET', CHEAP_PATH, null, { connection })
      if (closesConnection(first)) return pass('Connection: close')
      const second = await tester.request('GET', CHEAP_PATH, null, { connection })
      return second.status === first.status
        ? pass(`two answers, ${first.status}`)
        : fail(`${first.status}, then ${second.status}`)
    },
  },
  {
    name: 'pipelined',
    asserts: 'two requests in one write get two answers in order, or the connection is closed',
    matters: 'an answer goes to the wrong request',
    basis: `${BASIS.http1}, 9.3.2`,
    sends: 2,
    async run(tester) {
      const connection = await tester.open()
      const firstRequest = `${tester.head('GET', '/prove-no-such-path')}\r\n`
      const secondRequest = `${tester.head('GET', CHEAP_PATH)}\r\n`
      tester.sendRaw(connection, firstRequest + secondRequest, 2)
      const first = await connection.read()
      // Clients must repeat requests that a closed connection left unanswered.
      if (first === null)
        return connection.isClosed ? pass('the connection was closed: no pipelining here') : fail('no answer')
      if (closesConnection(first)) return pass(`${first.status}, Connection: close`)
      const second = await connection.read()
      return second === null
        ? fail(`only one answer: ${first.status}`)
        : pass(`${first.status}, then ${second.status}`)
    },
  },
  {
    name: 'split-request',
    asserts: 'a request that arrives in pieces, with its body in chunks, is read as one',
    matters: 'networks split requests anywhere',
    basis: `${BASIS.http1}, 7.1`,
    async run(tester, dialect) {
      const body = tester.body(dialect, { body: { model: UNKNOWN_MODEL } }, 'split')
      const chunks = pieces(body, 7).map(piece => `${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`)
      const bytes = `${tester.head('POST', dialect.path)}Transfer-Encoding: chunked\r\n\r\n${chunks.join('')}0\r\n\r\n`
      const connection = await tester.open()
      const [first = '', ...otherPieces] = pieces(bytes, 29)
      tester.sendRaw(connection, first, 1)
      for (const piece of otherPieces) {
        connection.send(piece)
        await new Promise(resolve => setImmediate(resolve))
      }
      const reply = await connection.read()
      if (reply === null) return fail('no answer')
      if (reply.status === 411) return skip('411: this server requires a Content-Length')
      return reply.status === 404 || reply.status === 400 ? notBadBody(reply) : fail(`status ${reply.status}`)
    },
  },
  {
    name: 'expect',
    asserts: 'Expect: 100-continue is answered with 100, or with a final status',
    matters: 'clients such as curl wait a second, or forever, before they send the body',
    basis: `${BASIS.http}, 10.1.1`,
    run: expectContinue,
  },
  {
    name: 'head',
    asserts: 'the answer to HEAD has no body',
    matters: 'the body is read as the answer to the next request',
    basis: `${BASIS.http}, 9.3.2`,
    sends: 2,
    async run(tester) {
      const connection = await tester.open()
      const first = await tester.request('HEAD', CHEAP_PATH, null, { connection })
      if (first.status >= 500) return fail(`status ${first.status}`)
      if (closesConnection(first)) return pass(`${first.status}, Connection: close`)
      const second = await tester.request('GET', CHEAP_PATH, null, { connection })
      return pass(`${first.status}, then ${second.status} on the same connection`)
    },
  },
])

/** The verdict if there was no refusal. */
function unanswered(connection: RawConnection): CheckVerdict {
  return connection.isClosed
    ? pass('the connection was closed')
    : warn('it was neither served nor refused: the connection just waits')
}

async function expectContinue(tester: Tester, dialect: Dialect): Promise<CheckVerdict> {
  const connection: RawConnection = await tester.open()
  const body = tester.body(dialect, { body: { model: UNKNOWN_MODEL } }, 'expect')
  const bytes = tester.bytes(dialect.path, body, 'Expect: 100-continue\r\n')
  const head = bytes.subarray(0, bytes.length - Buffer.byteLength(body))
  tester.sendRaw(connection, head.toString('latin1'), 1)
  let isBodyRequested = false
  const reply = await connection.read({
    silenceMs: QUIET_MS,
    onInterim: status => {
      if (status !== 100 || isBodyRequested) return
      isBodyRequested = true
      connection.send(body)
    },
  })
  if (reply !== null) return pass(isBodyRequested ? `100, then ${reply.status}` : `${reply.status}`)
  return fail(isBodyRequested ? 'no answer after 100' : 'neither 100 nor a final status')
}

function closesConnection(reply: SeenReply): boolean {
  return /\bclose\b/i.test(reply.headers.get('connection') ?? '')
}

/** The model is unknown, but the body was read. */
function notBadBody(reply: SeenReply): CheckVerdict {
  return /json|parse/i.test(reply.text) && !/model/i.test(reply.text)
    ? fail(`status ${reply.status}: the body was not understood`)
    : pass(`${reply.status}`)
}

function pieces(text: string, length: number): string[] {
  return Array.from({ length: Math.ceil(text.length / length) }, (_, index) =>
    text.slice(index * length, (index + 1) * length),
  )
}
