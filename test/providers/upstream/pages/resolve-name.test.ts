/** Names whose servers never answer: what they hold, and who has to wait for them. */
import { createSocket } from 'node:dgram'
import t, { type Test } from 'tap'
import { createPageFetcher, PageError } from '../../../../src/providers/upstream/pages/fetch-page.ts'
import {
  type Address,
  createServerLookup,
  createSystemLookup,
  QueueTimeout,
} from '../../../../src/providers/upstream/pages/resolve-name.ts'
import { turns } from '../../../support/raw-http.ts'
import { TestClock } from '../../../support/test-clock.ts'

const FOUND: readonly Address[] = [{ address: '127.0.0.1', family: 4 }]
const TYPES = { A: 1, AAAA: 28 } as const
const live = () => new AbortController().signal

/** A lookup whose answers the test gives when it likes. */
function pending() {
  const asked: string[] = []
  const answers: ((found: readonly Address[]) => void)[] = []
  const ask = (name: string): Promise<readonly Address[]> => {
    asked.push(name)
    return new Promise(resolve => answers.push(resolve))
  }
  return { ask, asked, answers }
}

/** A DNS server with one question's answers by type; null: it never says a word. */
async function serve(t: Test, records: Readonly<Record<number, readonly (readonly number[])[]>> | null) {
  const socket = createSocket('udp4')
  let asked = 0
  let all: () => void = () => undefined
  const both = new Promise<void>(done => (all = done))
  socket.on('message', (question, { port, address }) => {
    if (++asked === 2) all()
    if (records === null) return
    const end = question.indexOf(0, 12) + 5
    const type = question.readUInt16BE(end - 4)
    const found = records[type] ?? []
    const head = Buffer.from(question.subarray(0, 12))
    head.writeUInt16BE(0x8180, 2)
    head.writeUInt16BE(found.length, 6)
    head.writeUInt32BE(0, 8)
    const answers = found.map(bytes => {
      const record = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 60, 0, bytes.length])
      return Buffer.concat([record, Buffer.from(bytes)])
    })
    socket.send(Buffer.concat([head, question.subarray(12, end), ...answers]), port, address)
  })
  await new Promise<void>(done => socket.bind(0, '127.0.0.1', done))
  t.teardown(() => void socket.close())
  return { servers: [`127.0.0.1:${socket.address().port}`], both, count: () => asked }
}

t.test(
  'a lookup that never ends keeps others from beginning, whether or not anybody waits for it',
  async t => {
    const { ask, asked, answers } = pending()
    const resolve = createSystemLookup(ask)
    const leaving = new AbortController()
    const first = resolve('slow.test', leaving.signal)
    const gone = new Error('gone')
    leaving.abort(gone)
    await t.rejects(first, gone)
    const late = new AbortController()
    const second = resolve('second.test', late.signal)
    const third = resolve('third.test', live())
    late.abort()
    await t.rejects(second, QueueTimeout)
    t.same(asked, ['slow.test'])
    answers[0]?.([])
    while (asked.length < 2) await new Promise(setImmediate)
    t.same(asked, ['slow.test', 'third.test'])
    answers[1]?.(FOUND)
    t.same(await third, FOUND)
    const fourth = resolve('fourth.test', live())
    t.equal(asked.length, 3, 'nobody is before it')
    answers[2]?.(FOUND)
    t.same(await fourth, FOUND)
    await t.rejects(resolve('a', AbortSignal.abort(gone)), gone)
  },
)

t.test('a lookup that fails makes room like any other', async t => {
  const resolve = createSystemLookup(() => {
    throw new Error('ENOTFOUND')
  })
  await t.rejects(resolve('a.test', live()), { message: 'ENOTFOUND' })
  await t.rejects(resolve('b.test', live()), { message: 'ENOTFOUND' })
})

t.test('links that wait for the lookup of another one are told to come again', async t => {
  const { ask, asked } = pending()
  const clock = new TestClock()
  const fetchPage = createPageFetcher({
    clock,
    allowHttp: false,
    allowPrivate: false,
    maxBytes: 1_000,
    timeoutMs: 10_000,
    resolve: ask,
  })
  const outcomes: string[] = []
  for (const link of ['https://one.test/', 'https://two.test/', 'https://three.test/']) {
    const told = fetchPage(link, { types: ['application/pdf'], key: 'one', signal: live() }).catch(thrown =>
      thrown instanceof PageError ? `${thrown.fault}: ${thrown.message}` : String(thrown),
    )
    // It has its place by then.
    await turns(1)
    clock.advance(10_000)
    outcomes.push(String(await told))
  }
  t.same(outcomes, [
    'timeout: the link took too long to answer',
    'busy: too many host names are being looked up at the moment',
    'busy: too many host names are being looked up at the moment',
  ])
  t.same(asked, ['one.test'])
  t.equal(clock.armed, 0)
})

t.test('the DNS servers are asked for addresses of both families, which take turns', async t => {
  const six = [0x2a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
  const { servers } = await serve(t, {
    [TYPES.A]: [
      [8, 8, 8, 8],
      [8, 8, 4, 4],
    ],
    [TYPES.AAAA]: [six],
  })
  t.same(await createServerLookup({ servers })('a.test', live()), [
    { address: '8.8.8.8', family: 4 },
    { address: '2a00::1', family: 6 },
    { address: '8.8.4.4', family: 4 },
  ])
  const lonely = await serve(t, { [TYPES.AAAA]: [six] })
  const resolve = createServerLookup({ servers: lonely.servers })
  t.same(await resolve('a.test.', live()), [{ address: '2a00::1', family: 6 }])
  const none = await serve(t, {})
  await t.rejects(createServerLookup({ servers: none.servers })('a.test', live()), { code: 'ENODATA' })
})

t.test('a server that never answers is asked no more once nobody waits', async t => {
  const { servers, both } = await serve(t, null)
  const leaving = new AbortController()
  const asking = createServerLookup({ servers })('slow.test', leaving.signal)
  await both
  leaving.abort(new Error('gone'))
  await t.rejects(asking, { code: 'ECANCELLED' })
  await t.rejects(createServerLookup({ servers })('a.test', AbortSignal.abort(new Error('gone'))), /gone/)
})

t.test('names of one label mean something at home alone, and no DNS server is asked', async t => {
  const { servers, count } = await serve(t, { [TYPES.A]: [[8, 8, 8, 8]] })
  const resolve = createServerLookup({ servers })
  for (const name of ['localhost', 'metadata', 'metadata.']) await t.rejects(resolve(name, live()), /dot/)
  t.equal(count(), 0)
})
