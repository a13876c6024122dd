/**
 * Random walks over spending limits: requests of two nodes that begin, grow and end in every way, while counters are
 * lost. They run the real quota, accounting and Store with a clock of their own, on every kind of counters and every
 * Store; no socket but those to Redis and the database.
 */
import { createClient } from '@redis/client'
import fc from 'fast-check'
import type { Test } from 'tap'

import { GatewayError } from '../../../src/base/errors.ts'
import { isPending, whenReady } from '../../../src/base/maybe-promise.ts'
import type { CounterEntry, Counters, ReserveResult } from '../../../src/callers/limits/counters.ts'
import { type Demand, isAffordable, type Offer } from '../../../src/callers/limits/demand.ts'
import { BusyError } from '../../../src/callers/limits/limit-errors.ts'
import { createQuota, type Quota } from '../../../src/callers/limits/quota.ts'
import { counts, type EntryLimit } from '../../../src/callers/limits/quota-entries.ts'
import { SharedCounters } from '../../../src/callers/limits/shared-counters.ts'
import { createSpending, nanoToPico, picoToNano } from '../../../src/callers/limits/spending.ts'
import { type AttemptRecord, type Candidate, type Exchange, endOf } from '../../../src/exchange/exchange.ts'
import { ZERO_USAGE } from '../../../src/formats/format.ts'
import { usageRecord } from '../../../src/pipeline/accounting/account.ts'
import {
  admitCall,
  type CallTerms,
  demandOf,
  settleReservation,
} from '../../../src/pipeline/accounting/allowance.ts'
import { chargeOf } from '../../../src/pipeline/accounting/charge.ts'
import { inputTokensOf } from '../../../src/pipeline/accounting/estimate.ts'
import type { Budget, Caller } from '../../../src/protocol/records.ts'
import type { Credential } from '../../../src/providers/credentials/catalog.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { Store } from '../../../src/storage/store.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { postgresSchema, withoutPostgres } from '../../support/postgres.ts'
import { search } from '../../support/property.ts'
import { turns } from '../../support/raw-http.ts'
import { ownRedis, WITHOUT_REDIS } from '../../support/redis-server.ts'
import { scriptedEndpoint, scriptedExchange, scriptedRecord } from '../../support/scripted-attempt.ts'
import { pause } from '../../support/stream-probe.ts'
import { TestClock } from '../../support/test-clock.ts'

/** One token costs a millionth of a USD, so amounts of limits are numbers of tokens. */
const TOKEN_PICO_USD = 1e6
const DAY_MS = 86_400_000
/** Pieces in which a streamed reply arrives, in tokens. */
const PIECE_TOKENS = 4
/** How often is looked for an answer that comes at once, for any, and for what another node gives back. */
const QUICK_TRIES = 50
/** After so many the machine is busy with something else, and gets more time. */
const SLOW_TRIES = 1_000
const STUCK_TRIES = 3_000
const LATE_TRIES = 1_000
/** At most so long after a loss a node finds out. */
const HEARTBEAT_MS = 1_000
const SILENT = { fault: () => undefined, notice: () => undefined }

/** The limits of the caller, in tokens; null: there is none. */
interface World {
  readonly key: { readonly amount: number; readonly daily: boolean; readonly byok: boolean } | null
  readonly budget: {
    readonly amount: number
    readonly scope: Budget['scope']
    readonly reset: Budget['reset']
    readonly byok: boolean
  } | null
  readonly credits: number | null
  readonly credential: 'none' | 'normal' | 'fallback' | 'required' | 'disabled'
}

type Step =
  | {
      readonly kind: 'begin'
      readonly node: 0 | 1
      readonly streamed: boolean
      /** False: reasoning may be hidden, so the whole cap is reserved. */
      readonly visible: boolean
      readonly inputTokens: number
      /** Null: none is requested. */
      readonly cap: number | null
    }
  | { readonly kind: 'grow'; readonly at: number; readonly tokens: number }
  | {
      readonly kind: 'end'
      readonly at: number
      /** `retry`: the provider fails and the next candidate is called. */
      readonly how: 'finish' | 'hang-up' | 'fail' | 'retry'
      /** Hidden or whole output, as a part of what the cap leaves. */
      readonly rest: number
      /** Tokens that the provider writes beyond its cap. */
      readonly over: number
    }
  | { readonly kind: 'ship'; readonly node: 0 | 1 }
  /** `isNoticed`: each node finds out before the next step. */
  | { readonly kind: 'lose'; readonly what: 'all' | 'one'; readonly isNoticed: boolean }
  | { readonly kind: 'wait'; readonly ms: number }

