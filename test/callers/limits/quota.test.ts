/** Quotas over counters in memory, a real ledger and a clock that the test moves. */
import t, { type Test } from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createQuota, type QuotaOptions, UNLIMITED_RESERVATION } from '../../../src/callers/limits/quota.ts'
import { SharedCounters } from '../../../src/callers/limits/shared-counters.ts'
import { createSpending } from '../../../src/callers/limits/spending.ts'
import type { Caller, Reservation, SpendingLimit } from '../../../src/protocol/records.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { someUsage } from '../../storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'
import { demand } from './demand.ts'

const USD = 1e12
const MICROS = 1e6
const SILENT = { fault: () => undefined, notice: () => undefined }

interface Options extends Partial<Pick<QuotaOptions, 'enforceCredits' | 'tokensPerMinute'>> {
  readonly clock?: TestClock
  readonly nodes?: number
}

async function start(t: Test, options: Options = {}) {
  const clock = options.clock ?? new TestClock()
  const store = await openStore('sqlite::memory:')
  let fails = false
  let reads = 0
  const spending = createSpending(store, async () => {
    reads++
    if (fails) throw new Error('away')
  })
  const open = () =>
    new SharedCounters({ redis: null, nodes: options.nodes ?? 1, spending, clock, log: SILENT })
  let counters = open()
  const quotaOf = () =>
    createQuota({
      counters,
      clock,
      enforceCredits: false,
      tokensPerMinute: null,
      ...options,
    })
  let quota = quotaOf()
  t.teardown(async () => {
    await counters.close()
    await store.close()
  })
  return {
    clock,
    store,
    get reads() {
      return reads
    },
    get armed() {
      return clock.armed
    },
    fail(now: boolean) {
      fails = now
    },
    /** As after a restart of the process. */
    async restart() {
      await counters.close()
      counters = open()
      quota = quotaOf()
    },
    limits: (caller: Caller) => quota.limits(caller),
    admit: (caller: Caller, usd: number, more: { ownUsd?: number; tokens?: number } = {}) => {
      const cost = Math.round(usd * USD)
      const ownCost = more.ownUsd === undefined ? cost : Math.round(more.ownUsd * USD)
      return quota.admit(caller, demand(cost, ownCost, more.tokens ?? 10))
    },
    hold: (caller: Caller, usd: number, isOwn = false) =>
      quota.reserveAnyway(caller, Math.round(usd * USD), isOwn),
    /** Null when it was admitted. */
    async refusal(caller: Caller, usd: number, more: { ownUsd?: number; tokens?: number } = {}) {
      try {
        await this.admit(caller, usd, more)
        return null
      } catch (error) {
        if (error instanceof GatewayError) return error
        throw error
      }
    },
    spend: (usd: number, fields: Partial<UsageRecord> = {}) =>
      store.ledger.add([
        someUsage({
          id: `gen-${Math.random()}`,
          organizationId: 'o',
          keyHash: 'k',
          createdAt: new Date(clock.nowMs()).toISOString(),
          isByok: false,
          ...fields,
          cost: Math.round(usd * USD),
        }),
      ]),
  }
}

const callerWith = (limit: Partial<SpendingLimit> & { usd: number }): Caller => ({
  keyHash: 'k',
  organizationId: 'o',
  workspaceId: null,
  memberId: null,
  limit: {
    amount: Math.round(limit.usd * MICROS),
    reset: limit.reset ?? null,
    includeByok: limit.includeByok ?? false,
  },
})
const UNLIMITED: Caller = {
  keyHash: 'k',
  organizationId: 'o',
  workspaceId: null,
  memberId: null,
  limit: null,
}

const spent = (usd: number, more: { isByok?: boolean; tokens?: number } = {}) => ({
  cost: Math.round(usd * USD),
  isByok: more.isByok ?? false,
  tokens: more.tokens ?? 10,
})

t.test('a caller whom nothing limits is admitted at once, and nothing is counted', async t => {
  const s = await start(t)
  t.equal(s.limits(UNLIMITED), false)
  t.equal(s.admit(UNLIMITED, 100), UNLIMITED_RESERVATION)
  t.equal(s.reads, 0)
})

