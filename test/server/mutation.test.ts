import t from 'tap'
import { exchange, parseReplies, RawClient, request, turns } from '../support/raw-http.ts'
import { INFERENCE, type Row, startFrontEnd } from './front-end.ts'

/** Requests per run. The seed is fixed, so that what fails once fails again. */
const ROUNDS = Number(process.env['MUTATION_ROUNDS'] ?? 3000)
const PARALLEL = 24
const SPLICES = [
  '\r\n',
  '\n',
  '\r',
  '\0',
  ':',
  ' ',
  '\t',
  '\xff',
  'chunked',
  'Content-Length: 0\r\n',
  '0\r\n\r\n',
  '%00',
  '__proto__',
  '[[[[',
  '"',
  '\\',
]

function numbers(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

t.test('mutated requests break nothing', async t => {
  const route: Row = {
    method: 'POST',
    path: '/echo/{name}',
    bodyLimitBytes: 4096,
    key: 'inference',
    handler: (request, reply) =>
      reply.json(200, { body: request.body ?? null, name: request.params.get('name') }),
  }
  const front = await startFrontEnd(t, [route, { ...route, method: 'GET', bodyLimitBytes: 0 }])
  const pick = numbers(42)
  const headers = { Authorization: INFERENCE, 'Content-Type': 'application/json' }
  const sources = [
    request('POST', '/v1/echo/a%20b?c=d', { ...headers, 'Content-Length': '13' }, '{"a":[1,"b"]}'),
    request(
      'POST',
      '/v1/echo/x',
      { ...headers, 'Transfer-Encoding': 'chunked' },
      '5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n',
    ),
    request('GET', '/v1/echo/x', { ...headers, Connection: 'close', Expect: '100-continue' }),
  ]
  const mutate = (source: string): string => {
    let bytes = source
    for (let count = 1 + pick(4); count > 0; count--) {
      const at = pick(bytes.length)
      const cut = pick(3) === 0 ? pick(40) : 0
      const piece = pick(2) === 0 ? (SPLICES[pick(SPLICES.length)] ?? '') : String.fromCharCode(pick(256))
      bytes =
        bytes.slice(0, at) +
        (pick(5) === 0 ? bytes.slice(at, at + 30).repeat(2) : piece) +
        bytes.slice(at + cut + pick(2))
    }
    return bytes
  }
  const statuses = new Map<number, number>()
  const wrong: string[] = []
  // All are made before the first is sent: what is drawn must not depend on which answer comes first.
  const inputs = Array.from({ length: ROUNDS }, () => {
    const bytes = mutate(sources[pick(sources.length)] ?? '')
    const at = pick(3) === 0 ? bytes.indexOf('\r\n') + 2 + pick(bytes.length) : bytes.length
    return { bytes, at }
  })
  const left = inputs.values()
  const worker = async (): Promise<void> => {
    for (const { bytes, at } of left) {
      const client = new RawClient(front.port)
      await client.send(bytes.slice(0, at))
      await turns(2)
      if (at < bytes.length) await client.send(bytes.slice(at))
      await turns(4)
      for (const { status } of parseReplies(client.text)) {
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        if (status >= 500 && status !== 501 && status !== 505)
          wrong.push(`${status}: ${JSON.stringify(bytes)}`)
      }
      client.destroy()
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, worker))
  t.same(wrong, [])
  t.same(front.faults, [])
  t.ok(
    (statuses.get(200) ?? 0) > ROUNDS / 100 && (statuses.get(400) ?? 0) > ROUNDS / 100,
    'both kinds of answer occurred',
  )
  t.comment(
    [...statuses]
      .sort()
      .map(([status, count]) => `${status}: ${count}`)
      .join(', '),
  )
  while (front.server.openConnections > 0) await turns(1)
  t.equal(front.server.openRequests, 0)
  const last = await exchange(
    front.port,
    request('POST', '/v1/echo/x', { ...headers, 'Content-Length': '2' }, '{}'),
  )
  t.equal(last?.status, 200)
})
