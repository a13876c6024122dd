/** The contract of API keys. */
import type { Test } from 'tap'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someEndUser, someKey, someWorkspace } from '../records.ts'

const LATER = '2026-03-01T00:00:00.000Z'
const at = (day: number): string => `2026-01-0${day}T00:00:00.000Z`

let secrets = 0

function secretOf(day: number) {
  secrets++
  return { hash: secrets.toString(16).padStart(64, 'e'), label: `secret ${secrets}`, createdAt: at(day) }
}

export async function keyContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a key comes back as it was added', async t => {
    const { keys } = await opened(t)
    const plain = someKey()
    const full = someKey({
      kind: 'management',
      name: ODD_TEXT,
      workspaceId: null,
      disabled: true,
      expiresAt: '2027-01-01T00:00:00.000Z',
      // The largest that there is: a billion dollars.
      limit: 1e15,
      limitReset: 'daily',
      includeByokInLimit: true,
      creatorUserId: ODD_TEXT,
      role: 'viewer',
      identity: ODD_TEXT,
      traceTrusted: true,
      updatedAt: '2026-02-01T00:00:00.000Z',
    })
    t.equal(await keys.add(plain), true)
    t.equal(await keys.add(full), true)
    t.same(await keys.find(plain.hash), plain)
    t.same(await keys.find(full.hash), full)
  })

  await t.test('a key is found with the rate limits of its workspace and of end users', async t => {
    const { keys, workspaces, endUsers } = await opened(t)
    const slow = { requests_per_minute: 5, tokens_per_minute: null, parallel: 2 }
    const wide = { requests_per_minute: null, tokens_per_minute: 1_000, parallel: null }
    const workspace = someWorkspace({ rateLimit: wide })
    await workspaces.add(workspace)
    const limited = someKey({ rateLimit: slow, workspaceId: workspace.id })
    const alone = someKey({ workspaceId: 'ws_none' })
    const foreign = someKey({ organizationId: 'org_2', workspaceId: workspace.id })
    for (const key of [limited, alone, foreign]) await keys.add(key)
    const ratesOf = async (key: { readonly hash: string }) => (await keys.find(key.hash))?.rates
    t.same(await ratesOf(limited), { key: slow, workspace: wide, hasEndUserLimits: false })
    t.equal(await ratesOf(alone), null)
    await endUsers.add(someEndUser())
    t.equal(await ratesOf(alone), null, 'an end user without limits')
    await endUsers.add(someEndUser({ rateLimit: slow }))
    t.same(await ratesOf(alone), { key: null, workspace: null, hasEndUserLimits: true })
    t.equal(await ratesOf(foreign), null, 'another organization')
    const changed = await keys.change('org_1', limited.hash, { rateLimit: null }, LATER)
    t.equal(changed?.rateLimit, null)
    t.same(await ratesOf(limited), { key: null, workspace: wide, hasEndUserLimits: true })
  })

  await t.test('a key is found with its own policy for loops, or that of its workspace', async t => {
    const { keys, workspaces } = await opened(t)
    const policy = { action: 'stop', repeats: 3, cycles: 4, usd: 0.5 } as const
    const wide = { action: 'tell', repeats: 9, cycles: 4, usd: null } as const
    const workspace = someWorkspace({ loops: wide })
    await workspaces.add(workspace)
    const own = someKey({ loops: policy, workspaceId: workspace.id })
    const inherited = someKey({ workspaceId: workspace.id })
    for (const key of [own, inherited]) await keys.add(key)
    t.same((await keys.find(own.hash))?.loopPolicy, policy)
    t.same((await keys.find(inherited.hash))?.loopPolicy, wide)
    t.same((await keys.change('org_1', own.hash, { loops: null }, LATER))?.loops, null)
    t.same((await keys.find(own.hash))?.loopPolicy, wide)
  })

  await t.test('keys of console sessions go when they are over, and alert nobody before', async t => {
    const { keys, alerts } = await opened(t)
    const identity = 'https://login.test ann-1'
    const over = someKey({ identity, expiresAt: at(1) })
    const open = someKey({ identity, expiresAt: at(3) })
    const endless = someKey({ expiresAt: null })
    const expired = someKey({ expiresAt: at(1) })
    const expiring = someKey({ expiresAt: at(3) })
    for (const key of [over, open, endless, expired, expiring]) await keys.add(key)
    t.same(
      (await alerts.expiringKeys(at(2), at(4), 10, 10)).map(({ hash }) => hash),
      [expiring.hash],
    )
    await keys.removeSessions(at(2))
    t.equal(await keys.find(over.hash), null)
    for (const key of [open, endless, expired, expiring]) t.same(await keys.find(key.hash), key)
  })

  await t.test('an unknown hash is null, whatever it looks like', async t => {
    const { keys } = await opened(t)
    await keys.add(someKey())
    for (const hash of ['f'.repeat(64), ...ODD_IDS]) {
      t.equal(await keys.find(hash), null)
    }
  })

  await t.test('a hash that is there already is left as it is', async t => {
    const { keys } = await opened(t)
    const first = someKey({ name: 'first' })
    t.equal(await keys.add(first), true)
    t.equal(await keys.add({ ...first, name: 'second', disabled: true }), false)
    t.same(await keys.find(first.hash), first)
    t.equal(await keys.count(), 1)
  })

  await t.test(
    'a key that was deleted is remembered by its hash, one of another organization is not',
    async t => {
      const { keys } = await opened(t)
      const key = someKey()
      await keys.add(key)
      t.equal(await keys.wasRemoved(key.hash), false)
      t.equal(await keys.remove('org_other', key.hash), false)
      t.equal(await keys.wasRemoved(key.hash), false)
      for (const _ of ['first', 'again']) {
        t.equal(await keys.remove(key.organizationId, key.hash), true)
        t.equal(await keys.wasRemoved(key.hash), true)
        await keys.add(key)
      }
    },
  )

  await t.test('of many who add the same key at once exactly one does', async t => {
    const { keys } = await opened(t)
    const key = someKey()
    const added = await Promise.all(Array.from({ length: 20 }, () => keys.add(key)))
    t.equal(added.filter(Boolean).length, 1)
    t.equal(await keys.count(), 1)
  })

  await t.test('keys are listed newest first, of one organization only', async t => {
    const { keys } = await opened(t)
    for (const day of [2, 3, 1]) await keys.add(someKey({ createdAt: at(day) }))
    await keys.add(someKey({ organizationId: 'org_2' }))
    const list = await keys.list('org_1')
    t.same(
      list.map(key => key.createdAt),
      [at(3), at(2), at(1)],
    )
    t.same(await keys.list('org_3'), [])
    t.equal(await keys.count(), 4, 'all organizations count')
  })

  await t.test('a page of keys has its part, the number of all, and only one organization', async t => {
    const { keys } = await opened(t)
    const five = [1, 2, 3, 4, 5].map(day => someKey({ createdAt: at(day), disabled: day === 2 }))
    const elsewhere = someKey({ workspaceId: 'ws_2' })
    for (const key of [...five, elsewhere, someKey({ organizationId: 'org_2' })]) await keys.add(key)
    const filter = { organizationId: 'org_1', workspaceId: 'ws_1', includeDisabled: true }
    const days = async (offset: number, limit: number, fields = {}) => {
      const { items, total } = await keys.page({ ...filter, ...fields }, { offset, limit })
      return [items.map(key => key.createdAt.slice(9, 10)).join(''), total]
    }
    t.same(await days(0, 2), ['54', 5])
    t.same(await days(2, 2), ['32', 5])
    t.same(await days(4, 2), ['1', 5])
    t.same(await days(5, 2), ['', 5], 'behind the end')
    t.same(await days(0, 10, { includeDisabled: false }), ['5431', 4])
    const all = await keys.page({ organizationId: 'org_1', includeDisabled: true }, { offset: 0, limit: 100 })
    t.equal(all.total, 6)
    t.same(
      all.items.find(key => key.hash === elsewhere.hash),
      elsewhere,
    )
    t.same(await keys.page({ organizationId: 'org_3', includeDisabled: true }, { offset: 0, limit: 10 }), {
      items: [],
      total: 0,
    })
  })

  await t.test('pages of keys made at once neither repeat nor miss any', async t => {
    const { keys } = await opened(t)
    await Promise.all(Array.from({ length: 25 }, () => keys.add(someKey())))
    const seen: string[] = []
    for (let offset = 0; offset < 25; offset += 10) {
      const { items } = await keys.page(
        { organizationId: 'org_1', includeDisabled: false },
        { offset, limit: 10 },
      )
      seen.push(...items.map(key => key.hash))
    }
    t.equal(seen.length, 25)
    t.equal(new Set(seen).size, 25)
  })

  await t.test('a key is found, changed and removed by its own organization alone', async t => {
    const { keys } = await opened(t)
    const key = someKey()
    await keys.add(key)
    t.same(await keys.findIn('org_1', key.hash), key)
    t.equal(await keys.findIn('org_2', key.hash), null)
    t.equal(await keys.change('org_2', key.hash, { name: 'theirs' }, LATER), null)
    t.equal(await keys.remove('org_2', key.hash), false)
    for (const id of ODD_IDS) {
      t.equal(await keys.findIn('org_1', id), null)
      t.equal(await keys.change('org_1', id, {}, LATER), null)
      t.equal(await keys.remove('org_1', id), false)
    }
    t.same(await keys.find(key.hash), key, 'untouched')
    t.equal(await keys.remove('org_1', key.hash), true)
    t.equal(await keys.remove('org_1', key.hash), false)
    t.equal(await keys.find(key.hash), null)
  })

  await t.test('a change of a key changes what it names and nothing else, null clears', async t => {
    const { keys } = await opened(t)
    const key = someKey({ limit: 5, limitReset: 'weekly', expiresAt: at(9), creatorUserId: 'u' })
    const other = someKey()
    await keys.add(key)
    await keys.add(other)
    const change = {
      name: ODD_TEXT,
      disabled: true,
      limit: 1e15,
      limitReset: 'monthly',
      includeByokInLimit: true,
      role: 'operator',
      traceTrusted: true,
    } as const
    t.same(await keys.change('org_1', key.hash, change, LATER), { ...key, ...change, updatedAt: LATER })
    const cleared = { expiresAt: null, limit: null, limitReset: null, disabled: false }
    const both = { ...key, ...change, ...cleared, updatedAt: LATER }
    t.same(await keys.change('org_1', key.hash, cleared, LATER), both)
    t.same(await keys.change('org_1', key.hash, {}, at(8)), { ...both, updatedAt: at(8) })
    t.same(await keys.find(key.hash), { ...both, updatedAt: at(8) })
    t.same(await keys.find(other.hash), other)
  })

  await t.test('a rotated key is found by each of its secrets, and named by its first one', async t => {
    const { keys } = await opened(t)
    const key = someKey({ label: 'first' })
    const other = someKey()
    await keys.add(key)
    await keys.add(other)
    t.same(await keys.secrets('org_1', key.hash, at(1)), [
      { hash: key.hash, label: 'first', createdAt: key.createdAt, expiresAt: null },
    ])
    const second = secretOf(2)
    const rotated = { ...key, label: second.label, rotatedAt: at(2), updatedAt: at(2) }
    t.same(await keys.rotate('org_1', key.hash, second, at(4), 10), rotated)
    t.same(await keys.findIn('org_1', key.hash), rotated)
    t.same(await keys.find(second.hash), rotated)
    t.same(await keys.find(key.hash), { ...rotated, label: 'first', secretExpiresAt: at(4) })
    t.equal(await keys.findIn('org_1', second.hash), null, 'a later secret names nothing')
    const third = secretOf(3)
    await keys.rotate('org_1', key.hash, third, at(9), 10)
    t.equal((await keys.find(key.hash))?.secretExpiresAt, at(4), 'an end never moves back')
    t.equal((await keys.find(second.hash))?.secretExpiresAt, at(9))
    t.same(
      (await keys.secrets('org_1', key.hash, at(3))).map(({ label, expiresAt }) => [label, expiresAt]),
      [
        [third.label, null],
        [second.label, at(9)],
        ['first', at(4)],
      ],
    )
    t.equal((await keys.secrets('org_1', key.hash, at(4))).length, 2, 'those that live')
    t.same(await keys.secrets('org_2', key.hash, at(3)), [])
    t.same(await keys.find(other.hash), other)
    t.equal((await keys.list('org_1')).length, 2)
  })

  await t.test('secrets that have ended are removed with the next rotation, and never come back', async t => {
    const { keys } = await opened(t)
    const key = someKey()
    await keys.add(key)
    const [second, third, fourth] = [secretOf(2), secretOf(3), secretOf(4)]
    await keys.rotate('org_1', key.hash, second, at(2), 10)
    await keys.rotate('org_1', key.hash, third, at(3), 10)
    t.equal(await keys.wasRemoved(second.hash), false)
    t.equal(await keys.add(someKey({ hash: second.hash })), false, 'a secret is no new key')
    await keys.rotate('org_1', key.hash, fourth, at(9), 10)
    t.equal(await keys.find(second.hash), null)
    t.equal(await keys.wasRemoved(second.hash), true)
    t.equal((await keys.find(key.hash))?.secretExpiresAt, at(2), 'the first one stays: it names the key')
    t.equal(await keys.remove('org_1', key.hash), true)
    for (const hash of [key.hash, second.hash, third.hash, fourth.hash]) {
      t.equal(await keys.find(hash), null)
      t.equal(await keys.wasRemoved(hash), true)
    }
  })

  await t.test('a key has a bounded number of living secrets, and rotations come one by one', async t => {
    const { keys } = await opened(t)
    const key = someKey()
    await keys.add(key)
    t.equal(await keys.rotate('org_2', key.hash, secretOf(2), at(9), 3), null)
    for (const id of ODD_IDS) t.equal(await keys.rotate('org_1', id, secretOf(2), at(9), 3), null)
    await keys.rotate('org_1', key.hash, secretOf(2), at(9), 3)
    await keys.rotate('org_1', key.hash, secretOf(2), at(9), 3)
    const fourth = secretOf(3)
    await t.rejects(keys.rotate('org_1', key.hash, fourth, at(9), 3), { name: 'ConflictError' })
    t.equal(await keys.find(fourth.hash), null)
    t.equal((await keys.findIn('org_1', key.hash))?.rotatedAt, at(2), 'nothing was changed')
    t.equal((await keys.secrets('org_1', key.hash, at(3))).length, 3)
    t.ok(await keys.rotate('org_1', key.hash, fourth, at(3), 3), 'without an overlap there is room')
    t.equal((await keys.secrets('org_1', key.hash, at(3))).length, 1)
    const many = someKey()
    await keys.add(many)
    await Promise.all(
      Array.from({ length: 8 }, () => keys.rotate('org_1', many.hash, secretOf(5), at(9), 20)),
    )
    const secrets = await keys.secrets('org_1', many.hash, at(5))
    t.equal(secrets.length, 9)
    t.equal(secrets.filter(({ expiresAt }) => expiresAt === null).length, 1, 'one of them stays')
  })

  await t.test('the known ones of some hashes are those of the organization', async t => {
    const { keys } = await opened(t)
    const [own, foreign] = [someKey(), someKey({ organizationId: 'org_2' })]
    await keys.add(own)
    await keys.add(foreign)
    t.same(await keys.existing('org_1', [own.hash, foreign.hash, ...ODD_IDS]), new Set([own.hash]))
    t.same(await keys.existing('org_1', []), new Set())
    const elsewhere = someKey({ workspaceId: 'ws_2' })
    await keys.add(elsewhere)
    const hashes = [own.hash, foreign.hash, elsewhere.hash]
    t.same(await keys.existing('org_1', hashes), new Set([own.hash, elsewhere.hash]))
    t.same(await keys.existing('org_1', hashes, 'ws_2'), new Set([elsewhere.hash]))
    for (const workspaceId of ODD_IDS) t.same(await keys.existing('org_1', hashes, workspaceId), new Set())
  })
}
