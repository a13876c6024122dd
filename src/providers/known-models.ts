/**
 * Model data from outside the configuration: a file in the public format, or a provider's own list. Both are untrusted:
 * each field is checked, and invalid fields are left out or refused. Pure.
 */
import { formatUsd, UNITS_PER_USD } from '../base/money.ts'
import { isObject } from '../protocol/json/schema.ts'
import type { PricingRow } from './row-schemas.ts'

/** Facts about one model; an absent field is unknown. Plain data, stored as JSON. */
export interface KnownModel {
  /** In an import the id of the catalogue, in a provider's list the provider's own name. */
  readonly id: string
  readonly name?: string
  /** Unix seconds. */
  readonly created?: number
  readonly contextLength?: number
  readonly maxOutputTokens?: number
  readonly inputModalities?: readonly string[]
  readonly outputModalities?: readonly string[]
  readonly supportedParameters?: readonly string[]
  readonly pricing?: PricingRow
}

type Fields = Readonly<Record<string, unknown>>

export const CATALOGUE_ID =
  /^[A-Za-z0-9][A-Za-z0-9._-]*(?:\/[A-Za-z0-9][A-Za-z0-9._-]*)+(?::[A-Za-z0-9][A-Za-z0-9._-]*)*$/
export const ID_MAX_CHARS = 256
const NAME_MAX_CHARS = 256
const MODELS_MAX = 100_000
const WORDS_MAX = 100
/** Larger dates or lengths are ignored. */
const NUMBER_MAX = 99_999_999_999
/** Maximum of errors shown for one file. Further ones often have the same cause. */
const FAULTS_MAX = 10

/** A file that cannot be imported. One line for each error, which begins with its position. */
export class ImportError extends Error {
  override readonly name = 'ImportError'
}

/**
 * Reads models in the public shape: `{"data": [...]}` or the list alone.
 * @throws ImportError
 */
export function readModels(text: string): readonly KnownModel[] {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new ImportError('is not JSON: expected the answer to GET /models, {"data": [...]}')
  }
  const list = Array.isArray(value) ? value : field(value, 'data')
  if (!Array.isArray(list)) throw new ImportError('has no list of models: expected {"data": [...]}')
  if (list.length === 0) throw new ImportError('data: is empty')
  if (list.length > MODELS_MAX) throw new ImportError(`data: has more than ${MODELS_MAX} models`)
  const faults: string[] = []
  const models: KnownModel[] = []
  const seenIds = new Set<string>()
  for (const [index, entry] of list.entries()) {
    const model = publicModel(entry, `data[${index}]`, faults)
    if (model === null || seenIds.has(model.id)) continue
    seenIds.add(model.id)
    models.push(model)
  }
  if (faults.length > FAULTS_MAX)
    faults.splice(FAULTS_MAX, faults.length, `and ${faults.length - FAULTS_MAX} more`)
  if (faults.length > 0) throw new ImportError(faults.join('\n'))
  return models
}

/**
 * Adds the errors of an entry to `faults`. Null for an entry without a valid id, and for latest names (`~…`), which
 * refer to other models of the list.
 */
function publicModel(entry: unknown, path: string, faults: string[]): KnownModel | null {
  if (!isObject(entry)) {
    faults.push(`${path}: expected an object`)
    return null
  }
  const { id } = entry
  if (typeof id !== 'string') {
    faults.push(`${path}.id: expected the form author/name`)
    return null
  }
  if (id.startsWith('~')) return null
  if (id.length > ID_MAX_CHARS || !CATALOGUE_ID.test(id)) {
    faults.push(`${path}.id: expected the form author/name`)
    return null
  }
  const checkType = (name: string, value: unknown, kind: 'string' | 'number' | 'object'): void => {
    if (value !== undefined && value !== null && typeof value !== kind)
      faults.push(`${path}.${name}: expected ${kind === 'object' ? 'an object' : `a ${kind}`}`)
  }
  checkType('name', entry['name'], 'string')
  checkType('created', entry['created'], 'number')
  checkType('context_length', entry['context_length'], 'number')
  checkType('architecture', entry['architecture'], 'object')
  checkType('pricing', entry['pricing'], 'object')
  checkType('top_provider', entry['top_provider'], 'object')
  const facts = factsIn(entry)
  const embeds = facts.outputModalities?.includes('embeddings') === true
  const pricing = pricingIn(entry['pricing'], embeds, problem => faults.push(`${path}.pricing.${problem}`))
  return { id, ...facts, ...(pricing === null ? {} : { pricing }) }
}

