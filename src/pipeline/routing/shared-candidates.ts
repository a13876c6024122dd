/** Shared candidates: endpoints with the gateway's own key in order of price, computed once per model. Hot path. */
import type { Endpoint, Model, Provider } from '../../protocol/provider.ts'
import type { RouteCandidate } from './candidate.ts'
import { isTiered } from './service-tiers.ts'

export interface ModelCandidates {
  /** All endpoints, in the order of the catalogue. */
  readonly all: readonly RouteCandidate[]
  /** Those that serve a request without special needs. */
  readonly plain: readonly RouteCandidate[]
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
  readonly takes: readonly string[] | null
}

export class SharedCandidates {
  readonly #ofModel = new WeakMap<Model, ModelCandidates>()
  readonly #byPrice = new WeakMap<readonly RouteCandidate[], readonly RouteCandidate[]>()

  of(model: Model): ModelCandidates {
    let made = this.#ofModel.get(model)
    if (made === undefined) {
      made = candidatesOf(model)
      this.#ofModel.set(model, made)
      this.#byPrice.set(made.plain, sortedByPrice(made.plain))
    }
    return made
  }

  /** All candidates by price, for lists that are filtered from it. */
  allByPrice(all: readonly RouteCandidate[]): readonly RouteCandidate[] {
    let sorted = this.#byPrice.get(all)
    if (sorted === undefined) {
      sorted = sortedByPrice(all)
      this.#byPrice.set(all, sorted)
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
  const all = endpoints.map(endpoint => ({ endpoint, credential: null }))
  return {
    all,
    plain: all.filter(({ endpoint }) => !isTiered(endpoint) && hasSharedKey(endpoint.provider)),
    hasTiers: endpoints.some(isTiered),
    lengthsDiffer:
      new Set(endpoints.map(({ contextLength, maxOutputTokens }) => `${contextLength} ${maxOutputTokens}`))
        .size > 1,
    leastContext: leastOf(endpoints.map(({ contextLength }) => contextLength)),
    leastOutput: leastOf(endpoints.map(({ maxOutputTokens }) => maxOutputTokens)),
    capsMessages: endpoints.some(({ provider }) => provider.messagesMax !== undefined),
    takes: takenInput(model),
  }
}

function leastOf(lengths: readonly (number | null)[]): number {
  return Math.min(...lengths.map(length => length ?? Number.POSITIVE_INFINITY))
}

/** The kinds of input that a model states it accepts; null if it does not state them. */
export function takenInput({ isInputStated, inputModalities }: Model): readonly string[] | null {
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
    const [of, than] = [priceOf(a.endpoint), priceOf(b.endpoint)]
    return of === than ? 0 : of - than
  })
}