t.test('of a thousand requests at once as many are admitted as the limit has room for', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 1 })
  const all = await Promise.all(Array.from({ length: 1000 }, () => s.refusal(caller, 0.003)))
  t.equal(all.filter(refusal => refusal === null).length, 333)
  t.match(all.at(-1), {
    code: 'rate_limit_exceeded',
    message: 'The spending limit of this API key is reserved for requests that are still running',
    retryAfterSeconds: 1,
  })
  t.match(await s.refusal(caller, 1.5), {
    code: 'payment_required',
    message:
      'The spending limit of this API key does not cover this request: it costs at least 1.5 USD; 1 USD of 1 USD remains',
  })
  t.equal(s.reads, 1, 'the ledger was read once')
  t.notOk(s.admit(caller, 0.001) instanceof Promise, 'a known counter is asked at once')
})

t.test('what a request did not use is there for others, and is given back once', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 1 })
  const first = (await s.admit(caller, 1)) as Reservation
  t.equal((await s.refusal(caller, 0.5))?.code, 'rate_limit_exceeded')
  first.settle(spent(0.25))
  first.settle(spent(0))
  t.equal((await s.refusal(caller, 0.75000001))?.code, 'payment_required')
  const second = (await s.admit(caller, 0.75)) as Reservation
  t.equal((await s.refusal(caller, 0.000001))?.code, 'rate_limit_exceeded')
  second.settle(spent(0))
  t.equal(await s.refusal(caller, 0.75), null, 'a failed one gives all back')
})

t.test('a request that came to more than was set aside counts with what it came to', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 1 })
  const running = (await s.admit(caller, 0.1)) as Reservation
  running.settle(spent(3))
  t.match((await s.refusal(caller, 0.000001))?.message, '0 USD of 1 USD remains')
  t.match((await s.refusal(caller, 0))?.code, 'payment_required', 'a free one neither')
})

t.test('what was admitted before is held whether there is room or not, until it is settled', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 1 })
  t.equal(s.hold(UNLIMITED, 100), UNLIMITED_RESERVATION, 'nobody counts for a caller without limits')
  const held = await s.hold(caller, 3)
  t.equal(held.allowance, null, 'nobody may take more on it')
  t.equal((await s.refusal(caller, 0.1))?.code, 'rate_limit_exceeded', 'it stands in the way of others')
  const second = await s.hold(caller, 0.5)
  held.settle(spent(0.25))
  t.equal((await s.refusal(caller, 0.75))?.code, 'rate_limit_exceeded', 'the second one does still')
  second.settle(spent(0.5))
  t.equal((await s.refusal(caller, 0.26))?.code, 'payment_required', 'what they came to is spent')
  t.equal(await s.refusal(caller, 0.25), null)
})

t.test('money on own credentials is held by the limits that count it', async t => {
  const s = await start(t)
  const mine = await s.hold(callerWith({ usd: 1 }), 3, true)
  t.equal(await s.refusal(callerWith({ usd: 1 }), 0.5), null, 'this limit does not count it')
  mine.settle(spent(3, { isByok: true }))
  const all = callerWith({ usd: 1, includeByok: true })
  const held = await s.hold(all, 3, true)
  t.equal((await s.refusal(all, 0.5))?.code, 'rate_limit_exceeded')
  held.settle(spent(3, { isByok: true }))
  t.equal((await s.refusal(all, 0.5))?.code, 'payment_required')
})

t.test('credits and a limit of tokens: only money is held', async t => {
  const s = await start(t, { enforceCredits: true, tokensPerMinute: 100 })
  const held = await s.hold(UNLIMITED, 1)
  held.settle(spent(1, { tokens: 1_000_000 }))
  await s.store.credits.add({ id: 'c', organizationId: 'o', amount: 2 * MICROS, note: null, createdAt: 'x' })
  t.equal(await s.refusal(UNLIMITED, 1, { tokens: 100 }), null, 'no token was counted, and 1 USD is left')
  t.equal((await s.refusal(UNLIMITED, 0.5, { tokens: 0 }))?.code, 'rate_limit_exceeded')
})

t.test('nothing is held while nobody knows what was spent', async t => {
  const s = await start(t)
  s.fail(true)
  await t.rejects(async () => s.hold(callerWith({ usd: 1 }), 1), { code: 'service_unavailable' })
})

t.test('the smallest amounts are not lost', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 0.000001 })
  let admitted = 0
  while ((await s.refusal(caller, 1e-12)) === null) admitted++
  t.equal(admitted, 1000, 'each counts with a billionth')
})

