/** Files for TLS with a provider, and that nothing turns the check of certificates off. */
import { generateKeyPairSync } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { TRANSPORTS } from '../../../src/protocol/provider.ts'
import { createPageFetcher } from '../../../src/providers/upstream/pages/fetch-page.ts'
import { readTls } from '../../../src/providers/upstream/tls-files.ts'
import { FaultServer, reply } from '../../support/fault-server.ts'
import { GONE, setUp } from './calls.ts'
import { selfSigned } from './self-signed.ts'

const identity = selfSigned(['localhost'], true)

t.test('files are read, and a wrong one names its field', t => {
  const folder = t.testdir()
  const file = (name: string, text: string): string => {
    const path = join(folder, name)
    writeFileSync(path, text)
    return path
  }
  const other = generateKeyPairSync('ec', { namedCurve: 'prime256v1' }).privateKey
  const files = {
    cert: file('cert.pem', identity.cert),
    key: file('key.pem', identity.key),
    ca: file('ca.pem', identity.cert + identity.cert),
    other: file('other.pem', other.export({ type: 'pkcs8', format: 'pem' }).toString()),
    junk: file('junk.pem', 'secret text'),
    broken: file('broken.pem', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'),
    missing: join(folder, 'secret-name'),
  }
  const { ca, cert, key, other: otherKey, junk, broken, missing } = files
  t.same(readTls({ ca, cert, key }, 'p.tls'), {
    ca: identity.cert + identity.cert,
    cert: identity.cert,
    key: identity.key,
  })
  t.same(readTls({ ca }, 'p.tls'), { ca: identity.cert + identity.cert, cert: null, key: null })
  const cases = [
    [{ ca: missing }, 'p.tls.ca: cannot be read (ENOENT)'],
    [{ cert: folder, key }, 'p.tls.cert: cannot be read (EISDIR)'],
    [{ cert }, 'p.tls.key: is required: cert and key go together'],
    [{ key }, 'p.tls.cert: is required: cert and key go together'],
    [{ ca: junk }, 'p.tls.ca: is not a PEM file with certificates'],
    [{ ca: broken }, 'p.tls.ca: is not a PEM file with certificates'],
    [{ ca: key }, 'p.tls.ca: is not a PEM file with certificates'],
    [{ cert: junk, key }, 'p.tls.cert: is not a PEM file with a certificate'],
    [{ cert, key: junk }, 'p.tls.key: is not a PEM file with the private key of cert (without a passphrase)'],
    [
      { cert, key: otherKey },
      'p.tls.key: is not a PEM file with the private key of cert (without a passphrase)',
    ],
  ] as const
  for (const [given, message] of cases) t.throws(() => readTls(given, 'p.tls'), { message }, message)
  t.end()
})

t.test('NODE_TLS_REJECT_UNAUTHORIZED=0 does not turn the check of certificates off', async t => {
  const server = await FaultServer.start(
    answering => answering.send(reply(200, '%PDF-', 'content-type: application/pdf\r\n')),
    identity,
  )
  t.teardown(() => server.close())
  const before = process.env['NODE_TLS_REJECT_UNAUTHORIZED']
  process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0'
  t.teardown(() => {
    if (before === undefined) delete process.env['NODE_TLS_REJECT_UNAUTHORIZED']
    else process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = before
  })
  for (const by of TRANSPORTS) {
    const { ask } = setUp(t, {}, by)
    t.same((await ask(server.url('/', 'localhost'))).seen, [GONE], by)
  }
  const links = { clock: systemClock, allowHttp: true, allowPrivate: true, maxBytes: 100, timeoutMs: 30_000 }
  const terms = { types: ['application/pdf'], key: 'one', signal: new AbortController().signal }
  const fault = { fault: 'unreachable' } as unknown as Error
  await t.rejects(createPageFetcher(links)(server.url('/', 'localhost').href, terms), fault)
  t.equal(server.requests.length, 0)
})
