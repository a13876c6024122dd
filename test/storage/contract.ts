/** What every Store must do, whatever database is behind it. */
import type { Test } from 'tap'
import type { Store } from '../../src/storage/store.ts'
import { auditContract } from './contract/audit.ts'
import { batchAcceptanceContract } from './contract/batch-acceptance.ts'
import { batchInterleavingsContract } from './contract/batch-interleavings.ts'
import { batchPruningContract } from './contract/batch-pruning.ts'
import { batchReadingContract } from './contract/batch-reading.ts'
import { batchRoomContract } from './contract/batch-room.ts'
import { batchWorkContract } from './contract/batch-work.ts'
import { captureContract } from './contract/captures.ts'
import { catalogueContract } from './contract/catalogue.ts'
import { credentialContract } from './contract/credentials.ts'
import { creditContract } from './contract/credits.ts'
import { endUserContract } from './contract/end-users.ts'
import { explanationContract } from './contract/explanations.ts'
import { fileContract, memoryContract, passageContract } from './contract/files.ts'
import { guardrailAssignmentContract } from './contract/guardrail-assignments.ts'
import { guardrailContract } from './contract/guardrails.ts'
import { keyContract } from './contract/keys.ts'
import { ledgerContract } from './contract/ledger.ts'
import { batchLinesContract } from './contract/line-queue.ts'
import { pauseContract } from './contract/pauses.ts'
import { rolloutContract } from './contract/rollouts.ts'
import { serviceJobsContract } from './contract/service-jobs.ts'
import { workspaceContract } from './contract/workspaces.ts'

/** An empty Store. */
export type Opened = (test: Test) => Promise<Store>

/** Runs the contract. `open` gives an empty Store for the test; `close` is called by the contract. */
export async function storeContract(t: Test, open: Opened): Promise<void> {
  const opened: Opened = async test => {
    const store = await open(test)
    test.teardown(() => store.close())
    return store
  }
  await keyContract(t, opened)
  await workspaceContract(t, opened)
  await endUserContract(t, opened)
  await credentialContract(t, opened)
  await creditContract(t, opened)
  await guardrailContract(t, opened)
  await guardrailAssignmentContract(t, opened)
  await ledgerContract(t, opened)
  await auditContract(t, opened)
  await batchAcceptanceContract(t, opened)
  await batchRoomContract(t, opened)
  await batchReadingContract(t, opened)
  await batchWorkContract(t, opened)
  await batchLinesContract(t, opened)
  await batchPruningContract(t, opened)
  await serviceJobsContract(t, opened)
  await batchInterleavingsContract(t, opened)
  await catalogueContract(t, opened)
  await captureContract(t, opened)
  await fileContract(t, opened)
  await passageContract(t, opened)
  await memoryContract(t, opened)
  await explanationContract(t, opened)
  await rolloutContract(t, opened)
  await pauseContract(t, opened)

  await t.test('a closed store refuses, and closing twice does no harm', async t => {
    const store = await open(t)
    await store.close()
    await store.close()
    await t.rejects(store.keys.count())
    await t.rejects(store.credentials.ofWorkspace('org_1', 'ws_1'))
  })
}
