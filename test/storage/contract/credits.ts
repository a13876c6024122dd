/** The contract of credits. */
import type { Test } from 'tap'
import type { Opened } from '../contract.ts'
import { ODD_IDS, ODD_TEXT, someCredit } from '../records.ts'

export async function creditContract(t: Test, opened: Opened): Promise<void> {
  await t.test('credits are summed exactly, to a billion dollars and back', async t => {
    const { credits } = await opened(t)
    t.equal(await credits.total('org_1'), 0)
    const amounts = [1e15, 1e15, 1, -3, 0, 6_999_999_999_999_999]
    for (const amount of amounts) t.equal(await credits.add(someCredit({ amount })), true)
    await credits.add(someCredit({ organizationId: 'org_2', amount: -7 }))
    t.equal(await credits.total('org_1'), 8_999_999_999_999_997)
    t.equal(await credits.total('org_2'), -7)
    t.equal(await credits.total('org_3'), 0)
  })

  await t.test('an entry is booked once within an organization, however often it comes', async t => {
    const { credits } = await opened(t)
    const entry = someCredit({ id: ODD_TEXT, note: ODD_TEXT, amount: 5 })
    const added = await Promise.all(Array.from({ length: 20 }, () => credits.add(entry)))
    t.equal(added.filter(Boolean).length, 1)
    t.equal(await credits.add({ ...entry, amount: 100 }), false)
    t.same(await credits.find('org_1', entry.id), entry)
    t.equal(await credits.total('org_1'), 5)
    t.equal(await credits.find('org_2', entry.id), null)
    t.equal(await credits.add({ ...entry, organizationId: 'org_2' }), true)
    for (const id of ODD_IDS) t.equal(await credits.find('org_1', id), null)
  })
}
