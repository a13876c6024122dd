import fc from 'fast-check'
import t from 'tap'
import { holdsSecret, scrub } from '../../src/base/scrub.ts'

const KEY = 'sk-proj-Ab3dEf6hIj9kLmN0pQrStUvWxYz'
const OWN = 'plain_Key/With+odd=Chars~0123456789'

t.test('the used key never comes through, however it is quoted', t => {
  for (const secret of [KEY, OWN]) {
    const texts = [
      `Incorrect API key provided: ${secret}.`,
      secret,
      `"${secret}" and again ${secret}`,
      `x${secret}y`,
      secret.toUpperCase(),
      secret.toLowerCase(),
      encodeURIComponent(secret),
      `Authorization: Bearer ${secret}`,
      `https://host/v1?key=${secret}&x=1`,
      `starts ${secret.slice(0, 8)} here`,
      `starts ${secret.slice(0, 12)}****`,
      `ends ***${secret.slice(-8)}`,
      `inside ${secret.slice(9, 20)}`,
    ]
    for (const text of texts) {
      const clean = scrub(text, [secret]).toLowerCase()
      t.match(clean, '[redacted]', text)
      for (let at = 0; at + 8 <= secret.length; at++) {
        if (clean.includes(secret.slice(at, at + 8).toLowerCase())) t.fail(`${text} -> ${clean}`)
      }
    }
  }
  t.end()
})

t.test('of secrets that overlap nothing is left, whichever comes first', t => {
  const [first, second] = ['0123456789ABCDEF', '89ABCDEFqrstuvw']
  for (const secrets of [
    [first, second],
    [second, first],
  ]) {
    t.equal(scrub('bad key 0123456789ABCDEFqrstuvw.', secrets), 'bad key [redacted].')
    t.equal(scrub('0123456789abcdefQRSTUVW', secrets), '[redacted]')
  }
  t.equal(scrub('see 0123456789ABCDEFpin1 now', [first, 'Fpin1']), 'see [redacted] now', 'a short one too')
  t.end()
})

t.test('a key in the writing of URLs goes as a whole, with what lies between its escapes', t => {
  const secret = 'ab/cd+ef=gh/ij+kl=mn/op'
  t.equal(scrub(`bad key ${encodeURIComponent(secret)}.`, [secret]), 'bad key [redacted].')
  t.end()
})

t.test('a key in another writing does not come through either', t => {
  for (const secret of [KEY, OWN]) {
    const hex = Buffer.from(secret).toString('hex')
    const base64 = (text: string) => Buffer.from(text).toString('base64')
    const texts = [
      hex,
      hex.toUpperCase(),
      hex.replace(/../g, '%$&'),
      hex.replace(/../g, '\\u00$&'),
      base64(secret),
      base64(`x${secret}y`),
      base64(`xy${secret}`),
      base64(`Bearer ${secret}`),
      base64(`{"key":"${secret}"}`),
      Buffer.from(`user:${secret}`).toString('base64url'),
    ]
    for (const text of texts) {
      const clean = scrub(`debug ${text} end`, [secret])
      t.match(clean, '[redacted]', text)
      // A few characters that belong to what stands around it stay.
      t.match(clean.replaceAll('[redacted]', ''), /^debug .{0,20} end$/, text)
      t.ok(holdsSecret(`id-${text}`, [secret]), text)
    }
  }
  t.end()
})

t.test('a good part of a key in an id is seen, and an id is not taken for a key', t => {
  for (let at = 0; at + 15 <= KEY.length; at++) {
    for (const before of ['', 'a', 'resp_', '0123456789']) {
      t.ok(holdsSecret(before + KEY.slice(at, at + 15), [OWN, KEY]), `${before} ${at}`)
    }
  }
  for (const id of [
    '',
    'resp_0123456789abcdef0123456789abcdef',
    'chatcmpl-ZyXwVuTsRqPoNmLkJiHgFe',
    'default',
  ]) {
    t.notOk(holdsSecret(id, [KEY, OWN]), id)
    t.notOk(holdsSecret(id, []), id)
  }
  t.end()
})

