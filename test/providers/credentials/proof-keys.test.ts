/** The key file of proofs: made once for its owner alone, followed when it changes, and refused with what to do. */
import { generateKeyPairSync } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { calculateJwkThumbprint, compactVerify, importJWK } from 'jose'
import t, { type Test } from 'tap'
import { createLog } from '../../../src/base/log/log.ts'
import type { ProofStatement } from '../../../src/protocol/management/proof.ts'
import { checkProofKeyFile, ProofKeyError, ProofKeys } from '../../../src/providers/credentials/proof-keys.ts'
import { TestClock } from '../../support/test-clock.ts'

const STATEMENT = { iss: 'sluice', jti: 'gen-1' } as unknown as ProofStatement

function setUp(t: Test) {
  const folder = join(t.testdir({}), 'data')
  const path = join(folder, 'proof.key')
  const lines: Record<string, unknown>[] = []
  const log = createLog('info', {
    write: line => void lines.push(JSON.parse(line) as Record<string, unknown>),
  })
  const clock = new TestClock()
  const open = () => new ProofKeys({ path, clock, log })
  const write = (keys: readonly object[]) => writeFileSync(path, JSON.stringify({ keys }), { mode: 0o600 })
  return { folder, path, lines, clock, open, write }
}

function newKey(): Record<string, unknown> {
  return { ...generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' }) }
}

const publicPart = ({ d: _, ...rest }: Record<string, unknown>) => rest

t.test('a missing file is made at the first use, for its owner alone, and read from then on', async t => {
  const { folder, path, open } = setUp(t)
  checkProofKeyFile(path)
  const keys = open()
  t.notOk(existsSync(path), 'nothing is made before')
  const [ring, same] = await Promise.all([keys.current(), keys.current()])
  t.equal(ring, same, 'two that ask at once share it')
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.same(readdirSync(folder), ['proof.key'], 'no draft is left')
  t.equal(keys.current(), ring, 'at once from now on')
  t.same((await open().current()).keys, ring.keys)
  const [key] = ring.keys
  if (key === undefined) throw new Error('no key')
  t.equal(key.kid, await calculateJwkThumbprint(key))
  const { payload } = await compactVerify(ring.sign(STATEMENT), await importJWK(key))
  t.same(JSON.parse(new TextDecoder().decode(payload)), STATEMENT)
  checkProofKeyFile(path)
})

t.test('of many that make the file at the same time one wins', async t => {
  const { folder, open } = setUp(t)
  const rings = await Promise.all(Array.from({ length: 20 }, () => open().current()))
  t.equal(new Set(rings.map(({ keys }) => JSON.stringify(keys))).size, 1)
  t.same(readdirSync(folder), ['proof.key'])
})

t.test('a new first key signs after a rotation, and the older one is still listed', async t => {
  const { folder, path, clock, open, write } = setUp(t)
  mkdirSync(folder)
  const [old, fresh] = [newKey(), newKey()]
  write([old])
  const keys = open()
  const before = await keys.current()
  write([fresh, publicPart(old)])
  t.equal(keys.current(), before, 'not looked for at each use')
  clock.advance(5_000)
  const after = await keys.current()
  t.same(
    after.keys.map(({ x }) => x),
    [fresh['x'], old['x']],
  )
  const [key] = after.keys
  if (key === undefined) throw new Error('no key')
  await compactVerify(after.sign(STATEMENT), await importJWK(key))
  t.notMatch(JSON.stringify(after.keys), /"d"/)
  t.equal(statSync(path).mode & 0o777, 0o600)
})

t.test('a file that becomes bad leaves the keys as they were, and is told', async t => {
  const { path, lines, clock, open } = setUp(t)
  const keys = open()
  const ring = await keys.current()
  writeFileSync(path, '{"keys":')
  clock.advance(5_000)
  t.equal(keys.current(), ring)
  t.match(lines, [{ msg: 'proof keys not reloaded; still using the old ones', reason: /is not a JWK set/ }])
  clock.advance(5_000)
  t.equal(keys.current(), ring)
  t.equal(lines.length, 1, 'once')
})

t.test('a file that cannot be used is refused with what to do, and never quoted', async t => {
  const { folder, path, open, write } = setUp(t)
  mkdirSync(folder)
  const good = newKey()
  const secret = String(good['d'])
  const rsa = { ...generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey.export({ format: 'jwk' }) }
  const refused: readonly [readonly object[], RegExp][] = [
    [[], /is not a JWK set/],
    [[publicPart(good)], /the first key signs, so it must include its private part/],
    [[{ ...good, x: newKey()['x'] }], /key 1 is not an Ed25519 key/],
    [[{ ...good, d: secret.slice(4) }], /key 1 is not an Ed25519 key/],
    [[good, rsa], /key 2 is not an Ed25519 key/],
    [[good, { ...publicPart(good), crv: 'X25519' }], /key 2 is not an Ed25519 key/],
    [[good, { kty: 'oct', k: 'c2VjcmV0' }], /key 2 is not an Ed25519 key/],
  ]
  for (const [keys, message] of refused) {
    write(keys)
    t.throws(() => checkProofKeyFile(path), { constructor: ProofKeyError, message })
    const error = await Promise.resolve(open().current()).catch((thrown: unknown) => thrown)
    t.match(error, { constructor: ProofKeyError, message })
    t.notMatch(String((error as Error).message), secret.slice(4))
  }
  write([good])
  checkProofKeyFile(path)
  chmodSync(path, 0o644)
  t.throws(() => checkProofKeyFile(path), {
    message: `users other than its owner can read it (mode 0644): run chmod 600`,
  })
})
