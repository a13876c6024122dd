/** Batches for storage tests, each unlike all others, and the way that each goes from its body to its results. */
import { randomBytes } from 'node:crypto'
import { type BatchUsage, NO_USAGE } from '../../src/protocol/management/batches.ts'
import type {
  AcceptedBatch,
  BatchRecord,
  ClaimedLine,
  LineResult,
  NewLine,
  OpeningBatch,
  StoredResult,
} from '../../src/storage/batches.ts'
import type { BatchStore } from '../../src/storage/service-jobs.ts'

export const NOW_MS = Date.parse('2026-05-01T00:00:00.000Z')
export const LEASE_MS = 60_000
let made = 0

/** A batch with its lines, as acceptance gives it to the store. */
interface SomeBatch {
  readonly opening: OpeningBatch
  readonly lines: readonly NewLine[]
  readonly accepted: AcceptedBatch
}

export interface BatchFields extends Partial<Omit<AcceptedBatch, 'total'>> {
  readonly idempotencyKey?: string | null
  readonly lines?: number | readonly NewLine[]
}

export function someBatch({ idempotencyKey = null, lines = 3, ...fields }: BatchFields = {}): SomeBatch {
  made++
  const given = typeof lines === 'number' ? someLines(lines) : lines
  const accepted = {
    id: `batch_${randomBytes(12).toString('hex')}`,
    organizationId: 'org_1',
    workspaceId: 'ws_1',
    keyHash: 'a'.repeat(64),
    endpoint: '/v1/responses',
    model: 'acme/fast-1',
    preferences: null,
    dataRegion: null,
    withMetadata: false,
    inputFile: null,
    total: given.length,
    createdAt: new Date(NOW_MS + made * 1000).toISOString(),
    expiresAt: new Date(NOW_MS + 86_400_000).toISOString(),
    bodyHash: made.toString(16).padStart(64, '0'),
    ...fields,
  } as const
  const { id, organizationId, keyHash } = accepted
  return {
    opening: { id, organizationId, keyHash, idempotencyKey, leaseUntilMs: NOW_MS + LEASE_MS },
    lines: given,
    accepted,
  }
}

export function someLines(count: number, from = 0): NewLine[] {
  return Array.from({ length: count }, (_, at) => someLine(from + at))
}

export function someLine(number: number, fields: Partial<NewLine> = {}): NewLine {
  return { number, customId: `line-${number}`, body: `{"input":"${number}"}`, ...fields }
}

/** Stores a batch with its lines. */
export async function accept(store: BatchStore, fields: BatchFields = {}): Promise<BatchRecord> {
  const { opening, lines, accepted } = someBatch(fields)
  await store.open(opening, NOW_MS)
  await store.addLines(opening.id, lines)
  return present(await store.accept(accepted))
}

/** A batch whose lines wait to be run. */
export async function acceptRunning(store: BatchStore, fields: BatchFields = {}): Promise<BatchRecord> {
  const { id, total } = await accept(store, fields)
  const claim = present(await store.work.claimBatch(id, 'checker', NOW_MS, NOW_MS + LEASE_MS))
  await store.work.markChecked(id, claim, total - 1, [])
  await store.work.releaseBatch(id, claim)
  return present(await store.work.move(id, ['validating'], 'in_progress', at(1)))
}

/** A batch that came to its end, with a result for each line. */
export async function acceptDone(store: BatchStore, fields: BatchFields = {}): Promise<BatchRecord> {
  const { id, total } = await acceptRunning(store, fields)
  const lines = await claim(store, id, 'runner', total)
  await store.work.finish(
    'runner',
    lines.map(line => someResult(line)),
  )
  await store.work.move(id, ['in_progress'], 'finalizing', at(2))
  return present(await store.work.move(id, ['finalizing'], 'completed', at(3)))
}

export async function claim(
  store: BatchStore,
  id: string,
  owner: string,
  limit: number,
  nowMs = NOW_MS,
): Promise<readonly ClaimedLine[]> {
  return await store.work.claimLines(id, owner, { limit, nowMs, leaseUntilMs: nowMs + LEASE_MS })
}

/** @throws if it is null. */
export function present<Value>(value: Value | null): Value {
  if (value === null) throw new Error('there is none')
  return value
}

/** The time so many seconds after NOW_MS. */
export function at(seconds: number): string {
  return new Date(NOW_MS + seconds * 1000).toISOString()
}

export function someUsageOf(amount: number, fields: Partial<BatchUsage> = {}): BatchUsage {
  return {
    ...NO_USAGE,
    inputTokens: amount,
    outputTokens: 2 * amount,
    cost: String(3n * BigInt(amount)),
    upstream: { prompt: String(amount), completions: String(2 * amount) },
    serviceTier: 'standard',
    ...fields,
  }
}

export function someResult(
  { batchId, number, fence }: Pick<ClaimedLine, 'batchId' | 'number' | 'fence'>,
  fields: Partial<LineResult> = {},
): LineResult {
  return {
    batchId,
    number,
    fence,
    outcome: 'completed',
    result: `{"id":"batch_req_${number}","fence":${fence}}`,
    usage: someUsageOf(number + 1),
    ...fields,
  }
}

/** All results of a batch, read in pages. */
export async function allResults(store: BatchStore, id: string, limit = 100): Promise<StoredResult[]> {
  const all: StoredResult[] = []
  for (;;) {
    const page = present(await store.results(id, all.at(-1)?.number ?? -1, { limit }))
    if (page.length === 0) return all
    all.push(...page)
  }
}
