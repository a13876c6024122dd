/**
 * Candidates: ways to serve a request, with their names in preferences and their order by price, and notes about those
 * that routing left out. Hot path.
 */
import { hash } from 'node:crypto'
import type { Candidate } from '../../exchange/exchange.ts'
import type { Exclusion } from '../../exchange/reasons.ts'
import type { Endpoint, Model, Provider } from '../../protocol/provider.ts'
import type { Credential } from '../../providers/credentials/catalog.ts'
import type { EndpointState } from '../../providers/health/endpoint-state.ts'
import { isTiered, tierSlug } from './service-tiers.ts'

export interface RouteCandidate extends Candidate {
  /** Null: the shared key. */
  readonly credential: Credential | null
  state?: EndpointState
}

const TAG_LENGTH = 10

/** Identifies who can read data that an endpoint encrypts: its provider, with this credential or the shared key. */
export function makerOf({ endpoint, credential }: Pick<Candidate, 'endpoint' | 'credential'>): string {
  const id = credential === null ? '' : credential.id
  return hash('sha256', `${endpoint.provider.slug}\n${id}`, 'base64url').slice(0, TAG_LENGTH)
}

/**
 * True if a preference names this endpoint. A base slug names every region, variant and service tier of a provider, a
 * full slug names one; display names are accepted too.
 */
export function namesProvider(name: string, endpoint: NamedEndpoint): boolean {
  return matchesName(name.toLowerCase(), endpoint)
}

/**
 * True if this lower-case name names the endpoint. The cheapest comparisons come first, because a request may have many
 * endpoints.
 */
export function matchesName(requestedName: string, endpoint: NamedEndpoint): boolean {
  const { slug, name } = endpoint.provider
  if (requestedName === slug) return true
  if (
    slug.length > requestedName.length &&
    slug[requestedName.length] === '/' &&
    slug.startsWith(requestedName)
  )
    return true
  if (name.length === requestedName.length && name.toLowerCase() === requestedName) return true
  return endpoint.serviceTier !== undefined && requestedName === tierSlug(endpoint)
}

type NamedEndpoint = Pick<Endpoint, 'provider' | 'serviceTier'>

export function isNamed(names: readonly string[] | null | undefined, endpoint: NamedEndpoint): boolean {
  if (names == null) return false
  for (let index = 0; index < names.length; index++)
    if (namesProvider(names[index] as string, endpoint)) return true
  return false
}

// The candidates of a model with the gateway's own keys, computed once.

export interface ModelCandidates {
  readonly model: Model
  /** All endpoints, in the order of the catalogue. */
  readonly unfiltered: readonly RouteCandidate[]
  /** The candidates that serve a request without special needs. */
  readonly plain: readonly RouteCandidate[]
  /** True if some providers are called with own keys only. */
  readonly lacksKeys: boolean
  readonly hasTiers: boolean
  /** True if some endpoints accept longer prompts, or write longer answers, than others. */
  readonly lengthsDiffer: boolean
  /** The shortest context of all; infinite if none is known. */
  readonly leastContext: number
  /** The shortest output limit of all; infinite if none is known. */
  readonly leastOutput: number
  /** True if some provider accepts only a limited number of messages. */
  readonly capsMessages: boolean
  /** The kinds of input that the model states it accepts; null if it does not state them. */
  readonly acceptedInput: readonly string[] | null
}

export class SharedCandidates {
  readonly #ofModel = new WeakMap<Model, ModelCandidates>()
  readonly #byPrice = new WeakMap<readonly RouteCandidate[], readonly RouteCandidate[]>()

  of(model: Model): ModelCandidates {
    let candidates = this.#ofModel.get(model)
    if (candidates === undefined) {
      candidates = candidatesOf(model)
      this.#ofModel.set(model, candidates)
      this.#byPrice.set(candidates.plain, sortedByPrice(candidates.plain))
    }
    return candidates
  }

  /** The candidates by price, for lists that are filtered in this order. */
  allByPrice(unfiltered: readonly RouteCandidate[]): readonly RouteCandidate[] {
    let sorted = this.#byPrice.get(unfiltered)
    if (sorted === undefined) {
      sorted = sortedByPrice(unfiltered)
      this.#byPrice.set(unfiltered, sorted)
    }
    return sorted
  }