/** One page of a provider's list. */
interface ListPage {
  /** Models among the first 10,000 entries. */
  readonly models: readonly KnownModel[]
  /** Number of further entries. */
  readonly leftOut: number
  /** Query string of the next page; null: there is none. */
  readonly next: string | null
}

/**
 * Reads the reply of a provider's model list, in any of the known shapes; null if it has another shape. Skips entries
 * that cannot be read, and models for which the gateway has no operation.
 */
export function readList(text: string): ListPage | null {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return null
  }
  const list = Array.isArray(value) ? value : (field(value, 'data') ?? field(value, 'models'))
  if (!Array.isArray(list)) return null
  const models = list.slice(0, LISTED_MAX).flatMap(entry => {
    const model = listedModel(entry)
    return model === null ? [] : [model]
  })
  return { models, leftOut: Math.max(0, list.length - LISTED_MAX), next: nextPage(value) }
}

/**
 * Maximum entries of a provider's own list. More would block the main thread for seconds whenever the catalogue
 * changes.
 */
export const LISTED_MAX = 10_000

/** Names of models that speak, draw, transcribe or moderate through operations of their own. */
const OTHER_OPERATIONS =
  /(?:^|[-/])(?:whisper|tts|dall-e|gpt-image|imagen|veo|sora|moderation|transcribe|realtime)(?:[-.\d]|$)/i

function listedModel(entry: unknown): KnownModel | null {
  if (!isObject(entry)) return null
  const name = entry['id'] ?? entry['name']
  if (typeof name !== 'string') return null
  const id = name.replace(/^models\//, '')
  if (id.length > ID_MAX_CHARS || !/^[A-Za-z0-9][A-Za-z0-9._:/-]*$/.test(id) || OTHER_OPERATIONS.test(id))
    return null
  const methods = entry['supportedGenerationMethods']
  const embeds = Array.isArray(methods) ? methods.includes('embedContent') : /embed/i.test(id)
  if (Array.isArray(methods) && !embeds && !methods.includes('generateContent')) return null
  // If a price is unclear, the model gets no prices, because a missing price would mean free.
  let isClear = true
  const pricing = pricingIn(entry['pricing'], embeds, () => {
    isClear = false
  })
  return {
    id,
    ...(embeds ? { outputModalities: ['embeddings'] } : {}),
    ...factsIn(entry),
    ...(pricing === null || !isClear ? {} : { pricing }),
  }
}

function nextPage(value: unknown): string | null {
  const token = field(value, 'nextPageToken')
  if (typeof token === 'string' && token !== '') return `pageToken=${encodeURIComponent(token)}`
  const lastId = field(value, 'last_id')
  if (field(value, 'has_more') === true && typeof lastId === 'string' && lastId !== '')
    return `after_id=${encodeURIComponent(lastId)}`
  return null
}

/** The facts of an entry, under the names that each shape uses. */
function factsIn(entry: Fields): Omit<KnownModel, 'id' | 'pricing'> {
  const architecture = fieldsOf(entry['architecture'])
  const topProvider = fieldsOf(entry['top_provider'])
  const name = textIn(
    entry['display_name'] ?? entry['displayName'] ?? ('id' in entry ? entry['name'] : undefined),
  )
  const facts: Record<string, unknown> = {
    name,
    created: secondsIn(entry['created'] ?? entry['created_at']),
    contextLength: countIn(
      entry['context_length'] ??
        entry['context_window'] ??
        entry['max_context_length'] ??
        entry['max_model_len'] ??
        entry['max_input_tokens'] ??
        entry['inputTokenLimit'] ??
        topProvider['context_length'],
    ),
    maxOutputTokens: countIn(
      topProvider['max_completion_tokens'] ??
        entry['max_completion_tokens'] ??
        entry['max_output_tokens'] ??
        entry['outputTokenLimit'],
    ),
    inputModalities: wordsIn(architecture['input_modalities']),
    outputModalities: wordsIn(architecture['output_modalities']),
    supportedParameters: wordsIn(entry['supported_parameters']),
  }
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined))
}

const PRICE_FIELDS = {
  prompt: 'prompt',
  completion: 'completion',
  request: 'request',
  image: 'image',
  audio: 'audio',
  internal_reasoning: 'internalReasoning',
  input_cache_read: 'inputCacheRead',
  input_cache_write: 'inputCacheWrite',
  input_cache_write_1h: 'inputCacheWrite1h',
} as const

/** For these, lists write 0 if there is no separate price. */
const ZERO_MEANS_NONE: ReadonlySet<string> = new Set(['audio', 'internal_reasoning'])

/** These are not prices per token. */
const CALL_PRICES: ReadonlySet<string> = new Set(['request', 'image'])
/** USD. A higher price is meant per thousand or million tokens, because no token has ever cost a tenth of this. */
const TOKEN_PRICE_MAX = 0.01

