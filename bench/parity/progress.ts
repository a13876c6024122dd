/** Shows the progress of a parity run on standard error: a bar on a terminal, otherwise a line at each tenth. */
import { drawsOver, ProgressBar } from '../../src/apps/commands/terminal/progress-bar.ts'

const TENTHS = 10

/** @returns to be called with the number of cases that are done */
export function caseProgress(
  total: number,
  errors: NodeJS.WriteStream = process.stderr,
): (done: number) => void {
  const startedAt = performance.now()
  const bar = new ProgressBar(errors, process.env)
  const draws = drawsOver(errors, process.env)
  let tenth = 0
  return done => {
    const reached = Math.floor((done * TENTHS) / total)
    if (!draws && reached === tenth) return
    tenth = reached
    const leftSeconds = Math.round((((performance.now() - startedAt) / done) * (total - done)) / 1000)
    const text = `${done}/${total} cases, ${leftSeconds} s left`
    if (!draws) errors.write(`${text}\n`)
    else if (done === total) bar.clear()
    else bar.show(done / total, [{ text, rank: 0 }])
  }
}