  /** Records that a list is already in the order of prices, so that `byPrice` returns it. */
  noteSorted(candidates: readonly RouteCandidate[]): void {
    this.#byPrice.set(candidates, candidates)
  }

  /** Cheapest first, unknown prices last. Equal prices keep their order. */
  byPrice(candidates: readonly RouteCandidate[]): readonly RouteCandidate[] {
    return this.#byPrice.get(candidates) ?? sortedByPrice(candidates)
  }
}

function candidatesOf(model: Model): ModelCandidates {
  const { endpoints } = model
  const unfiltered = endpoints.map(endpoint => ({ endpoint, credential: null }))
  return {
    model,
    unfiltered,
    plain: unfiltered.filter(({ endpoint }) => !isTiered(endpoint) && hasSharedKey(endpoint.provider)),
    lacksKeys: endpoints.some(({ provider }) => !hasSharedKey(provider)),
    hasTiers: endpoints.some(isTiered),
    lengthsDiffer:
      new Set(endpoints.map(({ contextLength, maxOutputTokens }) => `${contextLength} ${maxOutputTokens}`))
        .size > 1,
    leastContext: leastOf(endpoints.map(({ contextLength }) => contextLength)),
    leastOutput: leastOf(endpoints.map(({ maxOutputTokens }) => maxOutputTokens)),
    capsMessages: endpoints.some(({ provider }) => provider.messagesMax !== undefined),
    acceptedInput: statedInput(model),
  }
}

function leastOf(lengths: readonly (number | null)[]): number {
  return Math.min(...lengths.map(length => length ?? Number.POSITIVE_INFINITY))
}

/** The kinds of input that a model states it accepts; null if it does not state them. */
export function statedInput({ isInputStated, inputModalities }: Model): readonly string[] | null {
  return isInputStated ? inputModalities : null
}

/** True if the operator's key can be used, or no key is needed. Otherwise the provider is called with own keys only. */
export function hasSharedKey({ auth, apiKey }: Provider): boolean {
  return auth === 'none' || apiKey !== null
}

/** The price for comparisons: one input token plus one output token. Infinite if unknown. */
export function priceOf({ pricing }: Endpoint): number {
  return pricing.isUnknown === true ? Number.POSITIVE_INFINITY : pricing.prompt + pricing.completion
}

function sortedByPrice(candidates: readonly RouteCandidate[]): readonly RouteCandidate[] {
  return candidates.toSorted((a, b) => {
    const [priceA, priceB] = [priceOf(a.endpoint), priceOf(b.endpoint)]
    return priceA === priceB ? 0 : priceA - priceB
  })
}

/** A reason to leave out candidates. */
export interface Filter {
  /** Its name in `availability.excluded_by`. */
  readonly excludedBy: string
  readonly admits: (candidate: RouteCandidate) => boolean
}

/** More are not noted, because nobody reads so long a list. */
const MAX_NOTED_EXCLUSIONS = 64

export class Exclusions {
  /** Filters that left a candidate out, for the error of a request that no endpoint may serve. */
  readonly reasons = new Set<string>()
  readonly list: Exclusion[] = []

  /** Notes that a filter leaves out the candidate. */
  add(candidate: RouteCandidate, by: string): void {
    this.reasons.add(by)
    this.#note(candidate, by)
  }

  /**
   * Notes own credentials that are restricted to other models, API keys or users, so that they are not candidates at
   * all.
   */
  addRestricted(endpoint: Endpoint, credentials: readonly Credential[]): void {
    for (const credential of credentials) this.#note({ endpoint, credential }, 'credential_restricted')
  }

  #note({ endpoint, credential }: RouteCandidate, by: string): void {
    if (this.list.length < MAX_NOTED_EXCLUSIONS) this.list.push({ endpoint, credential, by })
  }

  /** Notes candidates that would have served too, but fit less well than others. */
  addUnpreferred(candidates: readonly RouteCandidate[], { admits, excludedBy }: Filter): void {
    for (const candidate of candidates) if (!admits(candidate)) this.#note(candidate, excludedBy)
  }

  /** Called when candidates are listed again. */
  clear(): void {
    this.reasons.clear()
    this.list.length = 0
  }
}
