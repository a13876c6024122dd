/**
 * How much of an exhaustive list a run of the tests looks at: a part of it in `npm test`, everything in CI or with
 * `EXHAUSTIVE=1`.
 */
export const isExhaustive = process.env['CI'] === 'true' || process.env['EXHAUSTIVE'] === '1'

/** Each `every`th of a long list; all of it in an exhaustive run. The first is always among them. */
export const share = <T>(all: readonly T[], every: number): readonly T[] =>
  isExhaustive ? all : all.filter((_, at) => at % every === 0)

/** For the `skip` of a test that only exhaustive runs need. */
export const unlessExhaustive: string | false = isExhaustive ? false : 'runs in CI, and with EXHAUSTIVE=1'
