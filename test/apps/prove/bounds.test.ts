/** What prove sends, keeps and shows: no more requests than allowed, no key, and nothing that changes a terminal. */
import { createServer } from 'node:http'
import { createServer as createPlain } from 'node:net'
import t, { type Test } from 'tap'
import { reportText } from '../../../src/apps/commands/prove/view.ts'
import { waitingClock } from '../../../src/apps/commands/waiting-clock.ts'
import { FaultProvider, ProveFault, type ProveOptions, prove } from '../../../src/apps/prove/prove.ts'
import { Ration, RationSpent } from '../../../src/apps/prove/ration.ts'
import { asBytes, asCurl } from '../../../src/apps/prove/repeat.ts'
import { isSecret, scrubber } from '../../../src/apps/prove/secrets.ts'
import { listening } from '../../support/listening.ts'
import { BrokenGateway, KEY } from './broken-gateway.ts'
import { proveOptions } from './options.ts'

const QUIET = { begins: () => undefined, onResult: () => undefined }

const options = (url: string, more: Partial<ProveOptions>): ProveOptions =>
  proveOptions({ url, key: KEY, ...more })

async function withGateway(
  t: Test,
): Promise<{ url: string; gateway: BrokenGateway; provider: FaultProvider }> {
  const provider = new FaultProvider(waitingClock)
  await provider.listen(0)
  const gateway = new BrokenGateway(null, provider.url)
  const url = await gateway.listen()
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  return { url, gateway, provider }
}

t.test(
  'a server sees no more requests than were allowed, and the checks that did not fit say so',
  async t => {
    for (const requests of [6, 25, 60]) {
      const { url, gateway, provider } = await withGateway(t)
      const limits = { requests, concurrency: 4, seconds: 600 }
      const report = await prove(options(url, { limits, provider }), QUIET)
      t.ok(gateway.requests <= requests, `${gateway.requests} of ${requests}`)
      t.ok(report.ration.sent <= requests)
      t.ok(report.ration.sent >= gateway.requests, 'each is counted')
      t.ok(report.checks.some(({ status, seen }) => status === 'skipped' && /--requests/.test(seen)))
      t.equal(report.summary.fail, 0, 'what was not asked is no finding')
    }
  },
)

t.test('a ration ends by number, by connections and by time', async t => {
  let nowMs = 0
  const ration = new Ration(
    { requests: 2, concurrency: 1, seconds: 1 },
    { nowMs: () => 0, monotonicMs: () => nowMs, after: () => ({ cancel: () => undefined }) },
  )
  const release = ration.connect()
  t.throws(() => ration.connect(), RationSpent)
  release()
  release()
  ration.connect()
  t.throws(() => ration.connect(), RationSpent, 'a second release frees nothing')
  ration.spend(1)
  t.throws(() => ration.spend(2), /--requests 2 is used up/)
  t.equal(ration.sent, 1)
  nowMs = 1_000
  t.throws(() => ration.spend(1), /--seconds 1 have passed/)
})

t.test(
  'the key and the values of secret headers are in no report, even if the gateway sends them back',
  async t => {
    const secret = 'portkey-secret-0987'
    const server = createServer((request, response) => {
      request.resume()
      const echo = JSON.stringify(request.headers)
      response.writeHead(request.url === '/v1/responses' ? 200 : 500, {
        'content-type': `application/json; echo=${request.headers.authorization ?? ''}`,
      })
      response.end(JSON.stringify({ object: 'response', error: { message: `\u001b[2J\u202e${echo}` } }))
    })
    const { port } = await listening(server, t)
    const url = `http://127.0.0.1:${port}/v1`
    const headers = [
      ['x-portkey-api-key', secret],
      ['x-portkey-provider', 'openai'],
    ] as const
    const report = await prove(
      options(url, { headers, model: KEY, only: ['reply', 'stream', 'errors'] }),
      QUIET,
    )
    const shown = [...reportText(report), JSON.stringify(report)].join('\n')
    t.ok(report.summary.fail > 10)
    t.notMatch(shown, KEY)
    t.notMatch(shown, secret)
    t.match(shown, '(the key)')
    t.match(shown, 'x-portkey-provider: openai', 'other headers are needed to repeat it')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a terminal obeys
    t.notMatch(shown.replaceAll('\n', ''), /[\u0000-\u001f\u007f-\u009f\u202e]/)
  },
)

