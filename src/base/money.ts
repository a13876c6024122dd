/**
 * Money as integers: one unit is 1e-12 USD, so every price per token is a whole number and sums are never rounded.
 * Leaf.
 */

/** Units in one US dollar. */
export const UNITS_PER_USD = 1e12
const DECIMALS = 12

/** An amount in units of 1e-12 USD. Exact up to about 9,000 USD, enough for one exchange. */
export type PicoUsd = number

/** An amount in units of 1e-6 USD, for limits and credits. Exact up to 9 billion USD. */
export type MicroUsd = number

/**
 * Parses a decimal string of US dollars, for example `"0.0000005"`.
 * @throws RangeError if it is not a plain non-negative decimal below 1,000, or finer than 1e-12 USD.
 */
export function parseUsd(text: string): PicoUsd {
  const match = /^(\d{1,3})(?:\.(\d+))?$/.exec(text)
  if (match === null) throw new RangeError('not a decimal number of US dollars')
  const fraction = (match[2] ?? '').replace(/0+$/, '')
  if (fraction.length > DECIMALS) throw new RangeError('finer than 0.000000000001 US dollars')
  return Number(match[1]) * UNITS_PER_USD + Number(fraction.padEnd(DECIMALS, '0') || '0')
}

/** A share of the catalogue's prices, in millionths. */
export type PriceFactor = number

/** The unchanged prices of the catalogue. */
export const FULL_PRICE: PriceFactor = 1_000_000

/**
 * Parses a decimal string, for example `"0.5"` for half of the prices.
 * @throws RangeError if it is not a plain decimal below 10, or finer than a millionth.
 */
export function parseFactor(text: string): PriceFactor {
  const match = /^(\d)(?:\.(\d{1,6}))?$/.exec(text)
  if (match === null) throw new RangeError('not a decimal number below 10 with at most six decimals')
  return Number(match[1]) * FULL_PRICE + Number((match[2] ?? '').padEnd(6, '0'))
}

/** The amount at this share of the prices; whole units, rounded down. */
export function atFactor(amount: PicoUsd, factor: PriceFactor): PicoUsd {
  if (factor === FULL_PRICE) return amount
  return Number((BigInt(Math.floor(amount)) * BigInt(factor)) / BigInt(FULL_PRICE))
}

/** The amount in US dollars, the public form. */
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

/** Units of 1e-6 USD in one US dollar. */
const MICROS_PER_USD = 1e6
/** Largest limit or credit in US dollars. Up to here a number has a precision of 1e-6 USD. */
export const AMOUNT_MAX_USD = 1e9

/** Reads a JSON number of US dollars; null if it is finer than 1e-6 USD or exceeds AMOUNT_MAX_USD. */
export function toMicroUsd(usd: number): MicroUsd | null {
  const micros = Math.round(usd * MICROS_PER_USD)
  if (!(Math.abs(usd) <= AMOUNT_MAX_USD) || micros / MICROS_PER_USD !== usd) return null
  // Minus zero is not a valid amount.
  return micros === 0 ? 0 : micros
}

/** The amount in US dollars, the public form. */
export function microToUsd(amount: MicroUsd): number {
  return amount / MICROS_PER_USD
}

/** A sum of 1e-12 USD units in US dollars: the nearest number. */
export function sumToUsd(sum: bigint): number {
  const digits = String(sum < 0n ? -sum : sum).padStart(DECIMALS + 1, '0')
  const usd = Number(`${digits.slice(0, -DECIMALS)}.${digits.slice(-DECIMALS)}`)
  return sum < 0n ? -usd : usd
}
