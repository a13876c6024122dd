/**
 * The batch state `validating`: checks the bodies of a batch page by page. One runner at a time does this, under a
 * claim of the batch; another can continue where it stopped. Batch thread; the check itself runs in the task pool.
 */
import type { FailureCode } from '../base/errors.ts'
import { TaskError } from '../features/tasks/task.ts'
import { NO_USAGE } from '../protocol/management/batches.ts'
import type { BatchRecord, BatchWork, Claim, LineResult, NewLine } from '../storage/batches.ts'
import { failedLine } from './result-line.ts'

/** The error of one body. */
interface BodyFault {
  readonly number: number
  readonly code: FailureCode
  /** Uses the field names of the endpoint's dialect, and contains nothing of the body. */
  readonly message: string
}

/** Finds the errors of some bodies. @throws TaskError */
export type CheckBodies = (batch: BatchRecord, lines: readonly NewLine[]) => Promise<readonly BodyFault[]>

interface BodyCheckDeps {
  readonly work: Pick<BatchWork, 'uncheckedLines' | 'markChecked'>
  readonly check: CheckBodies
}

/** A page occupies its worker for a few tens of milliseconds. */
const PAGE_BOUNDS = { limit: 500, maxBytes: 2 * 1024 * 1024 } as const

/**
 * Checks unchecked bodies while `mayContinue` returns true. Returns true if every body is checked. Rejects with the
 * error of the Store, or with TaskError if the pool is full.
 */
export async function checkBatch(
  { work, check }: BodyCheckDeps,
  batch: BatchRecord,
  claim: Claim,
  mayContinue: () => boolean,
): Promise<boolean> {
  while (mayContinue()) {
    const page = await work.uncheckedLines(batch.id, PAGE_BOUNDS)
    const last = page.at(-1)
    if (last === undefined) return true
    const faults = await faultsOf(check, batch, page)
    const results = faults.map(resultOf)
    if (!mayContinue() || !(await work.markChecked(batch.id, claim, last.number, results))) return false
  }
  return false
}

/** A body that ends its worker, or takes too long, fails alone. */
async function faultsOf(
  check: CheckBodies,
  batch: BatchRecord,
  lines: readonly NewLine[],
): Promise<readonly BodyFault[]> {
  try {
    return await check(batch, lines)
  } catch (error) {
    if (!(error instanceof TaskError) || !BODY_FAULT_OUTCOMES.has(error.outcome)) throw error
    const [first] = lines
    if (lines.length > 1) {
      const middle = Math.ceil(lines.length / 2)
      const head = await faultsOf(check, batch, lines.slice(0, middle))
      return [...head, ...(await faultsOf(check, batch, lines.slice(middle)))]
    }
    const message =
      'body: could not be checked within the time and memory limits: send a smaller or simpler one'
    return first === undefined ? [] : [{ number: first.number, code: 'invalid_request', message }]
  }
}

const BODY_FAULT_OUTCOMES: ReadonlySet<TaskError['outcome']> = new Set<TaskError['outcome']>([
  'timeout',
  'crashed',
  'failed',
])

function resultOf({ number, code, message }: BodyFault): Omit<LineResult, 'batchId' | 'fence'> {
  return { number, outcome: 'failed', result: failedLine({ code, message }), usage: NO_USAGE }
}
