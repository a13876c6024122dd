/** Texts that clients keep for the gateway: nobody else opens them, and nobody changes them. */
import { randomBytes } from 'node:crypto'
import t from 'tap'
import { createTextSeal } from '../../../src/providers/credentials/sealed-text.ts'
import { parseVaultKeys } from '../../../src/providers/credentials/vault-keys.ts'

const entry = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`
const OWNER = ['org', 'workspace']
const [FIRST, SECOND] = [entry('k1'), entry('k2')]
const sealOf = (keys: string, purpose = 'test') => createTextSeal(parseVaultKeys(keys), purpose)

t.test('a text opens for its owner, and reveals nothing', async t => {
  const seal = sealOf(FIRST)
  const sealed = seal.seal('Dig a hole', OWNER)
  t.equal(seal.open(sealed, OWNER), 'Dig a hole')
  t.match(sealed, /^k1\.[\w-]+$/)
  t.notMatch(Buffer.from(sealed.slice(3), 'base64url').toString('latin1'), 'Dig')
  t.not(seal.seal('Dig a hole', OWNER), sealed)
})

t.test('it opens for nobody else, and for no other purpose', async t => {
  const sealed = sealOf(FIRST).seal('Dig a hole', OWNER)
  t.equal(sealOf(FIRST).open(sealed, ['org', 'other']), null)
  t.equal(sealOf(FIRST).open(sealed, ['orgworkspace', '']), null)
  t.equal(sealOf(FIRST, 'other').open(sealed, OWNER), null)
  t.equal(sealOf(SECOND).open(sealed, OWNER), null)
  t.equal(sealOf(SECOND).open(sealed.replace('k1.', 'k2.'), OWNER), null)
})

t.test('it opens after the master keys have rotated', async t => {
  const sealed = sealOf(FIRST).seal('Dig a hole', OWNER)
  const rotated = sealOf(`${SECOND},${FIRST}`)
  t.equal(rotated.open(sealed, OWNER), 'Dig a hole')
  t.match(rotated.seal('Dig a hole', OWNER), /^k2\./)
})

t.test('each byte counts', async t => {
  const seal = sealOf(FIRST)
  const sealed = seal.seal('Dig', OWNER)
  const bytes = Buffer.from(sealed.slice(3), 'base64url')
  for (const at of bytes.keys()) {
    const changed = Buffer.from(bytes)
    changed.writeUInt8((changed.readUInt8(at) ^ 1) & 255, at)
    t.equal(seal.open(`k1.${changed.toString('base64url')}`, OWNER), null)
  }
  for (const text of ['', 'k1', 'k1.', 'k1.AAAA', 'k9.AAAA', `${sealed}AAAA`, sealed.slice(0, 12)]) {
    t.equal(seal.open(text, OWNER), null)
  }
})