interface Walk {
  readonly world: World
  readonly steps: readonly Step[]
}

const node = fc.constantFrom(0 as const, 1 as const)
/** Limits of a few tokens are soon spent; streams reserve more than once under those of some thousand. */
const limitAmount = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 0, max: 40 }) },
  { weight: 2, arbitrary: fc.integer({ min: 1_000, max: 4_000 }) },
)
const at = fc.nat({ max: 7 })

const begin = fc.record({
  kind: fc.constant('begin' as const),
  node,
  streamed: fc.boolean(),
  visible: fc.boolean(),
  inputTokens: fc.constantFrom(1, 3, 10, 300),
  cap: fc.option(fc.constantFrom(1, 4, 16, 700, 3_000), { freq: 3 }),
})
const stream = begin.map(step => ({ ...step, streamed: true, visible: true, cap: null }))
const grow = fc.record({ kind: fc.constant('grow' as const), at, tokens: fc.integer({ min: 1, max: 1_500 }) })
const end = fc.record({
  kind: fc.constant('end' as const),
  at,
  how: fc.constantFrom('finish' as const, 'hang-up' as const, 'fail' as const, 'retry' as const),
  rest: fc.constantFrom(0, 0.1, 0.5, 1),
  over: fc.constantFrom(0, 1, 50),
})
const lose = fc.record({
  kind: fc.constant('lose' as const),
  what: fc.constantFrom('all' as const, 'one' as const),
  isNoticed: fc.boolean(),
})
const ship = fc.record({ kind: fc.constant('ship' as const), node })
const wait = fc.record({ kind: fc.constant('wait' as const), ms: fc.constantFrom(100, 1_000, DAY_MS) })

/** Steps that together touch a rule are rare by chance, so some come together. */
const scene: fc.Arbitrary<readonly Step[]> = fc.oneof(
  { weight: 6, arbitrary: fc.tuple(begin) },
  { weight: 3, arbitrary: fc.tuple(grow) },
  { weight: 5, arbitrary: fc.tuple(end) },
  { weight: 1, arbitrary: fc.tuple(ship) },
  { weight: 1, arbitrary: fc.tuple(lose) },
  { weight: 1, arbitrary: fc.tuple(wait) },
  { weight: 2, arbitrary: fc.tuple(begin, lose, begin) },
  { weight: 1, arbitrary: fc.tuple(stream, stream, grow, grow, grow) },
  { weight: 2, arbitrary: fc.tuple(begin, end, begin) },
)

const walks: fc.Arbitrary<Walk> = fc.record({
  world: fc.record({
    key: fc.option(
      fc.record({ amount: limitAmount, daily: fc.boolean(), byok: fc.constantFrom(false, false, true) }),
      { freq: 6 },
    ),
    budget: fc.option(
      fc.record({
        amount: limitAmount,
        scope: fc.constantFrom('workspace' as const, 'member' as const, 'api-key' as const),
        reset: fc.constantFrom('daily' as const, 'monthly' as const),
        byok: fc.boolean(),
      }),
      { freq: 1 },
    ),
    credits: fc.option(limitAmount, { freq: 1 }),
    credential: fc.constantFrom('none', 'normal', 'fallback', 'fallback', 'required', 'disabled'),
  }),
  steps: fc.array(scene, { minLength: 8, maxLength: 25, size: 'max' }).map(scenes => scenes.flat()),
})

/** Two instances that share counters or only the Store. */
interface Fleet {
  readonly clock: TestClock
  readonly store: Store
  readonly nodes: readonly { readonly counters: Counters; readonly pending: UsageRecord[] }[]
  /** True if one counter counts for all nodes; otherwise each node has its share. */
  readonly isShared: boolean
  /** Makes the counters lose what they have; `id` is one of them. */
  lose(id: string | null): Promise<void>
  /** Writes the records of a node to the Store. */
  ship(node: number): Promise<void>
  close(): Promise<void>
}

