/** The key file of an embedded installation: who may read it, and what the operator is told. */
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadVaultRing, VaultKeyError, type VaultRing } from '../../src/credentials/vault-keys.ts'

function setUp(t: Test) {
  const folder = join(t.testdir({}), 'data')
  mkdirSync(folder, { mode: 0o755 })
  const path = join(folder, 'vault.key')
  const load = () => loadVaultRing({ vaultKeys: null, storage: { url: `sqlite:${folder}/gateway.db` } })
  return { folder, path, load }
}

function secretOf({ keys: [{ secret }] }: VaultRing): string {
  if (Buffer.isBuffer(secret)) throw new Error('the secret stands in the JavaScript heap')
  return secret.export().toString('base64')
}

t.test('a missing key file is made for its owner alone, and read from then on', async t => {
  const { path, load } = setUp(t)
  const ring = load()
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.equal(ring.source, path)
  const [, secret = ''] = readFileSync(path, 'utf8').trim().split(':')
  t.equal(secretOf(ring), secret)
  const again = load()
  t.equal(secretOf(again), secret)
  t.same([again.source, again.keys.map(({ id }) => id)], [ring.source, ring.keys.map(({ id }) => id)])
})

t.test('a key file that others may read is refused with what to do', async t => {
  const { path, load } = setUp(t)
  load()
  for (const mode of [0o640, 0o604, 0o620, 0o666]) {
    chmodSync(path, mode)
    const text = mode.toString(8).padStart(4, '0')
    t.throws(load, {
      constructor: VaultKeyError,
      message: `${path}: users other than its owner can read it (mode ${text}): run chmod 600 ${path}`,
    })
  }
  for (const mode of [0o600, 0o400]) {
    chmodSync(path, mode)
    t.equal(load().keys.length, 1, `${mode}`)
  }
})

t.test('a folder in which anyone may replace the key file is refused, before a key is used', async t => {
  const { folder, path, load } = setUp(t)
  chmodSync(folder, 0o777)
  t.throws(load, { constructor: VaultKeyError, message: `run chmod o-w ${folder}` })
  chmodSync(folder, 0o1777)
  t.equal(load().keys.length, 1, 'as in /tmp, where nobody may replace the file of another')
  chmodSync(folder, 0o775)
  t.equal(load().keys.length, 1, 'a group of the operator is fine')
  rmSync(path)
})
