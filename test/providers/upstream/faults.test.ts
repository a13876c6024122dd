import tap, { type Test } from 'tap'
import { TRANSPORTS } from '../../../src/protocol/provider.ts'
import { FAULTS, REFUSALS, refusedUrl, reply } from '../../support/fault-server.ts'
import {
  GONE,
  HEADERS_MS,
  IDLE_MS,
  LATE,
  Notes,
  type SetUpOptions,
  serve,
  setUp as setUpBy,
  turns,
} from './calls.ts'

type Expectation = readonly [seen: readonly string[], message: string | null]
const LOST = 'The connection to the provider was lost'
const NOT_HTTP = 'The provider sent a reply that is not valid HTTP'
const WRONG_LENGTH = 'The provider sent a reply of the wrong length'
const SLOW = 'The provider did not answer in time'
const STOPPED = 'The provider stopped sending'
const LARGE_HEADERS = 'The provider sent headers that are too large'

const EXPECTED: ReadonlyMap<string, Expectation> = new Map<string, Expectation>([
  ['RST instead of an answer', [[GONE], LOST]],
  ['FIN instead of an answer', [[GONE], LOST]],
  ['FIN inside the headers', [[GONE], LOST]],
  ['garbage instead of HTTP', [[GONE], NOT_HTTP]],
  ['a TLS alert instead of HTTP', [[GONE], NOT_HTTP]],
  ['no headers', [[LATE], SLOW]],
  ['half the headers', [[LATE], SLOW]],
  ['interim replies and nothing else', [[LATE], SLOW]],
  // HTTP wants it skipped.
  ['100 Continue that nobody asked for', [['head 200', 'data', 'end'], null]],
  ['101 Switching Protocols', [[GONE], LOST]],
  ['Content-Length and Transfer-Encoding', [[GONE], WRONG_LENGTH]],
  ['two different Content-Lengths', [[GONE], WRONG_LENGTH]],
  ['20 KB of headers', [[GONE], LARGE_HEADERS]],
  ['2000 long headers', [[GONE], LARGE_HEADERS]],
  ['a gzip body', [[GONE], 'The provider sent a compressed reply that was not asked for']],
  ['head and then silence', [['head 200', LATE], STOPPED]],
  ['head and then RST', [['head 200', GONE], LOST]],
  ['a bad first chunk size', [['head 200', GONE], NOT_HTTP]],
  ['RST inside the body', [['head 200', 'data', GONE], LOST]],
  ['silence inside the body', [['head 200', 'data', LATE], STOPPED]],
  ['a chunked body cut at a chunk border', [['head 200', 'data', GONE], LOST]],
  ['a chunked body cut inside a chunk', [['head 200', 'data', GONE], LOST]],
  ['a sized body cut', [['head 200', 'data', GONE], LOST]],
  ['a sized body reset', [['head 200', 'data', GONE], LOST]],
  ['a bad chunk size', [['head 200', 'data', GONE], NOT_HTTP]],
  ['a chunk longer than its size', [['head 200', 'data', GONE], NOT_HTTP]],
  ['a body without end', [['head 200', 'data', GONE], 'The provider sent a reply that is too large']],
  // What HTTP cannot tell from a whole reply; the decoder above has to miss the finish.
  ['an unsized body cut', [['head 200', 'data', 'end'], null]],
  ['a clean end in the middle of the reply', [['head 200', 'data', 'end'], null]],
])

