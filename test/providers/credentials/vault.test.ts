/** Sealed secrets: what opens them, and that nothing else does. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import {
  createVault,
  ownerOf,
  type SecretOwner,
  VaultError,
} from '../../../src/providers/credentials/vault.ts'
import { deriveKey } from '../../../src/providers/credentials/vault-keys.ts'
import type { SealedSecret } from '../../../src/storage/store.ts'
import { someVaultKey } from '../../support/own-keys.ts'

const [k1, k2] = [someVaultKey('k1'), someVaultKey('k2')]
const vault = createVault([k1])
const owner: SecretOwner = {
  organizationId: 'org_1',
  workspaceId: 'ws_1',
  credentialId: '3f0c2a52-90a4-4b7e-8a51-5a2a6f7f0a01',
  provider: 'anthropic',
  revision: 1,
}
const SECRET = 'sk-ant-api03-canary-0123456789'
const seal = (text = SECRET, whose = owner) => vault.seal(Buffer.from(text), whose)

/** The reason of the refusal; what opened instead, if it did. */
function refusal(open: () => unknown): string {
  try {
    open()
    return 'opened'
  } catch (error) {
    if (!(error instanceof VaultError)) throw error
    const told = `${error.message} ${error.stack} ${JSON.stringify(error)}`
    if (told.includes('canary') || error.cause !== undefined) return 'told something'
    return error.reason
  }
}

t.test('what is sealed opens for its owner, whatever it is', async t => {
  for (const secret of ['', 'x', SECRET, 'ключ 鍵 \u{1F511}', 'y'.repeat(65_536)]) {
    const sealed = seal(secret)
    t.match(sealed, { v: 1, keyId: 'k1' })
    t.equal(vault.open(sealed, owner).toString(), secret)
    t.equal(vault.open(JSON.parse(JSON.stringify(sealed)) as SealedSecret, owner).toString(), secret)
  }
  const bytes = randomBytes(333)
  t.same(vault.open(vault.seal(bytes, owner), owner), bytes)
  t.equal(
    bytes.some(byte => byte !== 0),
    true,
    'the secret given stays the caller’s',
  )
  t.throws(() => createVault([]), TypeError)
})

t.test('nothing of the secret is in its sealed form, and no two are alike', async t => {
  const [a, b] = [seal(), seal()]
  const clear = `${JSON.stringify(a)}${Buffer.from(a.box, 'base64').toString('latin1')}`
  t.notMatch(clear, /canary/)
  t.not(a.box, b.box)
  t.not(a.wrapped, b.wrapped)
  t.equal(Buffer.from(a.wrapped, 'base64').length, 12 + 32 + 16)
  t.equal(Buffer.from(a.box, 'base64').length, 12 + SECRET.length + 16)
})

t.test('each field of the owner counts, in both layers', async t => {
  const sealed = seal()
  for (const field of ['organizationId', 'workspaceId', 'credentialId', 'provider'] as const) {
    for (const value of [
      '',
      'other',
      `${owner[field]} `,
      owner[field].slice(1),
      owner[field].toUpperCase(),
    ]) {
      const other = { ...owner, [field]: value }
      t.equal(
        refusal(() => vault.open(sealed, other)),
        'damaged',
        `${field}: ${value}`,
      )
      t.equal(
        refusal(() => vault.rewrap(sealed, other)),
        'damaged',
      )
      const theirs = seal(SECRET, other)
      t.equal(
        refusal(() => vault.open({ ...sealed, wrapped: theirs.wrapped }, owner)),
        'damaged',
      )
      t.equal(
        refusal(() => vault.open({ ...sealed, box: theirs.box }, owner)),
        'damaged',
      )
      t.equal(
        refusal(() => vault.open(theirs, owner)),
        'damaged',
      )
    }
  }
})