t.test('what looks like a key goes too, though it is not ours', t => {
  const cases: readonly (readonly [string, string])[] = [
    ['key sk-proj-abcdefghijkl given', 'key [redacted] given'],
    ['key sk-ant-api03-abc_def-ghi given', 'key [redacted] given'],
    ['Incorrect API key provided: sk-abc*****wxyz', 'Incorrect API key provided: [redacted]'],
    ['AIzaSyA1234567890abcdefghijklmnopqrstuv', '[redacted]'],
    ['bad xai-1234567890abcdef!', 'bad [redacted]!'],
    ['gsk_1234567890abcdef', '[redacted]'],
    ['hf_1234567890abcdef', '[redacted]'],
    ['header Bearer abcdefgh12345678', 'header Bearer [redacted]'],
    ['basic dXNlcjpwYXNzd29yZA==', 'basic [redacted]'],
    ['AKIAIOSFODNN7EXAMPLE', '[redacted]'],
    ['eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl', '[redacted]'],
    [
      'POST https://h/v1?alt=sse&key=abc123&x=1 failed',
      'POST https://h/v1?alt=sse&key=[redacted]&x=1 failed',
    ],
    ['https://h/?api_key=abc', 'https://h/?api_key=[redacted]'],
    ['https://h/?x-goog-signature=abc', 'https://h/?x-goog-signature=[redacted]'],
    ['redis://user:pass@host/1', 'redis://[redacted]@host/1'],
    ['gw_live_abcdefghijklmnop', '[redacted]'],
  ]
  for (const [text, clean] of cases) t.equal(scrub(text, []), clean)
  t.end()
})

t.test('ordinary text stays as it is', t => {
  for (const text of [
    '',
    "This model's maximum context length is 8192 tokens.",
    'Unknown parameter: tools[0].function.strict',
    'Rate limit reached for gpt-4o in organization org-123 on tokens per min',
    'The key "temperature" must be a number; see https://docs.example/api?page=2#keys',
    'risk-averse desk-bound task-oriented',
    'provider hf-inference is overloaded',
    'Use the bearer scheme',
    '漢字 😀',
  ]) {
    t.equal(scrub(text, [KEY]), text)
  }
  t.end()
})

t.test('short keys are removed in whole only, and the shortest not at all', t => {
  t.equal(scrub('token abcde, abcd', ['abcde']), 'token [redacted], abcd')
  t.equal(scrub('a b c', ['a']), 'a b c')
  t.equal(scrub('x', ['']), 'x')
  t.equal(scrub('ill-formed \ud800', ['\ud800aaaaaaaa']), 'ill-formed \ufffd')
  t.end()
})

t.test('no piece of 8 characters of any key survives in any text', t => {
  const secret = fc.string({ minLength: 8, maxLength: 60, unit: fc.constantFrom(...'abcXYZ019-_/+=.$^*(') })
  const property = fc.property(
    secret,
    fc.array(fc.oneof(fc.constant(null), fc.string()), { maxLength: 6 }),
    fc.nat(),
    (key, parts, cut) => {
      const text = parts.map(part => part ?? key.slice(cut % key.length)).join('')
      const clean = scrub(text, [key]).replaceAll('[redacted]', '\0').toLowerCase()
      for (let at = 0; at + 8 <= key.length; at++) {
        if (clean.includes(key.slice(at, at + 8).toLowerCase())) return false
      }
      return true
    },
  )
  const outcome = fc.check(property, { numRuns: 5_000, seed: 7 })
  t.equal(outcome.failed, false, JSON.stringify(outcome.counterexample))
  t.end()
})

t.test('no text makes it slow', t => {
  const started = process.cpuUsage()
  for (const unit of [
    'a',
    'eyJ-',
    'sk-',
    '://',
    'x://a:',
    '&key',
    '-',
    'Bearer ',
    'AKIA',
    '?a=',
    'abcdefgh',
  ]) {
    scrub(unit.repeat(200_000), ['abcdefgh'.repeat(10), KEY])
  }
  const { user, system } = process.cpuUsage(started)
  t.ok(user + system < 3_000_000, `${Math.round((user + system) / 1000)} ms of CPU for 11 texts`)
  t.end()
})