interface FleetOptions {
  readonly store: Store
  /** Null: each node counts in its memory. */
  readonly redis: { readonly url: string; run(...command: string[]): Promise<unknown> } | null
  readonly nodes: 1 | 2
}

const PREFIX = 'walk:'

async function openFleet({ store, redis, nodes }: FleetOptions): Promise<Fleet> {
  const clock = new TestClock(Date.UTC(2026, 0, 2, 12))
  const open = Array.from({ length: nodes }, () => {
    const pending: UsageRecord[] = []
    let shipping = Promise.resolve()
    // Each call waits for the records of earlier calls too.
    const ship = (): Promise<void> => {
      shipping = shipping.then(async () => {
        const records = pending.splice(0)
        if (records.length > 0) await store.ledger.add(records)
      })
      return shipping
    }
    const counters = new SharedCounters({
      redis: redis === null ? null : { url: redis.url, prefix: PREFIX },
      nodes: redis === null ? nodes : 1,
      spending: createSpending(store, ship),
      clock,
      log: SILENT,
      silenceMs: 1e9,
      aliveMs: 60_000,
    })
    return { counters, pending, ship }
  })
  while (redis !== null && open.some(({ counters }) => counters.degraded)) {
    await turns(1)
    clock.advance(1)
  }
  return {
    clock,
    store,
    nodes: open,
    isShared: redis !== null || nodes === 1,
    async lose(id) {
      if (redis === null) return
      await (id === null ? redis.run('FLUSHALL') : redis.run('DEL', PREFIX + id))
    },
    ship: async at => open[at % nodes]?.ship(),
    async close() {
      for (const { counters } of open) await counters.close()
    },
  }
}

/** What is reserved and used under one limit, as the nodes have taken and given it. */
interface Account {
  readonly entry: CounterEntry
  readonly limit: EntryLimit
  /** The nodes that know it. */
  readonly nodes: Set<Counters>
  ceiling: number
  open: number
  used: number
}

interface Running {
  readonly exchange: Exchange
  readonly candidates: readonly Candidate[]
  readonly node: number
  candidate: Candidate
  terms: CallTerms | null
  tokens: number
  isCut: boolean
  /** Continues a stream that waits for the counters. */
  go: (() => void) | null
}

interface Tally {
  begun: number
  served: number
  paid: number
  busy: number
  losses: number
}

/** @throws Error if a rule does not hold after a step */
async function run(fleet: Fleet, walk: Walk, tally: Tally): Promise<void> {
  await new Walker(fleet, walk, tally).run()
}

let walkers = 0

