/** The contract of registered end users. */
import type { Test } from 'tap'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someEndUser } from '../records.ts'

const LATER = '2026-03-01T00:00:00.000Z'

export async function endUserContract(t: Test, opened: Opened): Promise<void> {
  await t.test('an end user comes back exactly as spelled, to its own organization only', async t => {
    const { endUsers } = await opened(t)
    // Composed and decomposed, upper and lower: four users.
    const users = ['\u00e9', 'e\u0301', 'Max', 'max', ODD_TEXT, '.', '..', ' x', '\u{1F600}'.repeat(128)]
    for (const user of users) t.equal(await endUsers.add(someEndUser({ user })), true)
    for (const user of users) t.same(await endUsers.find('org_1', user), someEndUser({ user }))
    t.equal(await endUsers.find('org_2', 'max'), null)
    t.equal(await endUsers.change('org_2', 'max', { isActive: false }, LATER), null)
    for (const user of [...ODD_IDS, 'MAX', 'ma']) {
      t.equal(await endUsers.find('org_1', user), null)
      t.equal(await endUsers.change('org_1', user, { isActive: false }, LATER), null)
    }
    t.match(await endUsers.find('org_1', 'max'), { isActive: true })
  })

  await t.test('a user is registered once within an organization, active or not', async t => {
    const { endUsers } = await opened(t)
    const user = someEndUser({ user: 'u' })
    const added = await Promise.all(Array.from({ length: 20 }, () => endUsers.add(user)))
    t.equal(added.filter(Boolean).length, 1)
    const inactive = { ...user, isActive: false, updatedAt: LATER }
    t.same(await endUsers.change('org_1', 'u', { isActive: false }, LATER), inactive)
    t.equal(await endUsers.add(someEndUser({ user: 'u' })), false)
    t.same(await endUsers.find('org_1', 'u'), inactive, 'and stays as it is')
    t.same(await endUsers.change('org_1', 'u', { isActive: true }, LATER), { ...inactive, isActive: true })
    t.equal(await endUsers.add(someEndUser({ user: 'u', organizationId: 'org_2' })), true)
  })

  await t.test('a weight is kept, and each field changes alone', async t => {
    const { endUsers } = await opened(t)
    const user = someEndUser({ user: 'u', weight: 3 })
    await endUsers.add(user)
    await endUsers.add({ ...user, organizationId: 'org_2' })
    t.same(await endUsers.find('org_1', 'u'), user)
    const changed = { ...user, weight: 100, updatedAt: LATER }
    t.same(await endUsers.change('org_1', 'u', { weight: 100 }, LATER), changed)
    t.same(await endUsers.change('org_1', 'u', { isActive: false }, LATER), { ...changed, isActive: false })
    t.match(await endUsers.find('org_2', 'u'), { weight: 3, isActive: true }, 'of another organization')
    t.equal(await endUsers.change('org_1', 'v', { weight: 2 }, LATER), null)
  })

  await t.test('end users are paged oldest first, filtered exactly, inactive ones on demand', async t => {
    const { endUsers } = await opened(t)
    for (const day of [4, 2, 1, 3])
      await endUsers.add(someEndUser({ user: `u${day}`, createdAt: `2026-01-0${day}T00:00:00.000Z` }))
    await endUsers.add(someEndUser({ user: 'u9', organizationId: 'org_2' }))
    await endUsers.change('org_1', 'u2', { isActive: false }, LATER)
    const page = async (offset: number, limit: number, fields = {}) => {
      const filter = { organizationId: 'org_1', includeInactive: true, ...fields }
      const { items, total } = await endUsers.page(filter, { offset, limit })
      return [items.map(item => item.user).join(' '), total]
    }
    t.same(await page(0, 3), ['u1 u2 u3', 4])
    t.same(await page(3, 3), ['u4', 4])
    t.same(await page(9, 3), ['', 4])
    t.same(await page(0, 9, { includeInactive: false }), ['u1 u3 u4', 3])
    t.same(await page(0, 9, { user: 'u2' }), ['u2', 1])
    t.same(await page(0, 9, { user: 'u2', includeInactive: false }), ['', 0])
    for (const user of ['u', 'U1', 'u9', ...ODD_IDS]) t.same(await page(0, 9, { user }), ['', 0])
  })
}
