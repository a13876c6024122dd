/**
 * Money as integers: one unit is a micro-micro-dollar (1e-12 USD), so that a price per token is whole
 * and sums never round. Leaf.
 */

/** Units in one US dollar. */
export const UNITS_PER_USD = 1e12
const DECIMALS = 12

/** An amount in units of 1e-12 USD. Safe as a number up to about 9,000 USD: enough for one exchange. */
export type PicoUsd = number

/**
 * Reads a decimal string of US dollars, e.g. `"0.0000005"`.
 * @throws RangeError when it is no plain non-negative decimal or finer than 1e-12 USD.
 */
export function parseUsd(text: string): PicoUsd {
  const match = /^(\d{1,3})(?:\.(\d+))?$/.exec(text)
  if (match === null) throw new RangeError('not a decimal number of US dollars')
  const fraction = (match[2] ?? '').replace(/0+$/, '')
  if (fraction.length > DECIMALS) throw new RangeError('finer than 0.000000000001 US dollars')
  return Number(match[1]) * UNITS_PER_USD + Number(fraction.padEnd(DECIMALS, '0') || '0')
}

/** The amount as the interface shows it: a JSON number of US dollars. */
export function toUsd(amount: PicoUsd): number {
  return amount / UNITS_PER_USD
}

/** The amount as a decimal string without trailing zeros, the form of prices in model listings. */
export function formatUsd(amount: PicoUsd): string {
  const whole = Math.floor(amount / UNITS_PER_USD)
  const fraction = String(amount % UNITS_PER_USD)
    .padStart(DECIMALS, '0')
    .replace(/0+$/, '')
  return fraction === '' ? String(whole) : `${whole}.${fraction}`
}