t.test('periods begin anew at midnight UTC, on Mondays, with months', async t => {
  const at = (text: string) => Date.parse(text)
  const cases = [
    ['daily', '2026-03-10T23:59:59.999Z', true],
    ['daily', '2026-03-10T23:59:59.998Z', false],
    // A Sunday, also the last one of a year.
    ['weekly', '2026-03-15T23:59:59.999Z', true],
    ['weekly', '2026-03-14T23:59:59.999Z', false],
    ['weekly', '2028-12-31T23:59:59.999Z', true],
    ['weekly', '2026-12-31T23:59:59.999Z', false],
    ['monthly', '2026-04-30T23:59:59.999Z', true],
    ['monthly', '2026-03-30T23:59:59.999Z', false],
    ['monthly', '2026-12-31T23:59:59.999Z', true],
    ['monthly', '2027-02-28T23:59:59.999Z', true],
    // A leap year.
    ['monthly', '2028-02-28T23:59:59.999Z', false],
    ['monthly', '2028-02-29T23:59:59.999Z', true],
    [null, '2026-12-31T23:59:59.999Z', false],
  ] as const
  for (const [reset, time, renewed] of cases) {
    const s = await start(t, { clock: new TestClock(at(time)) })
    const caller = callerWith({ usd: 1, reset })
    t.equal(await s.refusal(caller, 1), null)
    t.equal((await s.refusal(caller, 1))?.code, 'rate_limit_exceeded')
    s.clock.advance(1)
    t.equal((await s.refusal(caller, 1)) === null, renewed, `${reset} one millisecond after ${time}`)
  }
})

t.test(
  'what was spent before in the period counts after a restart, what was before the period does not',
  async t => {
    const clock = new TestClock(Date.parse('2026-03-11T12:00:00.000Z'))
    const s = await start(t, { clock })
    await s.spend(5, { createdAt: '2026-03-10T23:59:59.000Z' })
    await s.spend(0.4, { createdAt: '2026-03-11T00:00:00.000Z' })
    await s.spend(7, { keyHash: 'another' })
    const caller = callerWith({ usd: 1, reset: 'daily' })
    t.match((await s.refusal(caller, 0.7))?.message, '0.6 USD of 1 USD')
    await s.admit(caller, 0.3)
    t.equal((await s.refusal(caller, 0.6))?.code, 'rate_limit_exceeded')
    await s.restart()
    t.match((await s.refusal(caller, 0.7))?.message, '0.6 USD of 1 USD', 'only what was running is forgotten')
    t.match((await s.refusal(callerWith({ usd: 10, reset: 'weekly' }), 7))?.message, '4.6 USD of 10 USD')
  },
)

t.test('what runs on own provider credentials counts when the key says so', async t => {
  const s = await start(t)
  await s.spend(0.5, { isByok: true })
  const without = callerWith({ usd: 1 })
  const withThem = callerWith({ usd: 1, includeByok: true })
  t.match((await s.refusal(withThem, 0.6, { ownUsd: 0 }))?.message, '0.5 USD of 1 USD')
  t.equal(await s.refusal(without, 100, { ownUsd: 0 }), null, 'own credentials are all that is left')
  const running = (await s.admit(without, 1, { ownUsd: 1 })) as Reservation
  running.settle(spent(1, { isByok: true }))
  t.equal(await s.refusal(without, 1), null)
})

t.test(
  'an organization spends no more than its credits, and what is added counts within a second',
  async t => {
    const s = await start(t, { enforceCredits: true })
    t.equal(s.limits(UNLIMITED), true)
    t.match(await s.refusal(UNLIMITED, 0.5), {
      code: 'payment_required',
      message: 'Insufficient credits: this request costs at least 0.5 USD; 0 USD remains',
    })
    await s.store.credits.add({ id: 'c', organizationId: 'o', amount: MICROS, note: null, createdAt: 'x' })
    s.clock.advance(1000)
    t.equal(await s.refusal(UNLIMITED, 0.5), null)
    t.equal((await s.refusal({ ...UNLIMITED, keyHash: 'other' }, 0.6))?.code, 'rate_limit_exceeded')
    await s.store.credits.add({
      id: 'd',
      organizationId: 'o',
      amount: -2 * MICROS,
      note: null,
      createdAt: 'x',
    })
    s.clock.advance(31_000)
    t.equal((await s.refusal(UNLIMITED, 0))?.code, 'payment_required', 'below zero nothing is free')
  },
)