t.test('no character can move the border between two fields', async t => {
  const pairs: readonly (readonly [Partial<SecretOwner>, Partial<SecretOwner>])[] = [
    [
      { organizationId: 'a|b', workspaceId: 'c' },
      { organizationId: 'a', workspaceId: 'b|c' },
    ],
    [
      { organizationId: 'a","b', workspaceId: 'c' },
      { organizationId: 'a', workspaceId: 'b","c' },
    ],
    [
      { organizationId: 'a\0b', workspaceId: 'c' },
      { organizationId: 'a', workspaceId: 'b\0c' },
    ],
    [
      { organizationId: 'ab', workspaceId: '' },
      { organizationId: 'a', workspaceId: 'b' },
    ],
    [{ organizationId: '\ud800' }, { organizationId: '\ud801' }],
    [{ organizationId: '\ud800' }, { organizationId: '\ufffd' }],
    [{ provider: 'amazon-bedrock' }, { provider: 'amazon-bedrock/claude-on-aws' }],
    [{ organizationId: 'ws_1', workspaceId: 'org_1' }, {}],
  ]
  for (const [one, other] of pairs) {
    const sealed = seal(SECRET, { ...owner, ...one })
    t.equal(vault.open(sealed, { ...owner, ...one }).toString(), SECRET)
    t.equal(
      refusal(() => vault.open(sealed, { ...owner, ...other })),
      'damaged',
    )
  }
})

/** The form written down a second time: what is in the database today has to open tomorrow. */
function byHand(key: Buffer, base64: string, bound: readonly string[]): Buffer {
  const bytes = Buffer.from(base64, 'base64')
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, 12))
  decipher.setAAD(Buffer.from(JSON.stringify(bound))).setAuthTag(bytes.subarray(-16))
  return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()])
}

t.test('the form is the documented one', async t => {
  const { organizationId, workspaceId, credentialId, provider } = owner
  const names = [organizationId, workspaceId, credentialId, provider]
  const sealed = seal()
  const dataKey = byHand(deriveKey(k1, 'credentials'), sealed.wrapped, ['v1', 'data-key', 'k1', ...names])
  t.equal(dataKey.length, 32)
  t.equal(byHand(dataKey, sealed.box, ['v1', 'secret', ...names]).toString(), SECRET)
})

t.test('the inner layer alone is bound to the owner too', async t => {
  const { organizationId, workspaceId, credentialId, provider } = owner
  const names = [organizationId, workspaceId, credentialId, provider]
  const sealed = seal()
  const master = deriveKey(k1, 'credentials')
  const dataKey = byHand(master, sealed.wrapped, ['v1', 'data-key', 'k1', ...names])
  for (const field of ['organizationId', 'workspaceId', 'credentialId', 'provider'] as const) {
    // Somebody with the master key at hand gives the data key to another owner, but leaves the box.
    const thief = { ...owner, [field]: 'thief' }
    const nonce = randomBytes(12)
    const cipher = createCipheriv('aes-256-gcm', master, nonce)
    const bound = [thief.organizationId, thief.workspaceId, thief.credentialId, thief.provider]
    cipher.setAAD(Buffer.from(JSON.stringify(['v1', 'data-key', 'k1', ...bound])))
    const text = Buffer.concat([nonce, cipher.update(dataKey), cipher.final(), cipher.getAuthTag()])
    const stolen = { ...sealed, wrapped: text.toString('base64') }
    t.equal(vault.rewrap(stolen, thief).box, sealed.box, 'the outer layer opens')
    t.equal(
      refusal(() => vault.open(stolen, thief)),
      'damaged',
    )
  }
})

t.test('an older key of the same credential does not open in the place of a newer one', async t => {
  const [first, second, third] = [1, 2, 3].map(revision => ({
    owner: { ...owner, revision },
    sealed: vault.seal(Buffer.from(`key ${revision}`), { ...owner, revision }),
  }))
  for (const each of [first, second, third]) {
    for (const other of [first, second, third]) {
      if (each === undefined || other === undefined) throw new Error('three were made')
      const open = () => vault.open(each.sealed, other.owner)
      if (each === other) t.match(open().toString(), /^key /)
      else t.equal(refusal(open), 'damaged')
    }
  }
  if (second === undefined) throw new Error('it was made')
  const both = createVault([k2, k1])
  const rewrapped = both.rewrap(second.sealed, second.owner)
  t.equal(both.open(rewrapped, second.owner).toString(), 'key 2', 'another master key keeps the revision')
  t.equal(
    refusal(() => both.open(rewrapped, owner)),
    'damaged',
  )
})