/** Faults that undici tells in another way; each has its line in the table of differences. */
const BY_UNDICI: ReadonlyMap<string, Expectation> = new Map<string, Expectation>([
  ['100 Continue that nobody asked for', [[GONE], LOST]],
])

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    const setUp = (t: Test, options?: SetUpOptions) => setUpBy(t, options, by)
    t.test('every fault of an upstream ends in one known way', async t => {
      t.same(
        [...EXPECTED.keys()].sort(),
        FAULTS.map(fault => fault.name).sort(),
        'no fault without an expectation',
      )
      for (const fault of FAULTS) {
        const told = by === 'undici' ? BY_UNDICI.get(fault.name) : undefined
        const [seen, message] = told ?? EXPECTED.get(fault.name) ?? [[], null]
        await t.test(`${fault.when} the first byte: ${fault.name}`, async t => {
          const { clock, client, request, ask } = setUp(t)
          const server = await serve(t, fault.first)
          const arrived = server.next()
          const notes = new Notes()
          client.start(request(server.url()), notes)
          const answering = await arrived
          if (fault.when === 'after') await notes.data
          else if (seen.includes('head 200')) await notes.head
          fault.second?.(answering)
          if (fault.silent === true) {
            const lastMs = seen.includes('head 200') ? IDLE_MS : HEADERS_MS
            await turns(20)
            clock.advance(lastMs - 1)
            t.equal(notes.seen.includes(LATE), false, 'not a moment too early')
            clock.advance(1)
          }
          await notes.ended
          t.same(notes.seen, seen)
          t.equal(notes.error?.message ?? null, message)
          // A reply that counts as whole leaves its connection open for the next one.
          if (message !== null) await answering.closed
          // The one that closes a kept connection in the end.
          t.ok(clock.armed <= (message === null ? 1 : 0), 'no timer is left')

          server.answer = answering => answering.send(reply(200, '{"next":true}'))
          const next = await ask(server.url())
          t.same(
            [next.seen, next.bytes.toString()],
            [['head 200', 'data', 'end'], '{"next":true}'],
            'the next call is clean',
          )
          await turns(5)
          t.same(notes.seen, seen, 'nothing came afterwards')
        })
      }
    })

    t.test('what cannot be reached', async t => {
      const { ask, clock, client, request } = setUp(t)
      t.test('nobody listens', async t => {
        const notes = await ask(await refusedUrl())
        t.same(notes.seen, [GONE])
        t.equal(notes.error?.message, 'The provider could not be reached')
        t.notMatch(notes.error?.message, /127|ECONN/)
      })
      t.test('a name that does not exist', async t => {
        const notes = await ask(new URL('http://does-not-exist.invalid/v1'))
        t.same(notes.seen, [GONE])
        t.equal(notes.error?.message, 'The provider could not be reached')
      })
      t.test('plain HTTP where TLS is expected', async t => {
        const server = await serve(t, answering => answering.send(reply(200, '{}')))
        server.answer = () => undefined
        const url = server.url()
        const notes = new Notes()
        client.start(request(new URL(`https://127.0.0.1:${url.port}/`)), notes)
        clock.advance(10_000)
        await notes.ended
        t.same(notes.seen, [LATE])
        t.equal(notes.error?.message, 'The provider could not be reached in time')
        t.same(server.requests, [])
      })
      t.test(
        'a handshake that hangs is cut at the connect timeout, not at the longer one of the headers',
        async t => {
          const server = await serve(t, () => undefined)
          const notes = new Notes()
          client.start(request(new URL(`https://127.0.0.1:${server.port}/`)), notes)
          while (server.accepted === 0) await turns(1)
          clock.advance(9_999)
          t.same(notes.seen, [])
          clock.advance(1)
          t.same(notes.seen, [LATE])
          // Its socket is closed.
          while (server.sockets.size > 0) await turns(1)
        },
      )
    })

    t.test('replies that only mean a failure are passed on as they are', async t => {
      const { ask } = setUp(t)
      const server = await serve(t, () => undefined)
      for (const [name, status] of [
        ['redirect', 302],
        ['unauthorized', 401],
        ['rateLimited', 429],
        ['overloaded', 529],
        ['unknownStatus', 999],
      ] as const) {
        server.answer = REFUSALS[name]
        const notes = await ask(server.url())
        t.equal(notes.seen[0], `head ${status}`, name)
        t.equal(notes.seen.at(-1), 'end')
        if (name === 'rateLimited') t.equal((await notes.head).headers['retry-after'], '7')
      }
      t.equal(server.requests.length, 5, 'no redirect was followed and nothing was retried')
    })
  })
}
