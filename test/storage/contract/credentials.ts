/** The contract of own provider credentials. */
import type { Test } from 'tap'
import type { CredentialRecord } from '../../../src/storage/store.ts'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someCredential, someSeal } from '../records.ts'

const LATER = '2026-03-01T00:00:00.000Z'
const RESTRICTED = {
  name: ODD_TEXT,
  label: ODD_TEXT,
  disabled: true,
  isRequired: true,
  isFallback: true,
  isByokOnly: true,
  allowedApiKeyHashes: ['a'.repeat(64), 'b'.repeat(64)],
  allowedModels: ['acme/fast-1', ODD_TEXT],
  allowedUserIds: [ODD_TEXT],
  declaredRegion: 'europe',
  declaredZdr: false,
} as const

export async function credentialContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a credential comes back as it was added, to its own organization only', async t => {
    const { credentials } = await opened(t)
    const plain = await credentials.add(someCredential())
    const full = await credentials.add(
      someCredential({ ...RESTRICTED, provider: 'anthropic/2', sealed: someSeal({ v: 7, keyId: ODD_TEXT }) }),
    )
    for (const credential of [plain, full]) {
      const { id } = credential
      t.same(await credentials.find('org_1', id), credential)
      t.equal(await credentials.find('org_2', id), null)
      t.equal(await credentials.change('org_2', id, { disabled: true }, LATER), null)
      t.equal(await credentials.remove('org_2', id), false)
      t.same(await credentials.find('org_1', id), credential, 'untouched')
    }
    for (const id of ODD_IDS) {
      t.equal(await credentials.find('org_1', id), null)
      t.equal(await credentials.change('org_1', id, {}, LATER), null)
      t.equal(await credentials.remove('org_1', id), false)
    }
    t.same(await credentials.ofWorkspace('org_2', 'ws_1'), [])
    t.same(await credentials.ofWorkspace('org_1', 'ws_2'), [])
  })

  await t.test('sort orders are given in turn within workspace and provider', async t => {
    const { credentials } = await opened(t)
    const add = async (fields: Partial<CredentialRecord> = {}) =>
      await credentials.add(someCredential({ sortOrder: 99, ...fields }))
    const [one, two, three] = [await add(), await add(), await add()]
    t.same(
      [one, two, three].map(record => record.sortOrder),
      [0, 1, 2],
    )
    for (const fields of [{ provider: 'openai' }, { workspaceId: 'ws_2' }, { organizationId: 'org_2' }])
      t.equal((await add(fields)).sortOrder, 0)
    await credentials.remove('org_1', two.id)
    t.equal((await add()).sortOrder, 3)
  })

  await t.test('of credentials added at once each has a sort order of its own', async t => {
    const { credentials } = await opened(t)
    // Some at a time: they take turns, and nobody waits for ever for a connection of a pool.
    const added: CredentialRecord[] = []
    while (added.length < 48)
      added.push(...(await Promise.all(Array.from({ length: 8 }, () => credentials.add(someCredential())))))
    const orders = added.map(record => record.sortOrder).sort((a, b) => a - b)
    t.same(
      orders,
      Array.from({ length: 48 }, (_, at) => at),
    )
    const stored = await credentials.ofWorkspace('org_1', 'ws_1')
    t.same(
      stored,
      [...added].sort((a, b) => a.sortOrder - b.sortOrder),
      'and is stored with it',
    )
  })

  await t.test('credentials are listed by provider and sort order, in pages and as a whole', async t => {
    const { credentials } = await opened(t)
    const place = { organizationId: 'org_1', workspaceId: 'ws_1' }
    for (const provider of ['openai', 'anthropic', 'openai', 'anthropic', 'groq'])
      await credentials.add(someCredential({ provider, disabled: provider === 'groq' }))
    await credentials.add(someCredential({ workspaceId: 'ws_2' }))
    await credentials.add(someCredential({ organizationId: 'org_2' }))
    const named = (items: readonly CredentialRecord[]) => items.map(item => item.provider + item.sortOrder)
    const all = ['anthropic0', 'anthropic1', 'groq0', 'openai0', 'openai1']
    t.same(named(await credentials.ofWorkspace('org_1', 'ws_1')), all)
    const page = async (filter: typeof place & { provider?: string }, offset: number) => {
      const { items, total } = await credentials.page(filter, { offset, limit: 3 })
      return [named(items), total]
    }
    t.same(await page(place, 0), [all.slice(0, 3), 5])
    t.same(await page(place, 3), [all.slice(3), 5])
    t.same(await page(place, 6), [[], 5])
    t.same(await page({ ...place, provider: 'openai' }, 0), [['openai0', 'openai1'], 2])
    for (const provider of ODD_IDS) t.same(await page({ ...place, provider }, 0), [[], 0])
  })

  await t.test('a change of a credential changes what it names and nothing else, null clears', async t => {
    const { credentials } = await opened(t)
    const [one, other] = [await credentials.add(someCredential()), await credentials.add(someCredential())]
    const change = { ...RESTRICTED, sealed: someSeal(), keyRevision: 2, sortOrder: 8 }
    const changed = { ...one, ...change, updatedAt: LATER }
    t.same(await credentials.change('org_1', one.id, change, LATER), changed)
    t.same(await credentials.change('org_1', one.id, {}, LATER), changed)
    const cleared = {
      name: null,
      disabled: false,
      allowedApiKeyHashes: null,
      allowedModels: null,
      allowedUserIds: null,
      declaredRegion: null,
      declaredZdr: null,
    }
    t.same(await credentials.change('org_1', one.id, cleared, LATER), { ...changed, ...cleared })
    t.match(await credentials.change('org_1', one.id, { declaredZdr: true }, LATER), { declaredZdr: true })
    t.same(await credentials.find('org_1', other.id), other)
  })

  await t.test('a change of a credential that was changed since it was seen is refused', async t => {
    const { credentials } = await opened(t)
    const one = await credentials.add(someCredential({ declaredRegion: null }))
    const { id } = one
    t.match(await credentials.change('org_1', id, { isFallback: true }, LATER, one), { isFallback: true })
    t.equal(await credentials.change('org_1', id, { isRequired: true }, LATER, one), null)
    const other = { ...one, isFallback: true, declaredRegion: 'us' as const }
    t.equal(await credentials.change('org_1', id, { name: 'x' }, LATER, other), null)
    t.match(await credentials.find('org_1', id), { isFallback: true, isRequired: false, name: one.name })
    const crossing = [{ isRequired: true }, { isByokOnly: true }].map(change =>
      credentials.change('org_1', id, change, LATER, { ...one, isFallback: true }),
    )
    t.equal(
      (await Promise.all(crossing)).filter(record => record === null).length,
      1,
      'of two one is in time',
    )
  })

  await t.test('a removed credential is gone', async t => {
    const { credentials } = await opened(t)
    const [one, other] = [await credentials.add(someCredential()), await credentials.add(someCredential())]
    t.equal(await credentials.remove('org_1', one.id), true)
    t.equal(await credentials.remove('org_1', one.id), false)
    t.equal(await credentials.find('org_1', one.id), null)
    t.same(await credentials.ofWorkspace('org_1', 'ws_1'), [other])
  })

  await t.test('credentials are counted and found by the master key that wraps them', async t => {
    const { credentials } = await opened(t)
    t.same(await credentials.countByKeyId(), new Map())
    const records: CredentialRecord[] = []
    for (const keyId of ['k1', 'k2', 'k1', 'k3', 'k1'])
      records.push(
        await credentials.add(
          someCredential({ organizationId: `org_${keyId}`, sealed: someSeal({ keyId }) }),
        ),
      )
    t.same(
      await credentials.countByKeyId(),
      new Map([
        ['k1', 3],
        ['k2', 1],
        ['k3', 1],
      ]),
    )
    const old = await credentials.notWrappedBy('k2', 10)
    t.same(
      new Set(old),
      new Set(records.filter(record => record.sealed.keyId !== 'k2')),
      'of all organizations',
    )
    t.equal((await credentials.notWrappedBy('k2', 3)).length, 3)
    t.equal((await credentials.notWrappedBy(ODD_TEXT, 10)).length, 5)
  })

  await t.test('a seal is replaced only while it is the one that was read', async t => {
    const { credentials } = await opened(t)
    const credential = await credentials.add(someCredential())
    const { id, sealed } = credential
    const next = someSeal({ keyId: 'k2' })
    const stale = [{ v: 2 }, { keyId: 'k9' }, { wrapped: 'x' }, { box: 'x' }]
    for (const part of stale) t.equal(await credentials.reseal(id, { ...sealed, ...part }, next), false)
    t.equal(await credentials.reseal('', sealed, next), false)
    t.same(await credentials.find('org_1', id), credential)
    const wins = await Promise.all(
      Array.from({ length: 10 }, (_, at) =>
        credentials.reseal(id, sealed, someSeal({ keyId: 'k2', box: `box ${at}` })),
      ),
    )
    t.equal(wins.filter(Boolean).length, 1)
    const winner = { ...credential, sealed: { keyId: 'k2', box: `box ${wins.indexOf(true)}` } }
    t.match(await credentials.find('org_1', id), winner)
  })
}
