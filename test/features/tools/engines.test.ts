/** Engines over real sockets: keys, failures, deadlines, and what is kept of their results. */
import { createServer, type RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import type { SearchEngineRow } from '../../../src/features/tools/settings.ts'
import { createAdmits } from '../../../src/features/tools/web/domains.ts'
import type { SearchQuery } from '../../../src/features/tools/web/engine.ts'
import { WebEngines } from '../../../src/features/tools/web/engines.ts'
import { createTransports } from '../../../src/providers/upstream/egress.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'

const KEY = 'key-that-must-not-be-seen'
const QUERY: SearchQuery = {
  query: 'tea',
  mode: null,
  maxResults: 3,
  maxChars: 20,
  allowedDomains: [],
  excludedDomains: [],
  location: null,
  publishedAfter: null,
  publishedBefore: null,
}
const ALL = createAdmits([], [])
const NO_PROXIES = { https: null, http: null, exceptions: null }
const live = () => new AbortController().signal
const terms = (signal = live(), keyHash = 'one') => ({ keyHash, signal })

async function start(t: Test, listener: RequestListener, row: Partial<SearchEngineRow> = {}) {
  const asked: { path: string; headers: NodeJS.Dict<string | string[]> }[] = []
  const server = createServer((request, response) => {
    asked.push({ path: request.url ?? '', headers: request.headers })
    listener(request, response)
  })
  const { port } = await listening(server, t)
  const clock = new TestClock()
  const client = createTransports({ clock, log: { fault: () => undefined }, proxies: NO_PROXIES })
  t.teardown(() => client.close())
  const baseUrl = `http://127.0.0.1:${port}/base/`
  const engines = new WebEngines({
    client,
    clock,
    engines: [{ name: 'own', kind: 'exa', baseUrl, apiKey: KEY, ...row }],
    byDefault: null,
    timeoutMs: 5_000,
  })
  const engine = engines.byDefault
  if (engine === null) throw new Error('no engine')
  return { engines, engine, asked, clock }
}

const answer =
  (status: number, body: string): RequestListener =>
  (_request, response) => {
    response.writeHead(status, { 'content-type': 'application/json' })
    response.end(body)
  }
const results = (...found: unknown[]) => JSON.stringify({ results: found })

t.test('results are kept with a web address alone, once each, clean, and as many as asked', async t => {
  const body = results(
    { url: 'https://a.test/1', title: 'A\u0000\n title', text: `x\u202e${'y'.repeat(50)}` },
    { url: 'https://a.test/1', title: 'again', text: '' },
    { url: 'javascript:alert(1)', title: 'no', text: '' },
    { url: 'file:///etc/passwd', title: 'no', text: '' },
    { url: 'https://user:pw@a.test/', title: 'no', text: '' },
    { url: `https://a.test/${'x'.repeat(3_000)}`, title: 'long', text: '' },
    { url: 'https://spam.test/', title: 'refused', text: '' },
    { url: 'https://b.test', title: '', text: 'b', publishedDate: '2026-01-01\u0007' },
    { url: 'https://c.test', title: 'c', text: 'c' },
    { url: 'https://d.test', title: 'one too many', text: 'd' },
  )
  const { engines, engine, asked } = await start(t, answer(200, body))
  const found = await engines.search(engine, QUERY, createAdmits([], ['spam.test']), terms())
  t.same(found.results, [
    { title: 'A title', url: 'https://a.test/1', text: `x${'y'.repeat(19)}` },
    { title: 'b.test', url: 'https://b.test/', text: 'b', publishedAt: '2026-01-01' },
    { title: 'c', url: 'https://c.test/', text: 'c' },
  ])
  t.equal(found.cost, 7_000_000_000)
  t.equal(asked[0]?.path, '/base/search')
  t.equal(asked[0]?.headers['x-api-key'], KEY)
})

t.test('prices of the configuration win', async t => {
  const { engines, engine } = await start(t, answer(200, results()), { searchPrice: '0.5' })
  t.equal((await engines.search(engine, QUERY, ALL, terms())).cost, 500_000_000_000)
})

const FAILURES: Readonly<Record<string, [RequestListener, RegExp]>> = {
  'a wrong key': [
    answer(401, `{"error":"bad ${KEY}"}`),
    /^the own engine answered 401: it does not accept its apiKey$/,
  ],
  'a fault': [answer(500, KEY), /^the own engine answered 500$/],
  'a redirect': [
    (_request, response) => response.writeHead(302, { location: 'http://127.0.0.1:9/' }).end(),
    /^the own engine answered 302$/,
  ],
  'no JSON': [answer(200, '<html>'), /^the reply of the own engine cannot be read$/],
  'another JSON': [answer(200, '{"hits":[]}'), /^the reply of the own engine cannot be read$/],
  'a hang-up': [(request, _response) => request.socket.destroy(), /^the own engine cannot be reached$/],
  'too much': [
    (_request, response) => {
      response.writeHead(200)
      const more = (): void => {
        while (response.write(Buffer.alloc(65_536, 0x20))) if (response.destroyed) return
        response.once('drain', more)
      }
      more()
    },
    /^the own engine cannot be reached$/,
  ],
}

t.test('failures name engine and cause, and never the key', async t => {
  for (const [name, [listener, message]] of Object.entries(FAILURES)) {
    const { engines, engine } = await start(t, listener)
    const error = await engines.search(engine, QUERY, ALL, terms()).then(
      () => new Error('no failure'),
      (thrown: Error) => thrown,
    )
    t.match(error.message, message, name)
    t.notMatch(`${error.message} ${error.stack}`, KEY, name)
  }
})

t.test('a slow engine ends at the deadline, and a caller who leaves ends the call', async t => {
  const arrival = Promise.withResolvers<void>()
  const { engines, engine, clock } = await start(t, (_request, response) => {
    response.writeHead(200).write('{')
    arrival.resolve()
  })
  const late = engines.search(engine, QUERY, ALL, terms())
  const outcome = t.rejects(late, { message: 'the own engine did not answer in time' })
  await arrival.promise
  clock.advance(5_000)
  await outcome
  const leaving = new AbortController()
  const left = engines.search(engine, QUERY, ALL, terms(leaving.signal))
  const gone = new Error('gone')
  const ended = t.rejects(left, gone)
  leaving.abort(gone)
  await ended
})

t.test(
  'a key asks sixteen times at once, another one beside it, and who waits too long is refused',
  async t => {
    const waiting: (() => void)[] = []
    let arrived: () => void = () => undefined
    const { engines, engine, clock } = await start(t, (_request, response) => {
      waiting.push(() => response.end(results()))
      arrived()
    })
    const until = async (count: number) => {
      while (waiting.length < count) await new Promise<void>(done => (arrived = done))
    }
    const search = (keyHash: string) =>
      engines.search(engine, QUERY, ALL, terms(live(), keyHash)).then(
        ({ results }) => results.length,
        (thrown: Error) => thrown.message,
      )
    const slow = Array.from({ length: 20 }, () => search('slow'))
    await until(16)
    const other = search('other')
    await until(17)
    waiting[16]?.()
    t.type(await other, 'number', 'it has a place at once')
    waiting[0]?.()
    t.type(await slow[0], 'number')
    await until(18)
    clock.advance(5_000)
    const ended = await Promise.all(slow.slice(1))
    t.equal(ended.filter(each => each === 'too many searches are running').length, 3)
    t.equal(ended.filter(each => each === 'the own engine did not answer in time').length, 16)
    await t.rejects(engines.search(engine, QUERY, ALL, terms(AbortSignal.abort(new Error('gone')))), {
      message: 'gone',
    })
  },
)

t.test('requests name a kind of engine, and the operator the default', async t => {
  const row = (name: string, kind: SearchEngineRow['kind']) => ({ name, kind, baseUrl: 'http://x.test' })
  const { engines } = await start(t, answer(200, ''))
  const of = (byDefault: string | null) =>
    new WebEngines({
      client: {
        start: () => {
          throw new Error('not asked')
        },
        close: async () => undefined,
      },
      clock: new TestClock(),
      engines: [row('one', 'exa'), row('other', 'searxng'), row('two', 'exa')],
      byDefault,
      timeoutMs: 1,
    })
  t.equal(of(null).byDefault?.name, 'one')
  t.equal(of('two').byDefault?.name, 'two')
  t.equal(of('two').engineNamed('exa')?.name, 'one')
  t.equal(engines.engineNamed('exa')?.name, 'own')
  t.equal(engines.engineNamed('parallel'), null)
})
