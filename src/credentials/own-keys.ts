/**
 * The own provider credentials of a workspace as routing asks for them: which may serve whom, and which shared
 * endpoints they remove. Pure. Hot path: built once per load of the workspace, then only lookups.
 *
 * The restrictions of a credential (models, API keys, users) say whose requests may use it. The removal of shared
 * endpoints is a rule of the workspace: it holds for every enabled credential that asks for it, also for callers who
 * may not use that credential. So nobody reaches a shared endpoint by being left out.
 */
import type { DataRegion, Endpoint, Model } from '../providers/provider.ts'
import type { CredentialRecord } from '../storage/store.ts'

/** A credential without its key, sealed or not. */
export type Credential = Omit<CredentialRecord, 'sealed'>

/** Who asks, as far as restrictions look at it. */
export interface Asker {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  /** `user` of the request, compared exactly; null when it names none. */
  readonly user: string | null
}

/** One enabled credential with its lists ready to be asked; null: no restriction. */
interface Held {
  readonly credential: Credential
  readonly models: ReadonlySet<string> | null
  readonly keyHashes: ReadonlySet<string> | null
  readonly users: ReadonlySet<string> | null
}

const NOTHING: readonly Held[] = []

export class OwnKeys {
  /** By slug of the provider, in the order of trying. */
  readonly #byProvider = new Map<string, Held[]>()
  /** Providers whose shared endpoints are removed for every model. */
  readonly #required = new Set<string>()
  readonly #byokOnly: Held[] = []

  /** `records` in any order; disabled ones count for nothing. */
  constructor(records: readonly Credential[]) {
    for (const credential of records.toSorted(inOrder)) {
      if (credential.disabled) continue
      const held: Held = {
        credential,
        models: setOf(credential.allowedModels),
        keyHashes: setOf(credential.allowedApiKeyHashes),
        users: setOf(credential.allowedUserIds),
      }
      const others = this.#byProvider.get(credential.provider)
      if (others === undefined) this.#byProvider.set(credential.provider, [held])
      else others.push(held)
      if (credential.isRequired) this.#required.add(credential.provider)
      if (credential.isByokOnly) this.#byokOnly.push(held)
    }
  }

  /** Whether there is nothing to ask: no enabled credential. */
  get isEmpty(): boolean {
    return this.#byProvider.size === 0
  }

  /**
   * The credentials that may serve a model at a provider for this caller, fallback ones among them, in the order of
   * trying. Models are compared by their exact catalogue id, variants included; providers by their exact slug, since
   * a key only ever goes to the provider that it was given for.
   */
  serving(endpoint: Endpoint, asker: Asker): readonly Credential[] {
    const held = this.#byProvider.get(endpoint.provider.slug) ?? NOTHING
    if (held.length === 0) return []
    return held.filter(each => admits(each, endpoint.modelId, asker)).map(each => each.credential)
  }

  /** Whether the provider's shared endpoints are removed, whatever the model and whether or not an own key works. */
  requiredFor(provider: string): boolean {
    return this.#required.has(provider)
  }

  /**
   * Whether the model runs on own keys only, so that its shared endpoints at every provider are removed: a credential
   * of a provider that serves the model, and that applies to it, says so.
   */
  reserves(model: Model): boolean {
    return this.#byokOnly.some(
      ({ credential, models }) =>
        (models === null || models.has(model.id)) &&
        model.endpoints.some(endpoint => endpoint.provider.slug === credential.provider),
    )
  }
}

/** A workspace without credentials. */
export const NO_OWN_KEYS = new OwnKeys([])

/**
 * Whether data stays in the region when the endpoint is called with this credential; null: with the shared key.
 * A credential has to be declared for the region; its word counts where the endpoint itself is bound to none.
 */
export function isWithin(region: DataRegion, endpoint: Endpoint, credential: Credential | null): boolean {
  if (credential === null) return endpoint.region === region
  return credential.declaredRegion === region && (endpoint.region === null || endpoint.region === region)
}

/** Whether nothing is kept of what is sent: the credential's own word goes before the endpoint's policy. */
export function retainsNothing(endpoint: Endpoint, credential: Credential | null): boolean {
  return credential?.declaredZdr ?? endpoint.zdr
}

function admits(held: Held, modelId: string, asker: Asker): boolean {
  const { models, keyHashes, users } = held
  return (
    (models === null || models.has(modelId)) &&
    (keyHashes === null || keyHashes.has(asker.keyHash)) &&
    (users === null || (asker.user !== null && users.has(asker.user)))
  )
}

/** Equal sort orders only come from a restored database; the older goes first then. */
function inOrder(a: Credential, b: Credential): number {
  return a.sortOrder - b.sortOrder || compare(a.createdAt, b.createdAt) || compare(a.id, b.id)
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function setOf(list: readonly string[] | null): ReadonlySet<string> | null {
  return list === null ? null : new Set(list)
}
