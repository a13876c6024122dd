/** How far a parity run is, on standard error: a bar on a terminal, otherwise a line at each tenth. */

const BAR_WIDTH = 24
const TENTHS = 10

/** @returns to be called with the number of cases that are done */
export function caseProgress(
  total: number,
  errors: NodeJS.WriteStream = process.stderr,
): (done: number) => void {
  const startedAt = performance.now()
  let tenth = 0
  return done => {
    const reached = Math.floor((done * TENTHS) / total)
    if (!errors.isTTY && reached === tenth) return
    tenth = reached
    const leftSeconds = Math.round((((performance.now() - startedAt) / done) * (total - done)) / 1000)
    const text = `${done}/${total} cases, ${leftSeconds} s left`
    if (!errors.isTTY) errors.write(`${text}\n`)
    else if (done === total) errors.write('\r\x1b[K')
    else {
      const full = Math.floor((done * BAR_WIDTH) / total)
      errors.write(`\r\x1b[K${'█'.repeat(full)}${'░'.repeat(BAR_WIDTH - full)} ${text}`)
    }
  }
}
