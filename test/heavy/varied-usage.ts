/** Usage records of every kind, each generated from its number alone, so that a million of them need no memory. */
import type { UsageOutcome, UsageRecord } from '../../src/storage/usage.ts'
import { ODD_TEXT } from '../storage/records.ts'
import { someUsage } from '../storage/usage.ts'

const DAY_MS = 86_400_000
/** Records of one moment: their ids alone have an order. */
const TOGETHER = 4
const LETTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

export const ORGANIZATION = 'org_default'
export const FORMULA = '=1+1'
/** Each named by one record of some thousands. */
export const RARE = {
  keyHash: 'f'.repeat(64),
  model: 'rare/model',
  provider: 'rare-provider',
  workspaceId: 'ws_rare',
} as const
/** Named by nearly half of all records. */
export const COMMON = {
  keyHash: '0'.repeat(64),
  model: 'acme/model-0',
  provider: 'provider-0',
  workspaceId: 'ws_0',
  endUser: 'user-0',
} as const

interface VariedUsage {
  readonly records: number
  readonly days: number
  readonly endMs: number
  readonly users: number
  readonly sessions: number
  /** One record of so many names something rare. */
  readonly rarity: number
}

/** Numbers from a seed, the same each time. */
function numbers(seed: number): (below: number) => number {
  let state = Math.imul(seed + 1, 0x9e3779b1) >>> 0
  return below => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below)
  }
}

/** The record of a number; later ones have later times. */
export function variedUsage(
  at: number,
  { records, days, endMs, users, sessions, rarity }: VariedUsage,
): UsageRecord {
  const below = numbers(at)
  const isRare = () => below(rarity) === 0
  /** The first of them nearly half of the time. */
  const one = (most: number): number => (below(5) < 2 ? 0 : below(most))
  const startMs = endMs - days * DAY_MS
  const group = Math.floor(at / TOGETHER) * TOGETHER
  const createdMs = Math.floor(startMs + (group / records) * days * DAY_MS)
  const id = Array.from({ length: 20 }, () => LETTERS[below(62)]).join('')
  const model = isRare() ? RARE.model : below(50) === 0 ? null : `acme/model-${one(30)}`
  const provider = model === null ? null : isRare() ? RARE.provider : `provider-${one(8)}`
  const outcomes: readonly UsageOutcome[] = ['failed', 'failed', 'aborted', 'incomplete']
  const outcome = below(30) === 0 ? (outcomes[below(4)] ?? 'failed') : 'completed'
  const failed = outcome === 'failed'
  const endUser = below(10) < 4 ? (below(2_000) === 0 ? ODD_TEXT : `user-${one(users)}`) : null
  const session = below(2_000) === 0 ? FORMULA : `session-${below(sessions)}`
  const latencyMs = 50 + below(20_000)
  return someUsage({
    id: `gen-${Math.floor(createdMs / 1000)}-${id}`,
    createdAt: new Date(createdMs).toISOString(),
    organizationId: below(20) === 0 ? 'org_other' : ORGANIZATION,
    keyHash: isRare() ? RARE.keyHash : one(50).toString(16).padStart(64, '0'),
    workspaceId: isRare() ? RARE.workspaceId : below(20) === 0 ? null : `ws_${one(6)}`,
    model,
    provider,
    providerName: provider === null ? null : provider.toUpperCase(),
    upstreamId: provider === null ? null : `resp_${id}${id}`,
    outcome,
    error: failed ? 'provider_unavailable' : null,
    finishReason: failed ? null : 'stop',
    inputTokens: below(100_000),
    cachedTokens: below(3) === 0 ? below(1_000) : 0,
    cacheWriteTokens: below(9) === 0 ? below(1_000) : 0,
    outputTokens: below(5_000),
    reasoningTokens: below(3) === 0 ? below(1_000) : 0,
    // The largest ones have sums far beyond what a number can tell exactly.
    cost: isRare()
      ? 4e15 + below(1e15)
      : below(5) === 0
        ? 0
        : below(2_000) === 0
          ? 5e12 + below(1e12)
          : below(1e10),
    isByok: below(4) === 0,
    endUser,
    sessionId: below(10) < 3 ? session : null,
    ...(below(10) === 0 ? { agent: `agent-${below(12)}` } : {}),
    ...(below(3) === 0
      ? {
          app: { referer: 'https://app.example/chat', title: 'An app', userAgent: 'client/1.0 (x64) http/2' },
        }
      : {}),
    latencyMs,
    generationMs: failed ? null : below(latencyMs),
  })
}

/** All of them, newest first, as a search has them. */
export function* newestFirst(usage: VariedUsage): Generator<UsageRecord> {
  const last = Math.floor((usage.records - 1) / TOGETHER)
  for (let group = last; group >= 0; group--) {
    const from = group * TOGETHER
    const size = Math.min(TOGETHER, usage.records - from)
    const together = Array.from({ length: size }, (_, at) => variedUsage(from + at, usage))
    yield* together.sort((one, other) => (one.id < other.id ? 1 : -1))
  }
}
