/**
 * Measures work as processor time, which, unlike elapsed time, does not depend on other load of the machine. It covers
 * the whole process, so nothing else may be running in it.
 */

export function cpuMs(work: () => void): number {
  const before = process.cpuUsage()
  work()
  return since(before)
}

/** The least of several runs: collections and compilers belong to none of them. */
export function bestCpuMs(work: () => void, runs = 3): number {
  let least = Number.POSITIVE_INFINITY
  for (let run = 0; run < runs; run++) least = Math.min(least, cpuMs(work))
  return least
}

/** The same of what is waited for. */
export async function bestAsyncCpuMs(work: () => Promise<unknown>, runs = 3): Promise<number> {
  let least = Number.POSITIVE_INFINITY
  for (let run = 0; run < runs; run++) {
    const before = process.cpuUsage()
    await work()
    least = Math.min(least, since(before))
  }
  return least
}

function since(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}
