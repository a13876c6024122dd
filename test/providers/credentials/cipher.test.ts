import { randomBytes } from 'node:crypto'
import t from 'tap'
import { decrypt, encrypt, NONCE_BYTES, TAG_BYTES } from '../../../src/providers/credentials/cipher.ts'

t.test('what was sealed opens with its key, nonce and context, and with no others', async t => {
  const key = randomBytes(32)
  const nonce = randomBytes(NONCE_BYTES)
  const bound = Buffer.from('workspace')
  const plain = Buffer.from('sk-secret')
  const box = encrypt(key, nonce, plain, bound)
  t.equal(box.length, plain.length + TAG_BYTES)
  t.same(decrypt(key, nonce, box, bound), plain)
  t.equal(decrypt(randomBytes(32), nonce, box, bound), null)
  t.equal(decrypt(key, randomBytes(NONCE_BYTES), box, bound), null)
  t.equal(decrypt(key, nonce, box, Buffer.from('another')), null)
  for (let length = 0; length < box.length; length++)
    t.equal(decrypt(key, nonce, box.subarray(0, length), bound), null, `cut to ${length} bytes`)
  for (let at = 0; at < box.length; at++) {
    const changed = Buffer.from(box)
    changed[at] = (changed[at] ?? 0) ^ 1
    t.equal(decrypt(key, nonce, changed, bound), null, `byte ${at} changed`)
  }
})