class Walker {
  readonly #fleet: Fleet
  readonly #walk: Walk
  readonly #tally: Tally
  readonly #caller: Caller
  readonly #budgets: readonly Budget[] | null
  readonly #quotas: readonly Quota[]
  readonly #accounts = new Map<string, Account>()
  readonly #running: Running[] = []
  readonly #endpoint = {
    ...scriptedEndpoint('openai-chat'),
    maxOutputTokens: 4_000,
    pricing: {
      prompt: TOKEN_PICO_USD,
      completion: TOKEN_PICO_USD,
      request: 0,
      inputCacheRead: null,
      inputCacheWrite: null,
    },
  }
  #requests = 0
  /** Tokens that no reservation could foresee. */
  #unforeseen = 0
  readonly #name: string

  constructor(fleet: Fleet, walk: Walk, tally: Tally) {
    this.#fleet = fleet
    this.#walk = walk
    this.#tally = tally
    const { key, budget, credits } = walk.world
    this.#name = `walk-${++walkers}-${process.pid}`
    const organizationId = this.#name
    this.#caller = {
      keyHash: `key-of-${this.#name}`,
      organizationId,
      workspaceId: 'w',
      memberId: 'm',
      limit:
        key === null
          ? null
          : { amount: key.amount, reset: key.daily ? 'daily' : null, includeByok: key.byok },
    }
    this.#budgets =
      budget === null
        ? null
        : [
            {
              guardrailId: this.#name,
              name: 'Team',
              scope: budget.scope,
              workspaceId: budget.scope === 'workspace' ? 'w' : null,
              amount: budget.amount,
              reset: budget.reset,
              includeByok: budget.byok,
            },
          ]
    this.#quotas = fleet.nodes.map(({ counters }) =>
      createQuota({
        counters: this.#watched(counters),
        clock: fleet.clock,
        enforceCredits: credits !== null,
        tokensPerMinute: null,
        budgets: { budgets: () => this.#budgets },
      }),
    )
  }

  async run(): Promise<void> {
    const { credits } = this.#walk.world
    if (credits !== null) {
      await this.#fleet.store.credits.add({
        id: `credits-of-${this.#name}`,
        organizationId: this.#name,
        amount: credits,
        note: null,
        createdAt: new Date(this.#fleet.clock.nowMs()).toISOString(),
      })
    }
    for (const step of this.#walk.steps) {
      await this.#take(step)
      this.#check()
    }
    for (const request of [...this.#running]) await this.#end(request, 'finish', 1, 0)
    this.#check()
    await this.#checkEnd()
  }

  /** Notes what passes between the quota and the counters. */
  #watched(counters: Counters): Counters {
    const note = (entries: readonly CounterEntry[], { exceeded, rooms }: ReserveResult): void => {
      for (const entry of entries) {
        const known = this.#accounts.get(entry.id) ?? {
          entry,
          limit: this.#limitOf(entry),
          nodes: new Set(),
          ceiling: entry.ceiling ?? picoToNano((this.#walk.world.credits ?? 0) * TOKEN_PICO_USD),
          open: 0,
          used: 0,
        }
        this.#accounts.set(entry.id, known)
        known.nodes.add(counters)
        if (exceeded === null) known.open += entry.amount
      }
      if (rooms.length !== entries.length) throw new Error('there is a room for each entry')
    }
    return {
      reserve: entries =>
        whenReady(counters.reserve(entries), taking => {
          note(entries, taking)
          return taking
        }),
      settle: (entries, used) => {
        counters.settle(entries, used)
        for (const [index, { id, amount }] of entries.entries()) {
          const account = this.#accounts.get(id)
          if (account === undefined) continue
          account.open -= amount
          account.used += used[index] ?? 0
        }
      },
    }
  }

  #limitOf({ id }: CounterEntry): EntryLimit {
    const [budget] = this.#budgets ?? []
    if (id.startsWith('budget/') && budget !== undefined) return { kind: 'budget', budget, spender: 'key' }
    const { limit } = this.#caller
    if (id.startsWith('usd/') && limit !== null) return { kind: 'limit', limit }
    return { kind: 'credits' }
  }

  async #take(step: Step): Promise<void> {
    const { clock } = this.#fleet
    switch (step.kind) {
      case 'begin':
        return this.#begin(step)
      case 'grow': {
        const request = this.#requestAt(step.at)
        if (request !== undefined) await this.#grow(request, step.tokens)
        return
      }
      case 'end': {
        const request = this.#requestAt(step.at)
        if (request !== undefined) await this.#end(request, step.how, step.rest, step.over)
        return
      }
      case 'ship':
        return this.#fleet.ship(step.node)
      case 'lose': {
        this.#tally.losses++
        // A node that never took from a counter cannot know that it was there.
        const { nodes } = this.#fleet
        const common = [...this.#accounts.values()].find(account => account.nodes.size === nodes.length)
        await this.#fleet.lose(step.what === 'one' && common !== undefined ? common.entry.id : null)
        if (step.isNoticed) clock.advance(HEARTBEAT_MS)
        return
      }
      case 'wait':
        // A day passes for the wall clock alone: its heartbeats would take the test too long.
        if (step.ms === DAY_MS) clock.jump(step.ms)
        else clock.advance(step.ms)
        return
    }
  }

  #requestAt(at: number): Running | undefined {
    return this.#running[at % Math.max(1, this.#running.length)]
  }

  /** The answer, while time passes if it does not come soon. */
  async #answer<T>(answer: T | Promise<T>): Promise<T> {
    if (!isPending(answer)) return answer
    let isOver = false
    const asking = answer.finally(() => {
      isOver = true
    })
    asking.catch(() => undefined)
    for (let tries = 0; !isOver; tries++) {
      if (tries === STUCK_TRIES) throw new Error('an answer does not come')
      if (tries < QUICK_TRIES) {
        await turns(1)
        continue
      }
      // Redis and the database need the processor too.
      if (tries > SLOW_TRIES) await pause(10)
      else if (tries % 10 === 0) await pause(1)
      else await turns(5)
      this.#fleet.clock.advance(50)
    }
    return asking
  }

  async #begin(step: Step & { kind: 'begin' }): Promise<void> {
    const { clock, nodes } = this.#fleet
    const at = step.node % nodes.length
    const quota = this.#quotas[at]
    if (quota === undefined) return
    this.#tally.begun++
    const exchange = Object.assign(
      scriptedExchange({
        input: 'x'.repeat(step.inputTokens * 4),
        stream: step.streamed,
        ...(step.cap === null ? {} : { max_output_tokens: step.cap }),
      }),
      {
        id: `${this.#name}-${this.#requests++}`,
        caller: this.#caller,
        createdAt: Math.floor(clock.nowMs() / 1_000),
      },
    )
    exchange.trust = { isVisible: () => step.visible, leave: () => undefined }
    const candidates = this.#candidates()
    const demand = demandOf(exchange.prompt, candidates, exchange.trust)
    for (let tries = 0; ; tries++) {
      try {
        exchange.reservation = quota.limits(this.#caller)
          ? await this.#answer(quota.admit(this.#caller, demand))
          : null
        break
      } catch (error) {
        const wrong = this.#wrongRefusal(error, demand)
        if (wrong === null) return
        // What another node gave back may be on its way.
        if (tries === LATE_TRIES) throw new Error(wrong)
        await pause(1)
      }
    }
    const [candidate] = candidates
    if (candidate === undefined) return
    const request: Running = {
      exchange,
      candidates,
      node: at,
      candidate,
      terms: null,
      tokens: 0,
      isCut: false,
      go: null,
    }
    await this.#call(request, candidates)
  }

  /** In the order in which routing tries them. */
  #candidates(): readonly Candidate[] {
    const shared: Candidate = { endpoint: this.#endpoint, credential: null }
    const own: Candidate = { endpoint: this.#endpoint, credential: { id: 'own' } as unknown as Credential }
    const orders = {
      none: [shared],
      disabled: [shared],
      normal: [own, shared],
      fallback: [shared, own],
      required: [own],
    }
    return orders[this.#walk.world.credential]
  }

  /** Calls the first of these candidates that the limits pay for. */
  async #call(request: Running, candidates: readonly Candidate[]): Promise<void> {
    const { exchange } = request
    const allowance = exchange.reservation?.allowance ?? null
    for (const candidate of candidates) {
      const terms =
        allowance === null
          ? null
          : await this.#answer(admitCall(exchange, allowance, exchange.prompt, candidate))
      if (terms === null && allowance !== null) continue
      request.candidate = candidate
      request.terms = terms
      request.tokens = 0
      request.isCut = false
      const isByok = candidate.credential !== null
      const record: AttemptRecord = scriptedRecord({
        endpoint: this.#endpoint,
        credential: candidate.credential,
        isByok,
      })
      exchange.attempts.push(record)
      this.#tally.served++
      if (!this.#running.includes(request)) this.#running.push(request)
      return
    }
    this.#leave(request, null)
  }

  /** Output of a stream comes in pieces; a meter says how far it may go. */
  async #grow(request: Running, tokens: number): Promise<void> {
    const { exchange, terms } = request
    if (exchange.request.stream !== true || request.isCut) return
    const most = Math.min(
      this.#endpoint.maxOutputTokens,
      terms?.cap ?? Number.POSITIVE_INFINITY,
      exchange.request.max_output_tokens ?? Number.POSITIVE_INFINITY,
    )
    const meter = terms?.meter ?? null
    for (let more = tokens; more > 0 && request.tokens < most; more -= PIECE_TOKENS) {
      request.tokens = Math.min(most, request.tokens + PIECE_TOKENS)
      if (meter === null || request.tokens * 4 < meter.nextCheckQuarters) continue
      const next = meter.reach(request.tokens * 4, () => request.go?.())
      if (next === 'stop') {
        request.isCut = true
        this.#unforeseen += PIECE_TOKENS
        return
      }
      if (next === 'wait') {
        const resumed = Promise.withResolvers<void>()
        request.go = resumed.resolve
        await this.#answer(resumed.promise)
        request.go = null
      }
    }
  }

  async #end(
    request: Running,
    how: (Step & { kind: 'end' })['how'],
    rest: number,
    over: number,
  ): Promise<void> {
    const { exchange, candidate, candidates, terms } = request
    if (how === 'fail' || how === 'retry') {
      exchange.bill.charge(null)
      const left = candidates.slice(candidates.indexOf(candidate) + 1)
      if (how === 'retry' && left.length > 0) return this.#call(request, left)
      this.#leave(request, new GatewayError('service_unavailable', 'the provider has failed'))
      return
    }
    const most = Math.min(
      this.#endpoint.maxOutputTokens,
      terms?.cap ?? Number.POSITIVE_INFINITY,
      exchange.request.max_output_tokens ?? Number.POSITIVE_INFINITY,
    )
    // A stream whose text is visible has no hidden output; others may have up to their cap.
    const isVisible =
      exchange.request.stream === true && exchange.trust?.isVisible(this.#endpoint, exchange.prompt) === true
    const hidden = how === 'hang-up' || isVisible ? 0 : Math.floor((most - request.tokens) * rest)
    const reasoningTokens = Math.max(0, hidden) + over
    this.#unforeseen += over
    const usage = {
      ...ZERO_USAGE,
      inputTokens: inputTokensOf(exchange.prompt),
      outputTokens: request.tokens + reasoningTokens,
      reasoningTokens,
    }
    exchange.bill.charge(chargeOf(usage, this.#endpoint.pricing, how === 'finish'))
    this.#leave(request, how === 'finish' ? null : new GatewayError('client_closed', 'the caller has left'))
  }

  /** Accounts for a request that is over. */
  #leave(request: Running, error: GatewayError | null): void {
    const { exchange, node } = request
    const at = this.#running.indexOf(request)
    if (at !== -1) this.#running.splice(at, 1)
    if (exchange.attempts.length === 0) {
      if (exchange.reservation !== null) settleReservation(exchange.reservation, null)
      return
    }
    const end = endOf(exchange, error, this.#fleet.clock.monotonicMs())
    const record = usageRecord(end)
    this.#fleet.nodes[node]?.pending.push(record)
    if (exchange.reservation !== null) settleReservation(exchange.reservation, record, end.fees)
  }

  /** A stream that the limit ended may be a piece ahead of its reservation, and a provider may write too much. */
  #check(): void {
    for (const { entry, ceiling, open, used } of this.#accounts.values()) {
      const slack = picoToNano(this.#unforeseen * TOKEN_PICO_USD)
      if (open < 0) throw new Error(`${entry.id}: more was given back than was reserved`)
      if (used + open > ceiling + slack) {
        throw new Error(`${entry.id}: ${used} spent and ${open} reserved of ${ceiling}`)
      }
    }
  }

  /**
   * Null if the refusal is right: 402 only if nothing that runs could make room by ending; 429 only if it could, and
   * nothing can serve now.
   */
  #wrongRefusal(error: unknown, demand: Demand): string | null {
    if (!(error instanceof GatewayError)) throw error
    const isBusy = error instanceof BusyError
    if (!isBusy && !['payment_required', 'permission_denied'].includes(error.code)) throw error
    // Alone, a node knows its share and not what others leave.
    if (this.#fleet.isShared) {
      const isFree = demand.offers.some(offer =>
        this.#current().every(({ limit }) => !counts(limit, offer.isOwn)),
      )
      if (isFree) return `${error.code}, although no limit counts the credential`
      const later = demand.offers.some(offer => this.#fits(offer))
      if (later !== isBusy) return `${error.code}, although waiting ${later ? 'helps' : 'does not help'}`
    }
    if (isBusy) this.#tally.busy++
    else this.#tally.paid++
    return null
  }

  /** True if the unspent money could pay for the offer. */
  #fits(offer: Offer): boolean {
    return this.#current().every(
      ({ limit, ceiling, used }) =>
        !counts(limit, offer.isOwn) || isAffordable(offer, nanoToPico(ceiling - used)),
    )
  }

  /** The accounts of the present periods. */
  #current(): readonly Account[] {
    const nowMs = this.#fleet.clock.nowMs()
    return [...this.#accounts.values()].filter(({ entry }) => entry.endsMs > nowMs)
  }

  async #checkEnd(): Promise<void> {
    const { nodes, store, isShared } = this.#fleet
    for (const at of nodes.keys()) await this.#fleet.ship(at)
    const spending = createSpending(store, async () => undefined)
    for (const { entry, open } of this.#accounts.values()) {
      if (open !== 0) throw new Error(`${entry.id}: ${open} reserved after the end`)
    }
    // The sum of a past period has what came after it.
    for (const { entry, used } of this.#current()) {
      const { origin } = entry
      const spent = origin === null ? 0 : await spending.sum(origin)
      if (spent !== used) throw new Error(`${entry.id}: ${used} settled, ${spent} in the ledger`)
      for (const { counters } of nodes) {
        for (let tries = 0; ; tries++) {
          const taken = await this.#answer(counters.reserve([{ ...entry, amount: 0 }]))
          const { total = -1, used: known = -1 } = taken.rooms[0] ?? {}
          if (total === known && (!isShared || known === spent)) break
          // What another node gave back may be on its way.
          if (tries === LATE_TRIES)
            throw new Error(
              `${entry.id}: a counter has ${total}, of it ${known} used; the ledger has ${spent}`,
            )
          await pause(1)
        }
      }
    }
  }
}

