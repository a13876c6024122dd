/** Settings of the search for counterexamples in property tests. */

/** How many times as far to look, and elsewhere at each run. A failure tells its seed. */
const TIMES = Number(process.env['PROPERTY_SEARCH'] ?? 0)
const SEED = 20261121

/** For fast-check: what fails once fails again. With `PROPERTY_SEARCH=50` it is a search of fifty times the length. */
export function search(numRuns = 100): { readonly seed: number; readonly numRuns: number } {
  return TIMES > 0 ? { seed: Date.now() | 0, numRuns: numRuns * TIMES } : { seed: SEED, numRuns }
}
