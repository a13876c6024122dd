/** Weights of end users: when the store is asked, and what counts while it does not answer. */
import t from 'tap'
import { EndUserWeights } from '../../src/callers/end-user-weights.ts'
import type { EndUserRecord } from '../../src/protocol/management/management.ts'
import { someEndUser } from '../storage/records.ts'
import { TestClock } from '../support/test-clock.ts'

function start(...records: readonly EndUserRecord[]) {
  const asked: string[] = []
  const stored = new Map(records.map(record => [record.user, record]))
  const find = async (organizationId: string, user: string) => {
    asked.push(user)
    const record = stored.get(user)
    if (user === 'fails') throw new Error('the store fails')
    return record?.organizationId === organizationId ? record : null
  }
  const weights = new EndUserWeights({ store: { endUsers: { find } }, clock: new TestClock() })
  return { asked, stored, weights }
}

t.test('the store is asked once, and again after a change', async t => {
  const { asked, stored, weights } = start(someEndUser({ user: 'u', weight: 3 }))
  t.equal(await weights.of('org_1', 'u'), 3)
  t.equal(weights.of('org_1', 'u'), 3, 'at once')
  t.equal(await weights.of('org_2', 'u'), 1, 'of another organization')
  stored.set('u', someEndUser({ user: 'u', weight: 5 }))
  weights.invalidate('org_1', 'v')
  t.equal(weights.of('org_1', 'u'), 3)
  weights.invalidate('org_1', 'u')
  t.equal(await weights.of('org_1', 'u'), 5)
  stored.set('u', someEndUser({ user: 'u', weight: 7 }))
  weights.invalidateAll()
  t.equal(await weights.of('org_1', 'u'), 7)
  t.same(asked, ['u', 'u', 'u', 'u'])
})

t.test('who is not registered, or inactive, weighs 1', async t => {
  const { asked, weights } = start(someEndUser({ user: 'off', weight: 9, isActive: false }))
  t.equal(await weights.of('org_1', 'off'), 1)
  t.equal(await weights.of('org_1', 'nobody'), 1)
  t.equal(weights.of('org_1', 'nobody'), 1, 'which is known then')
  t.equal(weights.of('org_1', 'no name\0'), 1, 'the store is never asked for what it cannot hold')
  t.same(asked, ['off', 'nobody'])
})

t.test('a store that fails, or is asked for too many at once, gives no weight', async t => {
  const { asked, weights } = start()
  await t.rejects(Promise.resolve(weights.of('org_1', 'fails')), { code: 'store_unavailable' })
  const found = await Promise.allSettled(Array.from({ length: 50 }, (_, n) => weights.of('org_1', `u${n}`)))
  t.equal(found.filter(({ status }) => status === 'fulfilled').length, 16)
  t.equal(asked.length, 17)
})
