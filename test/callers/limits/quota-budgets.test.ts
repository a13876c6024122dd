/** Budgets of guardrails over counters in memory, a real ledger and a clock that the test moves. */
import t, { type Test } from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { type BudgetLookup, createQuota, UNLIMITED_RESERVATION } from '../../../src/callers/limits/quota.ts'
import { SharedCounters } from '../../../src/callers/limits/shared-counters.ts'
import { createSpending } from '../../../src/callers/limits/spending.ts'
import type { Budget, Caller, Reservation } from '../../../src/protocol/records.ts'
import { openStore } from '../../../src/storage/open.ts'
import { someUsage } from '../../storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'
import { demand } from './demand.ts'

const USD = 1e12
const MICROS = 1e6
const DAY_MS = 86_400_000
const SILENT = { fault: () => undefined, notice: () => undefined }

const budget = (usd: number, more: Partial<Budget> = {}): Budget => ({
  guardrailId: 'g',
  name: 'Team',
  scope: 'api-key',
  workspaceId: null,
  amount: Math.round(usd * MICROS),
  reset: 'daily',
  includeByok: false,
  ...more,
})
const callerOf = (keyHash: string, more: Partial<Caller> = {}): Caller => ({
  keyHash,
  organizationId: 'o',
  workspaceId: 'w',
  memberId: null,
  limit: null,
  ...more,
})

async function start(t: Test) {
  const clock = new TestClock()
  const store = await openStore('sqlite::memory:')
  const spending = createSpending(store, async () => undefined)
  const counters = new SharedCounters({ redis: null, nodes: 1, spending, clock, log: SILENT })
  t.teardown(async () => {
    await counters.close()
    await store.close()
  })
  const state: { budgets: ReturnType<BudgetLookup['budgets']> } = { budgets: null }
  const quota = createQuota({
    counters,
    clock,
    enforceCredits: false,
    tokensPerMinute: null,
    budgets: { budgets: () => state.budgets },
  })
  const admit = async (caller: Caller, usd: number, ownUsd = usd): Promise<Reservation> =>
    quota.admit(caller, demand(Math.round(usd * USD), Math.round(ownUsd * USD)))
  return {
    clock,
    store,
    state,
    quota,
    admit,
    /** Null when it was admitted. */
    async refusal(caller: Caller, usd: number, ownUsd = usd): Promise<GatewayError | null> {
      try {
        await admit(caller, usd, ownUsd)
        return null
      } catch (error) {
        if (error instanceof GatewayError) return error
        throw error
      }
    },
  }
}

t.test('without a budget a caller is admitted at once, and nothing is counted', async t => {
  const { quota } = await start(t)
  t.equal(quota.limits(callerOf('k')), false)
  t.equal(quota.admit(callerOf('k'), demand(1)), UNLIMITED_RESERVATION)
})

t.test('budgets that have to be asked for are waited for, and their failure is told', async t => {
  const { quota, state, refusal } = await start(t)
  state.budgets = Promise.resolve(null)
  t.equal(quota.limits(callerOf('k')), true)
  t.equal(await quota.admit(callerOf('k'), demand(1)), UNLIMITED_RESERVATION)
  state.budgets = Promise.resolve([budget(1)])
  t.match(await refusal(callerOf('k'), 2), { code: 'permission_denied' })
  state.budgets = Promise.reject(new GatewayError('service_unavailable', 'away'))
  t.equal(quota.limits(callerOf('k')), true)
  t.match(await refusal(callerOf('k'), 0), { code: 'service_unavailable' })
})

t.test('of a thousand requests at once as many are admitted as the budget has room for', async t => {
  const { state, refusal } = await start(t)
  state.budgets = [budget(1)]
  const all = await Promise.all(Array.from({ length: 1000 }, () => refusal(callerOf('k'), 0.003)))
  t.equal(all.filter(refused => refused === null).length, 333)
  t.match(all.at(-1), {
    code: 'rate_limit_exceeded',
    message:
      'The daily budget that guardrail Team gives this API key is reserved for requests that are still running',
    retryAfterSeconds: 1,
  })
  t.match(await refusal(callerOf('k'), 1.5), {
    code: 'permission_denied',
    message:
      'The daily budget that guardrail Team gives this API key does not cover this request: it costs at least 1.5 USD; 1 USD of 1 USD remains',
    metadata: { guardrail_id: 'g' },
  })
  t.equal(await refusal(callerOf('other'), 1), null, 'each key has that budget')
})

