/** Lifecycles of batches in which one store call fails, or several in a row, at every place or at some. */
import type { Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { type BatchWorld, startBatchWorld } from '../support/batch-world.ts'
import { type FaultMode, StoreFaults } from './store-faults.ts'

const DEFAULTS = loadConfig([], {})
/** One line at a time, so that the life of a batch has many calls. */
const NARROW = { batches: { ...DEFAULTS.batches, concurrency: 1 } }
const MALFORMED = 3
/** Each fails the first time. */
const FLAKY = 5
const LINES_MAX = 18
const RUN = LINES_MAX - 1
/** What one reply of 7 and 5 tokens costs, in units of 1e-12 USD. */
const REPLY_COST = 17_000_000

const FAULTS: readonly { readonly mode: FaultMode; readonly count: number }[] = [
  { mode: 'before', count: 1 },
  { mode: 'after', count: 1 },
  { mode: 'before', count: 5 },
]

interface FaultTotals {
  points: number
  readonly verbs: Set<string>
  /** Points that left a batch which is not whole. */
  readonly broken: string[]
}

function linesOf(life: number) {
  return Array.from({ length: LINES_MAX }, (_, at) => {
    if (at === MALFORMED) return { messages: 1 }
    return at === FLAKY ? `flaky ${life}` : `line ${at}`
  })
}

/** @param stride 1: at every call of a life; more: at each of so many */
export async function faultPoints(
  t: Pick<Test, 'teardown'>,
  stride: number,
): Promise<FaultTotals & { readonly world: BatchWorld }> {
  const faults = new StoreFaults()
  const world = await startBatchWorld(t, {
    config: NARROW,
    between: store => faults.between(store),
    answer: (text, nth) => (text.startsWith('flaky') && nth === 1 ? { status: 500 } : {}),
  })
  const totals: FaultTotals = { points: 0, verbs: new Set(), broken: [] }
  for (const [at, { mode, count }] of FAULTS.entries()) {
    for (let n = 1 + (at % stride); ; n += stride) {
      faults.failed.length = 0
      faults.failAt(n, mode, count)
      const before = faults.calls
      const { id } = await world.put({ lines: linesOf(totals.points) })
      await world.reaches(id, 'completed')
      const calls = faults.calls - before
      faults.heal()
      for (const verb of faults.failed) totals.verbs.add(verb)
      if (!(await isWhole(world, id))) totals.broken.push(`${mode} ${n}: ${faults.failed.join(' ')}`)
      totals.points++
      if (n > calls) break
    }
  }
  return { ...totals, world }
}

/** Each line has its one result, and the sums are those of the results. */
async function isWhole(world: BatchWorld, id: string): Promise<boolean> {
  const { completed, failed, usage } = await world.batch(id)
  const results = await world.results(id)
  return (
    completed === RUN &&
    failed === 1 &&
    results.length === LINES_MAX &&
    results.every(({ number, outcome }, at) => {
      return number === at && (outcome === 'failed') === (number === MALFORMED)
    }) &&
    usage.cost === String(RUN * REPLY_COST)
  )
}

/** Holds the ledger against the batches: each line was charged once, however often it ran. */
export async function isChargedOnce({
  world,
  points,
}: FaultTotals & { readonly world: BatchWorld }): Promise<boolean> {
  const records = await world.records()
  // The tries that failed have records too.
  return (
    records.length === points * (RUN + 1) &&
    records.filter(({ cost }) => cost === REPLY_COST).length === points * RUN &&
    new Set(records.map(({ id }) => id)).size === records.length
  )
}
