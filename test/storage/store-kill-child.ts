/**
 * The process that `store-kill.ts` kills: it accepts batches and finishes their lines, and prints everything that the
 * store has promised, one JSON text per line.
 */
import { writeSync } from 'node:fs'
import type { BatchRecord, HeldLine, LineOutcome } from '../../src/storage/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import type { BatchStore } from '../../src/storage/service-jobs.ts'
import { LEASE_MS, someBatch, someResult, someUsageOf } from './batches.ts'

/** What the store has promised. */
export type Promised =
  | { readonly is: 'accepted'; readonly id: string; readonly total: number }
  | {
      readonly is: 'stored'
      readonly id: string
      readonly results: readonly (readonly [number, number, LineOutcome])[]
    }
  | { readonly is: 'moved'; readonly id: string; readonly to: string }

const [, , url = '', life = '0', nowText = '0'] = process.argv
const nowMs = Number(nowText)
const leaseUntilMs = nowMs + LEASE_MS
const at = new Date(nowMs).toISOString()
const BATCHES = 4

/** Written at once: what is told must have left the process before the next verb. */
function tell(promised: Promised): void {
  writeSync(1, `${JSON.stringify(promised)}\n`)
}

async function acceptSome(store: BatchStore): Promise<void> {
  for (let made = 0; made < BATCHES; made++) {
    const total = 20 + ((made * 17) % 40)
    const { opening, lines, accepted } = someBatch({ lines: total, idempotencyKey: `${life} ${made}` })
    await store.open({ ...opening, leaseUntilMs }, nowMs)
    for (let from = 0; from < total; from += 10)
      await store.addLines(opening.id, lines.slice(from, from + 10))
    // Some are given up amid their bodies.
    if (made % 4 === 3) await store.abandon(opening.id)
    else if ((await store.accept(accepted)) !== null) tell({ is: 'accepted', id: opening.id, total })
    await store.work.prune('', nowMs, 7)
  }
}

async function runSome(store: BatchStore, owner: string): Promise<void> {
  for (;;) {
    const open = await store.work.open()
    for (const batch of open) {
      if (batch.status === 'validating') await check(store, owner, batch)
      else if (batch.status === 'in_progress') await runLines(store, owner, batch.id)
      else await move(store, batch.id, 'finalizing', 'completed')
    }
    if (open.length === 0) await new Promise(done => setTimeout(done, 5))
  }
}

async function check({ work }: BatchStore, owner: string, { id, total }: BatchRecord): Promise<void> {
  const claim = await work.claimBatch(id, owner, nowMs, leaseUntilMs)
  if (claim === null) return
  for (;;) {
    const last = (await work.uncheckedLines(id, { limit: 15 })).at(-1)
    if (last === undefined) break
    // The last line of each batch does not pass.
    const failures = last.number < total - 1 ? [] : [someFailure(last.number)]
    const isDone = await work.markChecked(id, claim, last.number, failures)
    if (isDone && failures.length > 0) tell({ is: 'stored', id, results: [[last.number, 0, 'failed']] })
  }
  if ((await work.move(id, ['validating'], 'in_progress', at)) !== null)
    tell({ is: 'moved', id, to: 'in_progress' })
  await work.releaseBatch(id, claim)
}

function someFailure(number: number) {
  const { batchId: _, fence: __, ...failure } = someResult({ batchId: '', number, fence: 0 })
  return { ...failure, outcome: 'failed', usage: someUsageOf(number + 1) } as const
}

async function runLines(store: BatchStore, owner: string, id: string): Promise<void> {
  const lines = await store.work.claimLines(id, owner, { limit: 6, nowMs, leaseUntilMs })
  const kept = await store.work.renew(owner, lines, leaseUntilMs + 1)
  const isLate = ({ number, fence }: HeldLine) => number % 5 === 0 && fence % 2 === 1
  const back = lines.filter(isLate).map(line => ({ ...line, tries: line.tries + 1, notBeforeMs: nowMs }))
  await store.work.giveBack(owner, back)
  const stored = await store.work.finish(
    owner,
    kept.map(line => someResult(line)),
  )
  if (stored.length > 0)
    tell({
      is: 'stored',
      id,
      results: stored.map(({ number, fence, outcome }) => [number, fence, outcome]),
    })
  const { finished: done, waiting, claimed } = await store.work.counts(id)
  if (waiting + claimed === 0 && done > 0) await move(store, id, 'in_progress', 'finalizing')
}

async function move(
  { work }: BatchStore,
  id: string,
  from: BatchRecord['status'],
  to: BatchRecord['status'],
) {
  if ((await work.move(id, [from], to, at)) !== null) tell({ is: 'moved', id, to })
}

const { batches } = await openStore(url)
await Promise.all([acceptSome(batches), runSome(batches, `${life} a`), runSome(batches, `${life} b`)])