t.test('keys of a member share the budget of the member, those of others do not', async t => {
  const { state, refusal } = await start(t)
  state.budgets = [budget(1, { scope: 'member' })]
  t.equal(await refusal(callerOf('one', { memberId: 'm' }), 0.6), null)
  t.match(await refusal(callerOf('two', { memberId: 'm' }), 0.6), {
    code: 'rate_limit_exceeded',
    message: /gives the member of this API key is reserved/,
  })
  t.equal(await refusal(callerOf('three', { memberId: 'n' }), 1), null)
})

t.test('the default guardrail of a workspace gives members a budget, and keys that are nobody’s', async t => {
  const { state, refusal } = await start(t)
  state.budgets = [budget(1, { scope: 'workspace', workspaceId: 'w' })]
  t.equal(await refusal(callerOf('one', { memberId: 'm' }), 1), null)
  t.match(await refusal(callerOf('two', { memberId: 'm' }), 0.1), { code: 'rate_limit_exceeded' })
  t.equal(await refusal(callerOf('three'), 1), null)
  t.equal(await refusal(callerOf('four'), 1), null)
})

t.test('a counter begins with what the member spent with all keys of the workspace', async t => {
  const { clock, store, state, refusal } = await start(t)
  const createdAt = new Date(clock.nowMs()).toISOString()
  const usage = (key: string, memberId: string, workspaceId: string, usd: number) => {
    const fields = { organizationId: 'o', keyHash: key.repeat(64), memberId, workspaceId, createdAt }
    return someUsage({ ...fields, cost: usd * USD })
  }
  await store.ledger.add([
    usage('1', 'm', 'w', 0.25),
    usage('2', 'm', 'w', 0.25),
    usage('2', 'm', 'x', 0.125),
    usage('3', 'n', 'w', 8),
  ])
  const caller = callerOf('1'.repeat(64), { memberId: 'm' })
  state.budgets = [budget(1, { scope: 'member', workspaceId: 'w' })]
  t.match(await refusal(caller, 0.51), { message: /0\.5 USD of 1 USD remains/ })
  state.budgets = [budget(1, { scope: 'member', guardrailId: 'of the organization' })]
  t.match(await refusal(caller, 0.51), { message: /0\.375 USD of 1 USD remains/ })
})

t.test('each budget counts by itself, beside the limit of the key', async t => {
  const { clock, state, admit, refusal } = await start(t)
  const monthly = budget(2, { guardrailId: 'h', name: 'Monthly', scope: 'member', reset: 'monthly' })
  state.budgets = [budget(1), monthly]
  const caller = callerOf('k', { memberId: 'm', limit: { amount: 10e6, reset: 'daily', includeByok: false } })
  const reservation = await admit(caller, 1)
  t.match(await refusal(caller, 0.5), { message: /^The daily budget that guardrail Team / })
  reservation.settle({ cost: 0.75 * USD, isByok: false, tokens: 1 })
  t.equal(await refusal(caller, 0.25), null, 'what was not used is there again, in all of them')
  clock.advance(DAY_MS)
  t.equal(await refusal(caller, 1), null, 'the day is over')
  clock.advance(DAY_MS)
  t.match(await refusal(caller, 0.1), {
    message: /^The monthly budget that guardrail Monthly .+ is reserved/,
  })
  t.match(await refusal({ ...caller, limit: { amount: 0, reset: null, includeByok: false } }, 0.1), {
    code: 'payment_required',
  })
})

t.test('what runs on own credentials counts where the guardrail says so', async t => {
  const { state, admit, refusal } = await start(t)
  const own = { cost: 0.75 * USD, isByok: true, tokens: 1 }
  const without = callerOf('k')
  state.budgets = [budget(1)]
  ;(await admit(without, 1, 0)).settle(own)
  t.equal(await refusal(without, 1), null)
  state.budgets = [budget(1, { includeByok: true, guardrailId: 'h' })]
  ;(await admit(without, 1, 0)).settle(own)
  t.match(await refusal(without, 1, 0), { message: /0\.25 USD of 1 USD remains/ })
})
