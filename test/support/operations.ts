/** The whole table of operations: its handlers run with what a test gives them, or are not meant to be run. */
import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { createListing } from '../../src/api/models/models.ts'
import { InterfaceDocument } from '../../src/api/openapi.ts'
import type { Operation } from '../../src/api/operation.ts'
import { createOperations } from '../../src/api/operations.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { describeNewKey } from '../../src/providers/credentials/new-key.ts'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { openStore } from '../../src/storage/open.ts'
import { OFFERED } from './dialects.ts'
import { NO_BATCHES } from './no-batches.ts'
import { NO_CAPTURES } from './no-captures.ts'
import { NO_FILES } from './no-files.ts'
import { NO_KEY_CHECK } from './no-key-check.ts'
import { NO_PROOFS } from './no-proofs.ts'
import { NO_SUMMARIES } from './no-summaries.ts'
import { NO_TRANSCRIPTS } from './no-transcripts.ts'
import { TestClock } from './test-clock.ts'

/** @param given what the handlers of the test run with */
export async function allOperations(
  t: Test,
  given: Partial<Parameters<typeof createOperations>[0]> = {},
): Promise<readonly Operation[]> {
  const clock = given.clock ?? new TestClock()
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  return createOperations({
    gateway: {
      respond() {
        throw new Error('not run')
      },
      answerEmpty() {
        throw new Error('not run')
      },
      embed() {
        throw new Error('not run')
      },
      count() {
        throw new Error('not run')
      },
    },
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
    checkText() {
      throw new Error('not run')
    },
    offered: OFFERED,
    dataRegionOf: () => null,
    byokFeePercent: 0,
    document: new InterfaceDocument(),
    ...NO_BATCHES,
    ...NO_CAPTURES,
    ...NO_FILES,
    ...NO_KEY_CHECK,
    ...NO_TRANSCRIPTS,
    ...NO_PROOFS,
    ...NO_SUMMARIES,
    ...given,
  })
}
