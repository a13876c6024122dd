/**
 * Reads the PDF at a path with its own task pool, and prints the result and how many MiB this process grew meanwhile.
 * One process per PDF, because memory freed by one would hide what the next one takes.
 * `node test/features/tasks/pdf-bomb.ts PATH`
 */
import { readFileSync } from 'node:fs'
import { systemClock } from '../../../src/base/clock.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { createTaskPool } from '../../../src/features/tasks/pool/pool.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import { writePdf } from '../../support/pdf.ts'

export interface Exploded {
  /** The code of its refusal, or `text`. */
  readonly answer: string
  readonly grownMb: number
}

const DEADLINE = { deadlineMs: 120_000 }
const SAMPLE_MS = 5

const bytes = readFileSync(process.argv[2] ?? '')
const pool = createTaskPool({ threads: 1, clock: systemClock, metrics: createMetrics() })
await pool.run('pdf-text', { bytes: writePdf({ pages: ['sound'] }) }, DEADLINE)
const before = process.memoryUsage.rss()
let peak = before
const sampling = setInterval(() => {
  peak = Math.max(peak, process.memoryUsage.rss())
}, SAMPLE_MS)
const answer = await pool.run('pdf-text', { bytes }, DEADLINE).then(
  () => 'text',
  (error: unknown) => {
    if (!(error instanceof TaskError)) throw error
    return error.failure?.code ?? error.outcome
  },
)
clearInterval(sampling)
const exploded: Exploded = { answer, grownMb: (peak - before) / 1024 ** 2 }
process.stdout.write(JSON.stringify(exploded))
await pool.close()
