import { randomBytes } from 'node:crypto'
import t from 'tap'
import { deriveKey, endUserKey, hashEndUser } from '../../../src/providers/credentials/vault-keys.ts'

const vaultKey = (id: string) => ({ id, secret: randomBytes(32) })
const [old, newer] = [vaultKey('k1'), vaultKey('k2')]

t.test('the hash outlives a rotation of the master keys', async t => {
  const before = hashEndUser(endUserKey([old]), 'org', 'jane')
  t.equal(hashEndUser(endUserKey([newer, old]), 'org', 'jane'), before)
  t.not(hashEndUser(endUserKey([newer]), 'org', 'jane'), before, 'until the oldest key is gone')
})

t.test('its key is no other key of the installation', async t => {
  t.notOk(endUserKey([old]).equals(old.secret))
  t.notOk(endUserKey([old]).equals(deriveKey(old, 'credentials')))
})

t.test('the border between organization and user cannot be moved', async t => {
  const key = endUserKey([old])
  t.not(hashEndUser(key, 'org', 'ajane'), hashEndUser(key, 'orga', 'jane'))
  t.match(hashEndUser(key, 'org', 'jane'), /^[A-Za-z0-9_-]{43}$/)
  t.not(hashEndUser(key, 'org', 'jane'), hashEndUser(key, 'org', 'Jane'))
})
