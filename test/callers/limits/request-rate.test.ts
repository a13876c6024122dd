/** Requests per minute over real counters and a clock that the test moves. */
import t, { type Test } from 'tap'
import type { Counters } from '../../../src/callers/limits/counters.ts'
import { RequestRate } from '../../../src/callers/limits/request-rate.ts'
import { SharedCounters } from '../../../src/callers/limits/shared-counters.ts'
import { createSpending } from '../../../src/callers/limits/spending.ts'
import type { Caller } from '../../../src/protocol/records.ts'
import { openStore } from '../../../src/storage/open.ts'
import { TestClock } from '../../support/test-clock.ts'

const CALLER: Caller = {
  keyHash: 'k',
  organizationId: 'o',
  workspaceId: null,
  memberId: null,
  limit: null,
}

async function start(t: Test, requestsPerMinute: number | null) {
  const clock = new TestClock(Date.parse('2026-03-11T12:00:15.500Z'))
  const store = await openStore('sqlite::memory:')
  const shared = new SharedCounters({
    redis: null,
    nodes: 1,
    spending: createSpending(store, async () => undefined),
    clock,
    log: { fault: () => undefined, notice: () => undefined },
  })
  t.teardown(async () => {
    await shared.close()
    await store.close()
  })
  let asked = 0
  const counters: Counters = {
    reserve(entries) {
      asked++
      return shared.reserve(entries)
    },
    settle: (entries, used) => shared.settle(entries, used),
  }
  const rate = new RequestRate({ counters, clock, requestsPerMinute })
  return {
    clock,
    asked: () => asked,
    refusal: async (keyHash = 'k') => {
      try {
        await rate.enter({ ...CALLER, keyHash })
        return null
      } catch (error) {
        return error
      }
    },
  }
}

t.test('requests above the limit are told when they may come again, and each key has its own', async t => {
  const s = await start(t, 2)
  t.equal(await s.refusal(), null)
  t.equal(await s.refusal(), null)
  t.match(await s.refusal(), {
    code: 'rate_limit_exceeded',
    message: /2 requests per minute$/,
    retryAfterSeconds: 45,
    headers: {
      'X-RateLimit-Limit': '2',
      'X-RateLimit-Remaining': '0',
      'X-RateLimit-Reset': String(Date.parse('2026-03-11T12:01:00.000Z')),
    },
  })
  t.equal(await s.refusal('other'), null)
  s.clock.advance(44_500)
  t.equal(await s.refusal(), null, 'another minute')
})

t.test('a key that was refused asks no counter until the minute is over', async t => {
  const s = await start(t, 1)
  t.equal(await s.refusal(), null)
  t.match(await s.refusal(), { code: 'rate_limit_exceeded' })
  t.equal(s.asked(), 2)
  for (let n = 0; n < 100; n++) t.match(await s.refusal(), { retryAfterSeconds: 45 })
  t.equal(s.asked(), 2)
  s.clock.advance(60_000)
  t.equal(await s.refusal(), null)
  t.equal(s.asked(), 3)
})

t.test('what is known to be full is refused without counting', async t => {
  const clock = new TestClock(Date.parse('2026-03-11T12:00:15.500Z'))
  let full = false
  const counters: Counters = {
    reserve: entries => ({
      exceeded: full ? 0 : null,
      rooms: entries.map(() => ({ used: 1, total: 1, ceiling: 1 })),
    }),
    settle: () => undefined,
  }
  const rate = new RequestRate({ counters, clock, requestsPerMinute: 1 })
  rate.refuse(CALLER)
  rate.enter(CALLER)
  rate.refuse(CALLER)
  full = true
  t.throws(() => rate.enter(CALLER), { code: 'rate_limit_exceeded' })
  t.throws(() => rate.refuse(CALLER), { code: 'rate_limit_exceeded', limit: 'requests_per_minute' })
  clock.advance(60_000)
  rate.refuse(CALLER)
})

t.test('without a limit nothing is counted', async t => {
  const s = await start(t, null)
  t.equal(await s.refusal(), null)
  t.equal(s.asked(), 0)
})

t.test('each request is told what is left of its minute', async t => {
  const clock = new TestClock(Date.parse('2026-03-11T12:00:15.500Z'))
  const counters: Counters = {
    reserve: entries => ({ exceeded: null, rooms: entries.map(() => ({ used: 3, total: 7, ceiling: 10 })) }),
    settle: () => undefined,
  }
  const told = new RequestRate({ counters, clock, requestsPerMinute: 10 }).enter(CALLER)
  t.same(told, { limit: 10, remaining: 2, resetMs: Date.parse('2026-03-11T12:01:00.000Z') })
  t.equal(new RequestRate({ counters, clock, requestsPerMinute: null }).enter(CALLER), undefined)
})
