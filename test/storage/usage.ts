/** Usage records for tests. */
import { generationId } from '../../src/base/ids.ts'
import type { UsageSpool } from '../../src/storage/spool/spool.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'

/** A usage record unlike all others. */
export function someUsage(fields: Partial<UsageRecord> = {}): UsageRecord {
  return {
    id: generationId(1_767_225_600_000),
    createdAt: '2026-01-01T00:00:00.000Z',
    organizationId: 'org_1',
    workspaceId: 'ws_1',
    keyHash: 'a'.repeat(64),
    model: 'acme/fast-1',
    provider: 'acme',
    providerName: 'Acme',
    upstreamId: null,
    streamed: true,
    outcome: 'completed',
    cancelled: false,
    error: null,
    finishReason: 'stop',
    nativeFinishReason: 'end_turn',
    accounting: 'exact',
    inputTokens: 10,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    outputTokens: 20,
    reasoningTokens: 0,
    webSearchRequests: 0,
    cost: 9_000_000,
    isByok: false,
    serviceTier: 'default',
    dataRegion: null,
    endUser: null,
    sessionId: null,
    latencyMs: 1,
    generationMs: 0.5,
    attempts: [
      {
        provider: 'acme',
        providerName: 'Acme',
        model: 'acme/fast-1',
        status: 200,
        error: null,
        isByok: false,
      },
    ],
    ...fields,
  }
}

/** Appends records one after the other, each in a turn of the event loop of its own. */
export async function keep(spool: UsageSpool | undefined, ...records: readonly UsageRecord[]): Promise<void> {
  for (const record of records) {
    spool?.append(record)
    await spool?.whenWritten()
  }
}
