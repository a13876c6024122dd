import { randomBytes } from 'node:crypto'
import t from 'tap'
import {
  SecretScan,
  secretsInRequest,
  shownOfReply,
  shownOfRequest,
} from '../../../src/features/captures/secrets.ts'
import { awsSigner } from '../../../src/providers/upstream/aws-signature.ts'
import { encodings } from '../../support/canary-scan.ts'
import { TestClock } from '../../support/test-clock.ts'

const SECRET = `sk-canary-${randomBytes(20).toString('hex')}/+=~`

/** A third of it is there. */
function hasRun(text: Buffer, written: Buffer): boolean {
  const third = Math.floor(written.length / 3)
  return [0, 1, 2].some(n => text.includes(written.subarray(n * third, (n + 1) * third)))
}

t.test('a secret is taken out in every writing, whole or half, wherever it stands', async t => {
  const remover = new SecretScan([SECRET, 'another-secret-0123456789'])
  const bytes = Buffer.from(SECRET)
  const middle = bytes.length >> 1
  let count = 0
  for (const part of [bytes, bytes.subarray(0, middle), bytes.subarray(middle)]) {
    for (const [name, written] of encodings(part)) {
      for (const before of ['', 'x', 'xy', 'xyz', 'xyzw', '\0\xff ']) {
        const text = Buffer.concat([
          Buffer.from(before, 'latin1'),
          written,
          Buffer.from(' after\xff', 'latin1'),
        ])
        const clean = remover.bytes(text)
        count++
        if (clean.includes(written) || hasRun(clean, written))
          t.fail(`${name} after ${JSON.stringify(before)} is there`)
        if (!clean.includes('[redacted]')) t.fail(`${name} is not told`)
        if (!clean.toString('latin1').endsWith('after\xff')) t.fail(`${name}: the rest is gone`)
      }
    }
  }
  t.ok(count > 200)
})

t.test('other text stays as it is', async t => {
  const remover = new SecretScan([SECRET])
  for (const text of ['', 'sk', 'a', SECRET.slice(0, 9), 'The quick brown fox. '.repeat(1_000)])
    t.equal(remover.text(text), text)
  const random = randomBytes(100_000)
  t.equal(remover.bytes(random), random, 'the same object')
  t.equal(new SecretScan([]).text('x'), 'x')
  t.equal(new SecretScan(['none', 'sim']).text('none of sim'), 'none of sim', 'words are no secrets')
  t.equal(new SecretScan(['abc123']).text('an abc123, and ABC123'), 'an [redacted], and ABC123')
})

t.test('secrets that overlap, repeat and touch are taken out with nothing between', async t => {
  const remover = new SecretScan(['0123456789abcdef', '89abcdefghijklmn'])
  t.equal(remover.text('<0123456789abcdefghijklmn>'), '<[redacted]>')
  t.equal(remover.text('<0123456789abcdef0123456789abcdef>'), '<[redacted]>')
  t.equal(remover.text('0123456789abcdef x 89abcdefghijklmn'), '[redacted] x [redacted]')
  t.equal(remover.text('ä0123456789ABCDEFö'), 'ä[redacted]ö')
})

t.test('time grows with the text, whatever is in it', async t => {
  const secret = 'ab'.repeat(200)
  const remover = new SecretScan([secret, SECRET])
  // Grams of the secret everywhere, and no run of it is long enough.
  for (const text of ['ababab-', '\\u0061', 'a', secret]) {
    const long = Buffer.from(text.repeat(Math.ceil(1_000_000 / text.length)))
    t.ok(remover.bytes(long).length > 0)
  }
})

t.test('of headers only known ones are shown, and all other values count as secrets', async t => {
  const headers = {
    Authorization: `Bearer ${SECRET}`,
    'x-api-key': 'own-key-0123456789',
    'x-goog-api-key': 'AIza0123456789abcdef',
    'x-custom': 'custom-secret-value-1',
    cookie: 'session=0123456789abcdef',
    'content-type': 'application/json',
    'anthropic-version': '2023-06-01',
  }
  t.same(shownOfRequest(headers), [
    ['content-type', 'application/json'],
    ['anthropic-version', '2023-06-01'],
  ])
  const url = new URL('https://user%40x:pass-word-1@host.example/v1/x?key=query-secret-0123&alt=sse')
  t.same(
    new Set(secretsInRequest({ url, headers })),
    new Set([
      SECRET.replace('=~', ''),
      'own-key-0123456789',
      'AIza0123456789abcdef',
      'custom-secret-value-1',
      '0123456789abcdef',
      'query-secret-0123',
      'user@x',
      'pass-word-1',
    ]),
  )
  const reply = {
    'content-type': 'text/event-stream',
    'set-cookie': 'a=b',
    'x-request-id': 'r',
    'x-odd': SECRET,
  }
  t.same(shownOfReply(reply), [
    ['content-type', 'text/event-stream'],
    ['x-request-id', 'r'],
  ])
})

t.test(
  'of a signature of AWS the key id, the signature and the session are secrets, and names of headers are not',
  async t => {
    const access = {
      accessKeyId: 'AKIACANARY0123456789',
      secretAccessKey: 'Aw/0123456789+0123456789=',
      sessionToken: 'session-token-0123456789',
    }
    const sign = awsSigner(new TestClock(), access, { region: 'us-east-1', service: 'bedrock' })
    const url = new URL('https://bedrock-runtime.us-east-1.amazonaws.com/model/x/converse')
    const headers = await sign({
      method: 'POST',
      url,
      headers: { 'content-type': 'application/json' },
      body: '{}',
    })
    const secrets = secretsInRequest({ url, headers })
    t.ok(secrets.includes('AKIACANARY0123456789'))
    t.ok(secrets.includes('session-token-0123456789'))
    t.ok(
      secrets.some(each => /^[0-9a-f]{64}$/.test(each)),
      'the signature',
    )
    const remover = new SecretScan(secrets)
    t.equal(remover.text('{"content-type":"x","host":1}'), '{"content-type":"x","host":1}')
    const said = JSON.stringify(headers)
    t.notOk(remover.text(said).includes('AKIACANARY'))
  },
)