t.test(
  'the key of an organization that has credits still has its own limit, and nothing is taken twice',
  async t => {
    const s = await start(t, { enforceCredits: true, tokensPerMinute: 3 })
    const one = { tokens: 1 }
    await s.store.credits.add({ id: 'c', organizationId: 'o', amount: MICROS, note: null, createdAt: 'x' })
    const caller = callerWith({ usd: 0.5 })
    for (let n = 0; n < 10; n++) t.match((await s.refusal(caller, 0.6, one))?.message, 'spending limit')
    t.equal(await s.refusal(caller, 0.5, one), null, 'what was refused left the tokens of the minute alone')
    t.equal(await s.refusal(UNLIMITED, 0.25, one), null)
    t.equal(await s.refusal(UNLIMITED, 0.25, one), null)
    t.equal((await s.refusal(UNLIMITED, 0, one))?.code, 'rate_limit_exceeded')
  },
)

t.test('tokens per minute are told with when they are there again', async t => {
  const clock = new TestClock(Date.parse('2026-03-11T12:00:15.500Z'))
  const s = await start(t, { clock, tokensPerMinute: 100 })
  const first = (await s.admit(UNLIMITED, 0, { tokens: 60 })) as Reservation
  t.match(await s.refusal(UNLIMITED, 0, { tokens: 41 }), {
    code: 'rate_limit_exceeded',
    message: /100 tokens per minute, but this request may use up to 41$/,
    headers: { 'X-RateLimit-Limit': '100', 'X-RateLimit-Remaining': '40' },
  })
  first.settle(spent(0, { tokens: 10 }))
  t.equal(await s.refusal(UNLIMITED, 0, { tokens: 41 }), null, 'what was not used is there')
  t.match(await s.refusal(UNLIMITED, 0, { tokens: 50 }), {
    code: 'rate_limit_exceeded',
    message: /100 tokens per minute, but this request may use up to 50$/,
    retryAfterSeconds: 45,
    headers: {
      'X-RateLimit-Limit': '100',
      'X-RateLimit-Remaining': '49',
      'X-RateLimit-Reset': String(Date.parse('2026-03-11T12:01:00.000Z')),
    },
  })
  t.equal(await s.refusal({ ...UNLIMITED, keyHash: 'other' }, 0), null, 'each key has its own')
  clock.advance(44_500)
  t.equal(await s.refusal(UNLIMITED, 0, { tokens: 100 }), null)
})

t.test('nobody spends when nobody knows what was spent, and it is read again', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 1 })
  s.fail(true)
  t.match(await s.refusal(caller, 0.1), { code: 'service_unavailable', retryAfterSeconds: 1 })
  s.fail(false)
  t.equal(await s.refusal(caller, 0.1), null)
  s.fail(true)
  t.equal(await s.refusal(caller, 0.1), null, 'once known it goes on')
})

t.test('what got lost on the way is found in the ledger in time', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 1 })
  t.equal(await s.refusal(caller, 0.1), null)
  await s.spend(0.8)
  t.equal(await s.refusal(caller, 0.1), null)
  s.clock.advance(600_000)
  await new Promise(resolve => setImmediate(resolve))
  await new Promise(resolve => setImmediate(resolve))
  t.match((await s.refusal(caller, 0.5))?.message, '0.2 USD of 1 USD', 'beside what is reserved')
})

t.test('counters that nobody asks for are forgotten, running ones are not', async t => {
  const s = await start(t)
  const caller = callerWith({ usd: 1 })
  const running = (await s.admit(caller, 0.9)) as Reservation
  const later = () => {
    s.clock.advance(2 * 3_600_000)
    return s.reads
  }
  const known = later()
  t.equal((await s.refusal(caller, 0.2))?.code, 'rate_limit_exceeded')
  t.equal(s.reads, known)
  running.settle(spent(0))
  const forgotten = later()
  t.equal(await s.refusal(caller, 1), null)
  t.equal(s.reads, forgotten + 1)
})

t.test('one of several instances without a common counter takes its share', async t => {
  const s = await start(t, { nodes: 4, tokensPerMinute: 2 })
  await s.spend(0.2)
  const caller = callerWith({ usd: 1 })
  t.match((await s.refusal(caller, 0.201))?.message, '0.2 USD of 0.4 USD')
  t.equal(await s.refusal(caller, 0.2, { tokens: 1 }), null)
  t.equal((await s.refusal(caller, 0, { tokens: 1 }))?.code, 'rate_limit_exceeded', 'at least one')
})