const WITHOUT_POSTGRES = await withoutPostgres()

const STORES = [
  { name: 'SQLite', skip: false, open: async (_: Test) => openStore('sqlite::memory:') },
  {
    name: 'PostgreSQL',
    skip: WITHOUT_POSTGRES,
    open: async (t: Test) => openStore((await postgresSchema(t)).url),
  },
]
const FLEETS = [
  { name: 'one node', nodes: 1, redis: false },
  { name: 'two nodes that share only the Store', nodes: 2, redis: false },
  { name: 'two nodes with one Redis', nodes: 2, redis: true },
] as const

/** `count` walks, shared out over all combinations; `withRedis: false` leaves out those whose counters are in Redis. */
export function moneyWalks(t: Test, count: number, { withRedis }: { readonly withRedis: boolean }): void {
  const fleets = FLEETS.filter(({ redis }) => withRedis || !redis)
  const each = Math.ceil(count / (STORES.length * fleets.length))
  for (const { name, skip, open } of STORES) {
    for (const fleet of fleets) {
      const away = skip !== false ? skip : fleet.redis ? WITHOUT_REDIS : false
      t.test(`${each} walks: ${fleet.name}, ${name}`, { skip: away }, async t => {
        const store = await open(t)
        t.teardown(() => store.close())
        const redis = fleet.redis ? await redisFor(t) : null
        const tally: Tally = { begun: 0, served: 0, paid: 0, busy: 0, losses: 0 }
        // Redis outlives a walk, as its counters have the name of the walk.
        const shared = redis === null ? null : await openFleet({ store, redis, nodes: fleet.nodes })
        t.teardown(() => shared?.close())
        await fc.assert(
          fc.asyncProperty(walks, async walk => {
            if (shared !== null) return run(shared, walk, tally)
            const own = await openFleet({ store, redis: null, nodes: fleet.nodes })
            await run(own, walk, tally).finally(() => own.close())
          }),
          search(each),
        )
        t.ok(tally.served > 0 && tally.paid > 0 && tally.busy > 0, JSON.stringify(tally))
      })
    }
  }
}

async function redisFor(t: Test): Promise<NonNullable<FleetOptions['redis']>> {
  const redis = await ownRedis(t)
  await redis.start()
  const client = createClient({ url: redis.url })
  client.on('error', () => undefined)
  await client.connect()
  t.teardown(() => client.destroy())
  return { url: redis.url, run: (...command) => client.sendCommand(command) }
}
