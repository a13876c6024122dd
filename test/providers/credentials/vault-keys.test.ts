/** The key file of an embedded installation: who may read it, and what the operator is told. */
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import {
  loadVaultRing,
  VaultKeyError,
  type VaultRing,
} from '../../../src/providers/credentials/vault-keys.ts'

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

t.test('a missing key file is made for its owner alone, once it is kept, and read from then on', async t => {
  const { path, load } = setUp(t)
  const ring = load()
  const other = load()
  t.notOk(existsSync(path), 'nobody knows yet if another key is needed')
  ring.save()
  ring.save()
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.equal(ring.source, path)
  const [, secret = ''] = readFileSync(path, 'utf8').trim().split(':')
  t.equal(secretOf(ring), secret)
  t.throws(() => other.save(), { constructor: VaultKeyError, message: /another process .* start again/ })
  t.match(readFileSync(path, 'utf8'), secret)
  const again = load()
  again.save()
  t.equal(secretOf(again), secret)
  t.same([again.source, again.keys.map(({ id }) => id)], [ring.source, ring.keys.map(({ id }) => id)])
})

t.test('a key file that others may read is refused with what to do', async t => {
  const { path, load } = setUp(t)
  load().save()
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
  t.notOk(existsSync(path))
  load().save()
  chmodSync(folder, 0o777)
  t.throws(load, { constructor: VaultKeyError, message: `run chmod o-w ${folder}` })
})
