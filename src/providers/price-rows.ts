/** Prices of endpoints: reads them from rows, selects them by the length of a prompt, and detects free ones. Pure. */
import { type PicoUsd, parseUsd } from '../base/money.ts'
import type { Faults } from '../base/settings/check.ts'
import type { Endpoint, PriceOverride, Pricing, TokenPrices } from '../protocol/provider.ts'
import type { PricingRow } from './row-schemas.ts'

/** The prices of an endpoint whose row has none. */
export const UNKNOWN_PRICING: Pricing = {
  prompt: 0,
  completion: 0,
  request: 0,
  inputCacheRead: null,
  inputCacheWrite: null,
  isUnknown: true,
}

type OverrideRow = NonNullable<PricingRow['overrides']>[number]
type PriceName = Exclude<keyof PricingRow, 'overrides'>

/** The prices of a row. Errors are added with the path of their field. */
export function pricingOf(row: PricingRow, path: string, faults: Faults): Pricing {
  const price = priceReader(row, path, faults)
  const base: Pricing = {
    prompt: price('prompt') ?? 0,
    completion: price('completion') ?? 0,
    request: price('request') ?? 0,
    inputCacheRead: price('inputCacheRead'),
    inputCacheWrite: price('inputCacheWrite'),
    inputCacheWrite1h: price('inputCacheWrite1h'),
    image: price('image'),
    audio: price('audio'),
    internalReasoning: price('internalReasoning'),
  }
  return row.overrides === undefined
    ? base
    : { ...base, overrides: overridesOf(row.overrides, base, `${path}.overrides`, faults) }
}

/** Sorted by length, ascending. A missing price is the price for shorter prompts. */
function overridesOf(
  rows: readonly OverrideRow[],
  base: TokenPrices,
  path: string,
  faults: Faults,
): readonly PriceOverride[] {
  const seenMinimums = new Set<number>()
  const sortedRows = rows
    .map((row, index) => ({ row, at: index }))
    .sort((a, b) => a.row.minPromptTokens - b.row.minPromptTokens)
  let shorterPrices = base
  return sortedRows.map(({ row, at: index }) => {
    const { minPromptTokens } = row
    if (seenMinimums.has(minPromptTokens))
      faults.add(`${path}[${index}].minPromptTokens`, 'is also in another override')
    seenMinimums.add(minPromptTokens)
    const price = priceReader(row, `${path}[${index}]`, faults)
    const override: PriceOverride = {
      minPromptTokens,
      prompt: price('prompt') ?? shorterPrices.prompt,
      completion: price('completion') ?? shorterPrices.completion,
      inputCacheRead: price('inputCacheRead') ?? shorterPrices.inputCacheRead,
      inputCacheWrite: price('inputCacheWrite') ?? shorterPrices.inputCacheWrite,
      inputCacheWrite1h: price('inputCacheWrite1h') ?? shorterPrices.inputCacheWrite1h ?? null,
      audio: price('audio') ?? shorterPrices.audio ?? null,
      internalReasoning: price('internalReasoning') ?? shorterPrices.internalReasoning ?? null,
    }
    shorterPrices = override
    return override
  })
}

function priceReader(
  row: PricingRow | OverrideRow,
  path: string,
  faults: Faults,
): (name: PriceName) => PicoUsd | null {
  return name => {
    const text = (row as PricingRow)[name]
    if (text === undefined) return null
    try {
      return parseUsd(text)
    } catch (error) {
      faults.add(`${path}.${name}`, error instanceof RangeError ? error.message : 'is not a price')
      return null
    }
  }
}

/** The prices for a prompt of this many tokens. Hot path. */
export function pricesFor(pricing: Pricing, promptTokens: number): TokenPrices {
  const { overrides } = pricing
  if (overrides == null) return pricing
  let prices: TokenPrices = pricing
  for (const override of overrides) {
    if (promptTokens <= override.minPromptTokens) break
    prices = override
  }
  return prices
}

/** True if all prices are known and 0 for prompts of any length. */
export function isFree({ pricing }: Endpoint): boolean {
  const { request, image, isUnknown, overrides } = pricing
  if (isUnknown === true || request !== 0 || (image ?? 0) !== 0) return false
  return costsNothing(pricing) && (overrides == null || overrides.every(costsNothing))
}

function costsNothing(prices: TokenPrices): boolean {
  const { prompt, completion, inputCacheRead, inputCacheWrite, inputCacheWrite1h } = prices
  const cachePrices = (inputCacheRead ?? 0) + (inputCacheWrite ?? 0) + (inputCacheWrite1h ?? 0)
  return prompt + completion + cachePrices + (prices.audio ?? 0) + (prices.internalReasoning ?? 0) === 0
}