t.test('a refused key ends it with a word, without the key', async t => {
  const server = createServer((request, response) => {
    request.resume()
    response.writeHead(401, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ error: { message: `not valid: ${request.headers.authorization}` } }))
  })
  const { port } = await listening(server, t)
  const url = `http://127.0.0.1:${port}/v1`
  const error = await prove(options(url, { model: 'm' }), QUIET).catch((thrown: unknown) => thrown as Error)
  t.ok(error instanceof ProveFault)
  t.equal((error as Error).message, 'the gateway refused the key: status 401, not valid: Bearer (the key)')
})

t.test('a server that never stops sending is read so far and no further', async t => {
  const server = createPlain(socket => {
    socket.on('error', () => socket.destroy())
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n')
      const more = Buffer.alloc(64 * 1024, 'x')
      const pour = (): void => {
        while (!socket.destroyed && socket.write(more));
      }
      socket.on('drain', pour)
      pour()
    })
  })
  const { port } = await listening(server, t)
  const url = `http://127.0.0.1:${port}/v1`
  const report = await prove(options(url, { model: 'm', only: ['reply'] }), QUIET)
  t.match(
    report.checks.filter(({ id }) => id === 'reply.length').map(({ seen }) => seen),
    ['the end of the body: too large', 'the end of the body: too large'],
  )
})

t.test('a server that speaks something else is named so', async t => {
  const server = createPlain(socket => {
    socket.on('error', () => socket.destroy())
    socket.once('data', () => socket.end('220 mail.example ESMTP\r\n\r\n'))
  })
  const { port } = await listening(server, t)
  const url = `http://127.0.0.1:${port}/v1`
  await t.rejects(prove(options(url, { model: 'm' }), QUIET), {
    name: 'ProveFault',
    message: /^no gateway answers at http:.*: the reply begins with "220 mail.example ESMTP"$/,
  })
})

t.test('commands to repeat have the key as a variable', async t => {
  const headers = [
    ['authorization', `Bearer ${KEY}`],
    ['x-api-key', 'secret'],
    ['x-portkey-provider', "o'p"],
  ] as const
  t.equal(
    asCurl('http://h/v1/x', 'POST', headers, `{"a":"it's"}`),
    `curl -sS -N -i 'http://h/v1/x' -H "authorization: Bearer $KEY" -H "x-api-key: $X_API_KEY" -H 'x-portkey-provider: o'\\''p' -d '{"a":"it'\\''s"}'`,
  )
  t.equal(
    asBytes(new URL('http://[::1]:81/v1'), `GET /100% HTTP/1.1\r\nA: ${KEY}\r\n\r\n`, KEY),
    `printf 'GET /100%% HTTP/1.1\\r\\nA: %s\\r\\n\\r\\n' "$KEY" | nc -w 5 ::1 81`,
  )
  t.match(asBytes(new URL('https://h/v1'), 'x', KEY), 'openssl s_client -quiet -connect h:443')
  t.same(
    ['x-portkey-provider', 'x-api-key', 'x-portkey-virtual-key', 'Cookie', 'x-auth', 'apikey'].map(name =>
      isSecret([name, '']),
    ),
    [false, true, true, true, true, true],
  )
  t.equal(
    scrubber(['a"key/1'], [])(`a"key/1 a\\"key/1 ${encodeURIComponent('a"key/1')}`),
    '(the key) (the key) (the key)',
  )
})
