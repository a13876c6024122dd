/** The whole table of operations: its handlers run with what a test gives them, or are not meant to be run. */
import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { OutputSizes } from '../../src/api/batches/batch-outputs.ts'
import { createListing } from '../../src/api/models/models.ts'
import { InterfaceDocument } from '../../src/api/openapi.ts'
import type { Operation } from '../../src/api/operation.ts'
import { createOperations } from '../../src/api/operations.ts'
import { createLog } from '../../src/base/log/log.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { describeNewKey } from '../../src/providers/credentials/new-key.ts'
import { createTextSeal } from '../../src/providers/credentials/sealed-text.ts'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { openStore } from '../../src/storage/open.ts'
import { OFFERED } from './dialects.ts'
import { TestClock } from './test-clock.ts'

/** Stands for all that the tests of the table do not use. */
const notRun = (): never => {
  throw new Error('not run')
}

/** @param given what the handlers of the test run with */
export async function allOperations(
  t: Test,
  given: Partial<Parameters<typeof createOperations>[0]> = {},
): Promise<readonly Operation[]> {
  const clock = given.clock ?? new TestClock()
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  return createOperations({
    gateway: { respond: notRun, answerEmpty: notRun, embed: notRun, count: notRun, permits: notRun },
    listing: createListing(createCatalog({ providers: [], models: [] })),
    restrictionsOf: () => null,
    ledger: { find: async () => null },
    explanations: { find: async () => [] },
    stream: { heartbeatMs: 1, stallMs: 1, clock, metrics: createMetrics() },
    store,
    vault: createVault([{ id: 'test', secret: randomBytes(32) }]),
    clock,
    changes: { publish: () => undefined },
    providerName: () => null,
    describeKey: (slug, key) => describeNewKey(slug, undefined, key),
    patternProblem: () => null,
    checkText: notRun,
    offered: OFFERED,
    dataRegionOf: () => null,
    byokFeePercent: 0,
    document: new InterfaceDocument(),
    acceptances: { accept: notRun },
    batchMaxBytes: 1_024,
    captures: { running: null, maxBytes: 65_536, folder: '/nowhere' },
    files: { create: notRun, find: notRun, list: notRun, read: notRun, remove: notRun, maxFileBytes: 1_024 },
    fileUploads: { receive: notRun },
    outputSizes: new OutputSizes(),
    rateLimitDefault: { requests_per_minute: null, tokens_per_minute: null, parallel: null },
    rollouts: () => new Map(),
    keyCheck: { enter: notRun, prepare: notRun, run: notRun },
    transcripts: { open: notRun, claim: notRun, read: notRun },
    frameSeal: { seal: notRun, open: notRun },
    resumeWindowMs: 120_000,
    replayKeptMs: 600_000,
    proofs: {
      keys: { current: notRun },
      clock,
      log: createLog('silent', { write: () => undefined }),
      region: 'local',
    },
    summaries: {
      seal: createTextSeal([{ id: 'test', secret: randomBytes(32) }], 'summaries'),
      inputTokens: () => 0,
    },
    ...given,
  })
}
