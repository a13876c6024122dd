import { generateKeyPairSync } from 'node:crypto'
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { certificateVersion, isExposed, readCertificate } from '../../src/server/certificate.ts'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { certificateFiles } from '../support/over-tls.ts'

const NOW_MS = Date.UTC(2026, 0, 1)
const good = selfSigned(['localhost'], true)
const other = selfSigned(['localhost'], true)

const files = certificateFiles()

function fault(cert: string | Buffer, key: string | Buffer): string {
  writeFileSync(files.cert, cert)
  writeFileSync(files.key, key)
  try {
    readCertificate(files, NOW_MS)
    return 'none'
  } catch (error) {
    return (error as Error).message
  }
}

/** `key: is empty` with the field and the path in place of the name. */
function located(told: string, { cert, key } = files): string {
  return told
    .replace(/^cert: /, () => `listen.tls.cert: ${cert}: `)
    .replace(/^key: /, () => `listen.tls.key: ${key}: `)
}

function keyPem(type: 'ed448' | 'rsa-pss'): string {
  const { privateKey } =
    type === 'ed448'
      ? generateKeyPairSync('ed448')
      : generateKeyPairSync('rsa-pss', { modulusLength: 2048, hashAlgorithm: 'sha256' })
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
}

t.test('a good pair has a version and an end', async t => {
  const files = certificateFiles(good)
  const { version, expiresAtMs } = readCertificate(files, NOW_MS)
  t.equal(version, certificateVersion(files))
  t.equal(expiresAtMs, Date.UTC(2049, 11, 31, 23, 59, 59))
  writeFileSync(files.cert, `${good.cert}${other.cert}`)
  t.not(readCertificate(files, NOW_MS).version, version, 'a chain is part of it')
  t.equal(certificateVersion({ ...files, key: `${files.key}-gone` }), null)
})

t.test('what is wrong is said in words, with the field and the file, but nothing in it', async t => {
  const encrypted = generateKeyPairSync('ec', {
    namedCurve: 'prime256v1',
    privateKeyEncoding: { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  }).privateKey
  const half = (text: string) => text.slice(0, text.length / 2)
  const expired = selfSigned([], true, { from: '200101000000Z', until: '251231000000Z' })
  const early = selfSigned([], true, { from: '270101000000Z', until: '491231235959Z' })
  for (const [name, cert, key, expected] of [
    ['empty', '', good.key, 'cert: is empty'],
    ['half of a certificate', half(good.cert), good.key, 'cert: is not a PEM file'],
    ['half of a chain', good.cert + half(other.cert), good.key, 'cert: contains a certificate chain'],
    ['a key in its place', good.key, good.key, 'cert: is not a PEM file'],
    ['expired', expired.cert, expired.key, 'cert: expired on 2025-12-31T00:00:00.000Z'],
    ['not yet', early.cert, early.key, 'cert: is not valid before 2027-01-01T00:00:00.000Z'],
    ['half of a key', good.cert, half(good.key), 'key: is not a PEM file with a private key'],
    ['a passphrase', good.cert, encrypted, 'key: has a passphrase'],
    ['the key of another', good.cert, other.key, 'key: is not the private key'],
    ['a key that nobody takes', good.cert, keyPem('ed448'), 'key: is of the type ed448'],
    ['a key that is too narrow', good.cert, keyPem('rsa-pss'), 'key: is of the type rsa-pss'],
    ['a huge file', Buffer.alloc(1024 * 1024 + 1, 'a'), good.key, 'cert: is larger than'],
  ] as const) {
    const told = fault(cert, key)
    t.equal(told.indexOf(located(expected)), 0, `${name}: ${told}`)
    t.notMatch(told, /BEGIN/, name)
  }
  t.equal(fault(good.cert, good.key), 'none')
})

t.test('a file that is missing, or is none, is told too', async t => {
  const files = certificateFiles(good)
  rmSync(files.key)
  t.throws(() => readCertificate(files, NOW_MS), { message: located('key: cannot be read (ENOENT)', files) })
  mkdirSync(files.key)
  t.throws(() => readCertificate(files, NOW_MS), { message: located('key: is not a file', files) })
})

t.test('a key that every user can read is exposed', async t => {
  const files = certificateFiles(good)
  t.equal(isExposed(files.key), false)
  chmodSync(files.key, 0o644)
  t.equal(isExposed(files.key), true)
})
