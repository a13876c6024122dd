/** Tokens of service accounts over real sockets: a server of ours checks each assertion with the public key. */
import { generateKeyPairSync } from 'node:crypto'
import { createServer } from 'node:http'
import { jwtVerify } from 'jose'
import t, { type Test } from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createTransports } from '../../../src/providers/upstream/egress.ts'
import { GoogleTokens, type ServiceAccount } from '../../../src/providers/upstream/google-tokens.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'

const pair = () =>
  generateKeyPairSync('rsa', {
    modulusLength: 2048,
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  })
const { privateKey, publicKey } = pair()
const ACCOUNT: ServiceAccount = {
  clientEmail: 'sluice@my-project-1.iam.gserviceaccount.com',
  privateKey,
  privateKeyId: 'abc123',
}

interface Exchange {
  readonly form: URLSearchParams
}

/** A token server whose next answers a test may replace. */
async function setup(t: Test) {
  const clock = new TestClock()
  const seen: Exchange[] = []
  const answers: (readonly [status: number, body: string])[] = []
  const gate = { held: null as Promise<void> | null }
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8')
    request.on('data', (chunk: string) => {
      body += chunk
    })
    request.on('end', async () => {
      t.equal(request.headers['content-type'], 'application/x-www-form-urlencoded')
      seen.push({ form: new URLSearchParams(body) })
      await gate.held
      const granted = JSON.stringify({ access_token: `token-${seen.length}`, expires_in: 3600 })
      const [status, text] = answers.shift() ?? [200, granted]
      response.writeHead(status, { 'content-type': 'application/json' }).end(text)
    })
  })
  const { port } = await listening(server)
  const client = createTransports({
    clock,
    log: { fault: () => undefined },
    proxies: { https: null, http: null, exceptions: null },
    undici: true,
  })
  const tokens = new GoogleTokens({ client, clock })
  t.teardown(async () => {
    tokens.close()
    await client.close()
    server.close()
    server.closeAllConnections()
  })
  const tokenUrl = `http://127.0.0.1:${port}/token`
  return { clock, seen, answers, gate, tokens, tokenUrl, ask: () => tokens.token(ACCOUNT, { tokenUrl }) }
}

t.test('a signed assertion is exchanged once, and its token then given without a promise', async t => {
  const { clock, seen, ask, tokenUrl } = await setup(t)
  const asked = [ask(), ask(), ask()]
  t.ok(asked.every(each => each instanceof Promise))
  t.same(await Promise.all(asked), ['token-1', 'token-1', 'token-1'])
  t.equal(ask(), 'token-1')
  t.equal(seen.length, 1)
  const form = seen[0]?.form
  t.equal(form?.get('grant_type'), 'urn:ietf:params:oauth:grant-type:jwt-bearer')
  const { createPublicKey } = await import('node:crypto')
  const { payload, protectedHeader } = await jwtVerify(
    form?.get('assertion') ?? '',
    createPublicKey(publicKey),
    {
      currentDate: new Date(clock.nowMs()),
    },
  )
  const seconds = Math.floor(clock.nowMs() / 1000)
  t.same(protectedHeader, { alg: 'RS256', typ: 'JWT', kid: 'abc123' })
  t.same(payload, {
    iss: ACCOUNT.clientEmail,
    aud: tokenUrl,
    scope: 'https://www.googleapis.com/auth/cloud-platform',
    iat: seconds,
    exp: seconds + 3600,
  })
})

t.test('a token is renewed while it still serves, and never sent near its end', async t => {
  const { clock, seen, ask, gate } = await setup(t)
  t.equal(await ask(), 'token-1')
  clock.advance(54 * 60_000)
  t.equal(ask(), 'token-1')
  t.equal(seen.length, 1)
  clock.advance(2 * 60_000)
  const renewal = Promise.withResolvers<void>()
  gate.held = renewal.promise
  t.equal(ask(), 'token-1', 'the old one serves while the new one is fetched')
  t.equal(ask(), 'token-1')
  renewal.resolve()
  // A request at the end of the old token waits for the same exchange.
  clock.advance(3 * 60_000 + 45_000)
  t.equal(await ask(), 'token-2')
  t.equal(seen.length, 2)
  t.equal(ask(), 'token-2')
})

t.test('a renewal that fails leaves the old token, and is tried again after a pause', async t => {
  const { clock, seen, ask, answers } = await setup(t)
  t.equal(await ask(), 'token-1')
  clock.advance(56 * 60_000)
  answers.push([503, '{}'])
  t.equal(ask(), 'token-1')
  while (seen.length < 2) await new Promise(resolve => setImmediate(resolve))
  for (let turn = 0; turn < 50; turn++) await new Promise(resolve => setImmediate(resolve))
  t.equal(ask(), 'token-1')
  t.equal(seen.length, 2, 'the pause holds')
  clock.advance(10_000)
  t.equal(ask(), 'token-1')
  while (seen.length < 3) await new Promise(resolve => setImmediate(resolve))
})

t.test('a refusal is told without the account, the assertion and the words of the server', async t => {
  const { clock, seen, ask, answers } = await setup(t)
  answers.push([400, '{"error":"invalid_grant","error_description":"Invalid JWT Signature. s3cr3t"}'])
  const failure = async (): Promise<GatewayError> => {
    try {
      await ask()
    } catch (error) {
      if (error instanceof GatewayError) return error
    }
    throw new Error('was not refused')
  }
  const refused = await failure()
  t.match(refused, { code: 'provider_unavailable', metadata: { provider_status: 400 } })
  t.notMatch(JSON.stringify([refused.message, refused.metadata]), /s3cr3t|gserviceaccount|eyJ/)
  t.equal((await failure()).message, refused.message, 'at once, without another exchange')
  t.equal(seen.length, 1)
  clock.advance(10_000)
  t.equal(await ask(), 'token-2')
})

t.test('replies that hold no token are failures', async t => {
  const { clock, ask, answers } = await setup(t)
  for (const reply of [
    '',
    'null',
    '[]',
    '{"access_token":7}',
    '{"access_token":"two words"}',
    'x'.repeat(100_000),
  ]) {
    answers.push([200, reply])
    const code = reply.startsWith('x') ? 'reply_too_large' : 'provider_unavailable'
    await t.rejects(Promise.resolve().then(ask), { code }, reply.slice(0, 20))
    clock.advance(10_000)
  }
  answers.push([200, '{"access_token":"short","expires_in":-1}'])
  t.equal(await ask(), 'short')
  clock.advance(9 * 60_000 + 31_000)
  t.equal(await ask(), 'token-8', 'without a length of life it serves for less than ten minutes')
})

t.test('nobody gets the token of an account without its key', async t => {
  const { tokens, tokenUrl, seen, ask } = await setup(t)
  t.equal(await ask(), 'token-1')
  const copy = { ...ACCOUNT }
  t.equal(tokens.token(copy, { tokenUrl }), 'token-1', 'the same key read again')
  const thief = { ...ACCOUNT, privateKey: pair().privateKey }
  t.equal(await tokens.token(thief, { tokenUrl }), 'token-2')
  t.equal(seen.length, 2)
})