t.test('the layers of two secrets cannot be mixed, nor one passed for the other', async t => {
  const [a, b] = [seal('one'), seal('two')]
  t.equal(
    refusal(() => vault.open({ ...a, box: b.box }, owner)),
    'damaged',
  )
  t.equal(
    refusal(() => vault.open({ ...a, wrapped: b.wrapped }, owner)),
    'damaged',
  )
  t.equal(
    refusal(() => vault.open({ ...a, wrapped: a.box }, owner)),
    'damaged',
  )
  // Also where the secret is as long as a data key.
  const long = vault.seal(randomBytes(32), owner)
  t.equal(
    refusal(() => vault.open({ ...long, wrapped: long.box }, owner)),
    'damaged',
  )
  t.equal(
    refusal(() => vault.open({ ...long, box: long.wrapped }, owner)),
    'damaged',
  )
})

/** The same text with one bit of its bytes turned. */
function turned(base64: string, bit: number): string {
  const bytes = Buffer.from(base64, 'base64')
  bytes.writeUInt8(bytes.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
  return bytes.toString('base64')
}

t.test('every bit of a small secret counts', async t => {
  const sealed = seal('k')
  let refused = 0
  for (const part of ['wrapped', 'box'] as const) {
    const bits = Buffer.from(sealed[part], 'base64').length * 8
    for (let bit = 0; bit < bits; bit++) {
      const changed = { ...sealed, [part]: turned(sealed[part], bit) }
      if (refusal(() => vault.open(changed, owner)) === 'damaged') refused++
    }
  }
  t.equal(refused, (60 + 29) * 8)
})

t.test('a byte changed anywhere in two hundred secrets is refused', async t => {
  let blobs = 0
  let flips = 0
  for (; blobs < 200; blobs++) {
    const sealed = vault.seal(randomBytes(1 + (blobs % 64)), owner)
    for (const part of ['wrapped', 'box'] as const) {
      const bytes = Buffer.from(sealed[part], 'base64')
      for (let at = 0; at < bytes.length; at++) {
        const copy = Buffer.from(bytes)
        copy.writeUInt8(copy.readUInt8(at) ^ (1 + ((blobs * 7 + at) % 255)), at)
        if (refusal(() => vault.open({ ...sealed, [part]: copy.toString('base64') }, owner)) !== 'damaged')
          t.fail(`${part} ${at}`)
        flips++
      }
    }
  }
  t.comment(`${flips} changes of ${blobs} secrets, all refused`)
  t.ok(flips > 20_000)
})

t.test('any other text in place of a part is refused', async t => {
  const sealed = seal()
  const part = fc.constantFrom('wrapped' as const, 'box' as const)
  const holds = () =>
    fc.assert(
      fc.property(
        part,
        fc.oneof(fc.string(), fc.base64String(), fc.uint8Array({ maxLength: 200 })),
        (name, raw) => {
          const text = typeof raw === 'string' ? raw : Buffer.from(raw).toString('base64')
          return (
            text === sealed[name] ||
            refusal(() => vault.open({ ...sealed, [name]: text }, owner)) === 'damaged'
          )
        },
      ),
      { numRuns: 2_000, seed: 42 },
    )
  t.doesNotThrow(holds)
  // Other spellings of the same bytes: the lenient reader of the runtime takes them all.
  for (const spelled of [
    ` ${sealed.box}`,
    `${sealed.box}\n`,
    `${sealed.box}=`,
    sealed.box.replace(/=+$/, ''),
    `${sealed.box.slice(0, 8)}*${sealed.box.slice(8)}`,
  ]) {
    if (spelled === sealed.box) continue
    t.equal(Buffer.from(spelled, 'base64').equals(Buffer.from(sealed.box, 'base64')), true)
    t.equal(
      refusal(() => vault.open({ ...sealed, box: spelled }, owner)),
      'damaged',
    )
  }
  for (let length = 0; length < sealed.wrapped.length; length++)
    t.equal(
      refusal(() => vault.open({ ...sealed, wrapped: sealed.wrapped.slice(0, length) }, owner)),
      'damaged',
    )
})

t.test('another version or master key is refused', async t => {
  const sealed = seal()
  for (const v of [0, 2, -1, Number.NaN])
    t.equal(
      refusal(() => vault.open({ ...sealed, v }, owner)),
      'damaged',
    )
  const both = createVault([k2, k1])
  t.equal(
    refusal(() => both.open({ ...sealed, keyId: 'k2' }, owner)),
    'damaged',
  )
  for (const keyId of ['k2', '', 'K1', '__proto__'])
    t.equal(
      refusal(() => vault.open({ ...sealed, keyId }, owner)),
      'unknown_key',
    )
})

t.test('a wrong ring opens nothing, even when its keys have the right names', async t => {
  const sealed = seal()
  t.equal(
    refusal(() => createVault([someVaultKey('k1')]).open(sealed, owner)),
    'damaged',
  )
  t.equal(
    refusal(() => createVault([k2]).open(sealed, owner)),
    'unknown_key',
  )
  t.equal(
    refusal(() => createVault([{ id: 'k1', secret: k2.secret }]).open(sealed, owner)),
    'damaged',
  )
  t.equal(
    refusal(() =>
      createVault([{ id: 'other', secret: k1.secret }]).open({ ...sealed, keyId: 'other' }, owner),
    ),
    'damaged',
    'the name of the master key is bound too',
  )
  t.equal(
    refusal(() => createVault([{ id: 'k1', secret: deriveKey(k1, 'end-user') }]).open(sealed, owner)),
    'damaged',
    'what is derived for another purpose does not open it',
  )
})

t.test('the first key seals, every key opens', async t => {
  const old = seal()
  const ring = createVault([k2, k1])
  t.equal(ring.currentKeyId, 'k2')
  t.same([ring.has('k1'), ring.has('k2'), ring.has('k3')], [true, true, false])
  t.equal(ring.open(old, owner).toString(), SECRET)
  t.equal(ring.seal(Buffer.from('x'), owner).keyId, 'k2')
})

t.test('wrapping anew changes the master key and leaves the box', async t => {
  const old = seal()
  const ring = createVault([k2, k1])
  const anew = ring.rewrap(old, owner)
  t.match(anew, { v: 1, keyId: 'k2', box: old.box })
  t.not(anew.wrapped, old.wrapped)
  t.equal(ring.open(anew, owner).toString(), SECRET)
  t.equal(createVault([k2]).open(anew, owner).toString(), SECRET)
  t.equal(
    refusal(() => vault.open(anew, owner)),
    'unknown_key',
  )
  t.equal(
    refusal(() => ring.open({ ...anew, wrapped: old.wrapped }, owner)),
    'damaged',
  )
  t.equal(
    refusal(() => createVault([k2]).rewrap(old, owner)),
    'unknown_key',
  )
})

t.test('a ring keeps working when the bytes it was made of are gone', async t => {
  const key = someVaultKey('k9')
  const made = createVault([key])
  const sealed = made.seal(Buffer.from(SECRET), owner)
  if (Buffer.isBuffer(key.secret)) key.secret.fill(0)
  t.equal(made.open(sealed, owner).toString(), SECRET)
})

t.test('nonces never repeat over 100,000 seals', async t => {
  const SEALS = 100_000
  const seen = new Set<string>()
  const secret = Buffer.from('s')
  const nonce = (part: string) => part.slice(0, 16)
  for (let n = 0; n < SEALS; n++) {
    const { wrapped, box } = vault.seal(secret, owner)
    seen.add(nonce(wrapped)).add(nonce(box))
  }
  t.equal(seen.size, 2 * SEALS, 'no nonce came twice, in either layer')
})

t.test('the owner of a record is what the record says', async t => {
  const record = { id: 'c', organizationId: 'o', workspaceId: 'w', provider: 'p', keyRevision: 3, label: 'x' }
  const named = { credentialId: 'c', organizationId: 'o', workspaceId: 'w', provider: 'p' }
  t.same(ownerOf(record), { ...named, revision: 3 })
})
