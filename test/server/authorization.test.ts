import t from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { createKey } from '../../src/callers/api-key.ts'
import { ApiKeys } from '../../src/callers/keys.ts'
import { openStore } from '../../src/storage/open.ts'
import { parseReplies, RawClient } from '../support/raw-http.ts'
import { type Row, startFrontEnd } from './front-end.ts'

const HOSTILE = [
  "' OR 1=1 --",
  '"; DROP TABLE keys; --',
  "1' UNION SELECT * FROM keys --",
  '{{7*7}}',
  '../../etc/passwd',
  '%00',
  '%0d%0a',
  '__proto__',
  'constructor',
  'null',
  'undefined',
  'NaN',
  'true',
  '[object Object]',
  '<script>',
  '\\x00',
  '$(id)',
  '`id`',
  '*',
  '%',
]
const SCHEMES = [
  '',
  'Bearer',
  'bearer',
  'BEARER',
  'Basic',
  'Digest',
  'Token',
  'Bearer:',
  'Bearer\t',
  'Bearer  ',
  'Bearer,',
  'BearerBearer',
]

/** A generator that yields the same numbers in every run. */
function numbers(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

function garbage(): string[] {
  const pick = numbers(20_261_121)
  const values = SCHEMES.flatMap(scheme => HOSTILE.map(text => `${scheme} ${text}`))
  const prefixes = ['sk-gw-v1-', 'sk-gw-mgmt-', 'sk-gw-v1', 'SK-GW-V1-', 'sk-or-v1-', '']
  while (values.length < 1500) {
    const length = [0, 1, 63, 64, 65, 128, 1000, 8000][pick(8)] ?? 0
    const hex = pick(2) === 0
    let text = ''
    for (let at = 0; at < length; at++) {
      // Everything a header may carry, bytes beyond ASCII included; or what a key looks like.
      text += hex
        ? '0123456789abcdef'[pick(16)]
        : String.fromCharCode([9, 32 + pick(95), 128 + pick(128)][pick(3)] ?? 32)
    }
    values.push(`${SCHEMES[pick(SCHEMES.length)]} ${prefixes[pick(prefixes.length)]}${text}`)
  }
  return values
}

t.test('no Authorization header is more than a 401', async t => {
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  const { key, record } = createKey({ kind: 'inference', name: 'test', clock: systemClock })
  await store.keys.add(record)
  let handled = 0
  const route: Row = {
    method: 'GET',
    path: '/any',
    bodyLimitBytes: 0,
    key: 'any',
    handler(_request, reply) {
      handled++
      reply.json(200, {})
    },
  }
  const front = await startFrontEnd(t, [route], { keys: new ApiKeys({ store, clock: systemClock }) })

  const ask = async (authorization: string) => {
    const client = new RawClient(front.port)
    await client.send(`GET /v1/any HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: ${authorization}\r\n\r\n`)
    await client.until(text => parseReplies(text).length > 0)
    client.destroy()
    return parseReplies(client.text)[0]
  }
  t.equal((await ask(`Bearer ${key}`))?.status, 200)
  const values = garbage()
  const wrong: string[] = []
  for (const value of values) {
    const reply = await ask(value)
    const fits = reply?.status === 401 && reply.headers.get('www-authenticate') === 'Bearer'
    if (!fits || (value.trim().length > 12 && reply.body.includes(value.trim())))
      wrong.push(`${reply?.status} ${value}`)
  }
  t.same(wrong, [])
  t.comment(`${values.length} values`)
  t.equal(handled, 1)
  t.same(front.faults, [])
  t.equal((await ask(`Bearer ${key}`))?.status, 200)
})