/**
 * Null if the prices are unknown: they are missing, the output price is missing (`embeds`: there is no output), or they
 * are negative, as for models that choose another model.
 */
function pricingIn(value: unknown, embeds: boolean, addFault: (problem: string) => void): PricingRow | null {
  if (!isObject(value)) return null
  const prices = pricesIn(value, '', addFault)
  if (prices === null || prices['prompt'] === undefined) return null
  if (prices['completion'] === undefined && !embeds) return null
  const { overrides } = value
  if (!Array.isArray(overrides)) return prices
  const rows = overrides.flatMap((override: unknown, index) => {
    const minTokens = field(override, 'min_prompt_tokens')
    // Prices by the hour of the day are not supported. The plain prices apply.
    if (!isObject(override) || !Number.isSafeInteger(minTokens) || (minTokens as number) < 1) return []
    if (
      field(override, 'utc_start') != null ||
      field(override, 'utc_end') != null ||
      field(override, 'utc_days') != null
    )
      return []
    const {
      request: _request,
      image: _image,
      ...tokenPrices
    } = pricesIn(override, `overrides[${index}].`, addFault) ?? {}
    return [{ minPromptTokens: minTokens as number, ...tokenPrices }]
  })
  const uniqueRows = [...new Map(rows.map(row => [row.minPromptTokens, row])).values()].slice(0, 16)
  return uniqueRows.length === 0 ? prices : ({ ...prices, overrides: uniqueRows } as PricingRow)
}

function pricesIn(
  value: Fields,
  path: string,
  addFault: (problem: string) => void,
): Record<string, string> | null {
  const prices: Record<string, string> = {}
  for (const [listName, fieldName] of Object.entries(PRICE_FIELDS)) {
    const listedPrice = value[listName]
    if (listedPrice === undefined || listedPrice === null) continue
    const price = priceIn(listedPrice)
    if (price === 'unknown') return null
    const isPerMany = price !== null && !CALL_PRICES.has(listName) && Number(price) >= TOKEN_PRICE_MAX
    if (price === null || isPerMany) {
      const unit = isPerMany ? ' per token' : ''
      addFault(`${path}${listName}: expected a price in US dollars${unit}, such as "0.0000005"`)
    } else if (price !== '0' || !ZERO_MEANS_NONE.has(listName)) prices[fieldName] = price
  }
  return prices
}

/**
 * A price in the form of the configuration, to the nearest 1e-12 USD. Negative prices are 'unknown'; null: no price.
 */
function priceIn(price: unknown): string | 'unknown' | null {
  const text = typeof price === 'number' ? String(price) : price
  if (typeof text !== 'string') return null
  const match = /^(-?)(\d{1,15})(?:\.(\d{1,40}))?(?:[eE]([+-]?\d{1,2}))?$/.exec(text.trim())
  if (match === null) return null
  const [, sign, integerPart = '', fraction = '', exponent = '0'] = match
  if (sign === '-') return 'unknown'
  const shift = Number(exponent) - fraction.length + 12
  const digits = BigInt(integerPart + fraction)
  const picoUsd =
    shift >= 0 ? digits * 10n ** BigInt(shift) : (digits + 10n ** BigInt(-shift) / 2n) / 10n ** BigInt(-shift)
  return picoUsd >= 1000n * BigInt(UNITS_PER_USD) ? null : formatUsd(Number(picoUsd))
}

function textIn(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined
  // Control characters are removed, because the catalogue is also shown on terminals.
  const text = value.replace(/\p{C}/gu, '').trim().slice(0, NAME_MAX_CHARS).toWellFormed()
  return text === '' ? undefined : text
}

function countIn(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 1 && (value as number) <= NUMBER_MAX
    ? (value as number)
    : undefined
}

function secondsIn(value: unknown): number | undefined {
  if (typeof value === 'string') {
    const ms = Date.parse(value)
    return Number.isNaN(ms) || ms < 0 ? undefined : Math.floor(ms / 1000)
  }
  if (typeof value !== 'number' || !(value > 0) || value > NUMBER_MAX) return undefined
  return Math.floor(value)
}

function wordsIn(value: unknown): readonly string[] | undefined {
  if (!Array.isArray(value)) return undefined
  const words = value.filter(word => typeof word === 'string' && /^[a-z0-9_]{1,64}$/.test(word)) as string[]
  return words.length === 0 ? undefined : [...new Set(words)].slice(0, WORDS_MAX)
}

function fieldsOf(value: unknown): Fields {
  return isObject(value) ? value : {}
}

function field(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined
}
