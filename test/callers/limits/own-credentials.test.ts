/** Requests that a BYOK credential can serve while a limit that does not count it is spent or reserved. */
import t, { type Test } from 'tap'
import { isPending } from '../../../src/base/maybe-promise.ts'
import { createQuota, type HoldingQuota } from '../../../src/callers/limits/quota.ts'
import { SharedCounters } from '../../../src/callers/limits/shared-counters.ts'
import type { Budget, Caller, Reservation } from '../../../src/protocol/records.ts'
import { ownRedis, WITHOUT_REDIS } from '../../support/redis-server.ts'
import { eventually } from '../../support/stream-probe.ts'
import { TestClock } from '../../support/test-clock.ts'
import { demand, demandOfBoth } from './demand.ts'

const USD = 1e12
const MICROS = 1e6
const PATIENCE_MS = 60_000
const SILENT = { fault: () => undefined, notice: () => undefined }

const CALLER: Caller = {
  keyHash: 'k',
  organizationId: 'o',
  workspaceId: 'w',
  memberId: 'm',
  limit: null,
}
const budget = (more: Partial<Budget>): readonly Budget[] => [
  {
    guardrailId: 'g',
    name: 'Team',
    scope: 'api-key',
    workspaceId: null,
    amount: MICROS,
    reset: 'daily',
    includeByok: false,
    ...more,
  },
]
const limit = (reset: 'daily' | null, includeByok = false) => ({ amount: MICROS, reset, includeByok })

interface Rule {
  readonly name: string
  readonly caller?: Partial<Caller>
  readonly budgets?: readonly Budget[]
  readonly credits?: number
  readonly code?: string
}

/** Each leaves 1 USD for shared endpoints. */
const RULES: readonly Rule[] = [
  { name: 'the limit of a key', caller: { limit: limit(null) } },
  { name: 'the daily limit of a key', caller: { limit: limit('daily') } },
  { name: 'the budget of a key', budgets: budget({}), code: 'permission_denied' },
  { name: 'the budget of a member', budgets: budget({ scope: 'member' }), code: 'permission_denied' },
  {
    name: 'the budget of a member of a workspace',
    budgets: budget({ scope: 'workspace', workspaceId: 'w', reset: 'monthly' }),
    code: 'permission_denied',
  },
  { name: 'the credits of the organization', credits: USD / 1_000 },
]

async function start(t: Test, rule: Rule, redisUrl: string | null) {
  const clock = new TestClock()
  const counters = new SharedCounters({
    redis: redisUrl === null ? null : { url: redisUrl, prefix: `${rule.name}:` },
    nodes: 1,
    spending: { sum: async () => 0, credits: async () => rule.credits ?? 0 },
    clock,
    log: SILENT,
    silenceMs: PATIENCE_MS,
  })
  t.teardown(() => counters.close())
  if (redisUrl !== null) t.ok(await eventually(() => !counters.degraded, PATIENCE_MS))
  const quota = createQuota({
    counters,
    clock,
    enforceCredits: rule.credits !== undefined,
    tokensPerMinute: null,
    ...(rule.budgets === undefined ? {} : { budgets: { budgets: () => rule.budgets ?? null } }),
  })
  return { clock, quota, caller: { ...CALLER, ...rule.caller } }
}

const spent = (usd: number, isByok = false) => ({ cost: usd * USD, isByok, tokens: 1 })

/** Null if it was admitted; the amount is given back. */
async function codeOf(admit: () => ReturnType<HoldingQuota['admit']>): Promise<string | null> {
  try {
    const reservation = await admit()
    reservation.settle(spent(0))
    return null
  } catch (error) {
    return (error as { readonly code: string }).code
  }
}

async function serves(t: Test, rule: Rule, redisUrl: string | null): Promise<void> {
  const { quota, caller } = await start(t, rule, redisUrl)
  const running = await quota.admit(caller, demand(0.75 * USD))
  t.equal(await codeOf(() => quota.admit(caller, demand(0.5 * USD))), 'rate_limit_exceeded', 'a control')
  const beside = await quota.admit(caller, demandOfBoth(0.5 * USD))
  t.equal(await beside.allowance?.cover(0.5 * USD, true), true, 'the credential serves it at once')
  t.equal(await beside.allowance?.cover(0.5 * USD, false), false, 'a shared endpoint does not')
  t.match(beside.allowance?.refusal, { code: 'rate_limit_exceeded' }, 'which waiting could change')
  beside.settle(spent(0.5, true))

  running.settle(spent(3))
  const refused = rule.code ?? 'payment_required'
  t.equal(await codeOf(() => quota.admit(caller, demand(0.5 * USD))), refused, 'a control')
  t.equal(await codeOf(() => quota.admit(caller, demand(0))), refused, 'nothing is free')
  const own = (await quota.admit(caller, demandOfBoth(0.5 * USD))) as Reservation
  t.equal(await own.allowance?.cover(0.5 * USD, true), true)
  t.ok((own.allowance?.remaining(false) ?? 0) < 0, 'nothing is left for a shared endpoint')
  t.equal(await own.allowance?.cover(0.5 * USD, false), false)
  t.match(own.allowance?.refusal, { code: refused }, 'which waiting could not change')
  own.settle(spent(0.5, true))
  t.equal(await codeOf(() => quota.admit(caller, demandOfBoth(0.5 * USD))), null, 'nor the second time')
}

for (const rule of RULES) {
  t.test(`${rule.name} does not refuse what a credential can serve`, t => serves(t, rule, null))
  t.test(`the same in Redis: ${rule.name}`, { skip: WITHOUT_REDIS }, async t => {
    const redis = await ownRedis(t)
    await redis.start()
    await serves(t, rule, redis.url)
  })
}

t.test('a limit that counts credentials refuses both with 402 at once', async t => {
  const { quota, caller } = await start(t, { name: 'all', caller: { limit: limit(null, true) } }, null)
  const running = await quota.admit(caller, demand(USD))
  t.equal(await codeOf(() => quota.admit(caller, demandOfBoth(USD))), 'rate_limit_exceeded')
  running.settle(spent(2))
  const refused = quota.admit
  t.throws(() => refused(caller, demandOfBoth(USD)), { code: 'payment_required' }, 'without a wait')
})

t.test('credits that are added count for a free model within a second', async t => {
  const rule: { name: string; credits: number } = { name: 'credits', credits: USD / 1_000 }
  const { clock, quota, caller } = await start(t, rule, null)
  const running = await quota.admit(caller, demand(USD))
  running.settle(spent(2))
  t.equal(await codeOf(() => quota.admit(caller, demand(0))), 'payment_required')
  rule.credits *= 3
  clock.advance(1_000)
  t.equal(await codeOf(() => quota.admit(caller, demand(0))), null)
  t.ok(isPending(quota.admit(caller, demand(0))), 'credits are always asked for')
})
