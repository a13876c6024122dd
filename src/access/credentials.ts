/**
 * The own provider credentials of workspaces, remembered as routing needs them: without any key, sealed or not.
 * Hot path: a known workspace, above all one without credentials, costs one lookup, synchronously. The store is asked
 * once per workspace and refresh, however many requests wait.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'
import { serviceUnavailable } from '../errors.ts'
import type { Log } from '../log.ts'
import { type CredentialRecord, DEFAULT_WORKSPACE_ID, type Store } from '../storage/store.ts'
import { within } from './keys.ts'
import { type Credential, NO_OWN_KEYS, OwnKeys } from './own-keys.ts'

export interface CredentialsSettings {
  readonly store: { readonly credentials: Pick<Store['credentials'], 'ofWorkspace'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Workspaces kept in memory. */
  readonly maxWorkspaces?: number
  /** Credentials kept in memory, all workspaces together. Default 100,000: about 100 MB at worst. */
  readonly maxCredentials?: number
  /** How long a workspace is believed without asking again: the longest a change goes unseen if no word of it comes. */
  readonly freshMs?: number
  /** How long after its last confirmation a known workspace goes on while the store fails. */
  readonly staleMs?: number
  /** How long a request waits for the store. */
  readonly lookupMs?: number
  /** Workspaces that may be looked up at once; above it callers are told to come again. */
  readonly maxLookups?: number
}

const DEFAULTS = {
  maxWorkspaces: 10_000,
  maxCredentials: 100_000,
  freshMs: 30_000,
  // As for API keys: a store that is away for longer than this needs people anyway.
  staleMs: 600_000,
  lookupMs: 2_000,
  maxLookups: 1_000,
}
type Limits = typeof DEFAULTS

/** While the store fails, a known workspace asks it again only this often. */
const RETRY_MS = 1_000

interface Entry {
  readonly ownKeys: OwnKeys
  readonly size: number
  /** Monotonic; until then the store is not asked. */
  freshUntilMs: number
  /** Monotonic; until then what is known counts although the store fails. */
  readonly staleUntilMs: number
  /** The store failed when it was last asked: who comes next does not wait for it again. */
  failing: boolean
}

export class Credentials {
  readonly #store: CredentialsSettings['store']
  readonly #clock: Clock
  readonly #log: CredentialsSettings['log']
  readonly #limits: Limits
  readonly #known: LRUCache<string, Entry>
  readonly #lookups = new Map<string, Promise<OwnKeys>>()
  #storeFails = false

  constructor(settings: CredentialsSettings) {
    const { store, clock, log, ...limits } = settings
    this.#store = store
    this.#clock = clock
    this.#log = log
    this.#limits = { ...DEFAULTS, ...limits }
    const { maxWorkspaces, maxCredentials } = this.#limits
    this.#known = new LRUCache({
      max: maxWorkspaces,
      maxSize: maxCredentials,
      // One workspace over the whole limit is still kept, alone, rather than asked for with every request.
      sizeCalculation: entry => Math.min(entry.size, maxCredentials),
    })
  }

  /**
   * What a workspace has; a promise only when the store has to be asked. A key without a workspace (null) belongs to
   * the default one.
   * Rejects with GatewayError `service_unavailable` when the store fails and nothing is known: such a request must
   * not go to shared endpoints, which own keys may have removed.
   */
  of(organizationId: string, workspaceId: string | null): OwnKeys | Promise<OwnKeys> {
    const workspace = workspaceId ?? DEFAULT_WORKSPACE_ID
    const name = nameOf(organizationId, workspace)
    const entry = this.#known.get(name)
    const nowMs = this.#clock.monotonicMs()
    if (entry !== undefined && nowMs < entry.freshUntilMs) return entry.ownKeys
    if (entry?.failing === true && nowMs < entry.staleUntilMs) {
      this.#ask(name, organizationId, workspace).catch(() => undefined)
      return entry.ownKeys
    }
    return this.#ask(name, organizationId, workspace)
  }

  /** Drops what is remembered of a workspace, after its credentials were changed. */
  forget(organizationId: string, workspaceId: string): void {
    const name = nameOf(organizationId, workspaceId)
    this.#known.delete(name)
    this.#lookups.delete(name)
  }

  /** Has every workspace read anew when it next asks; what was known counts on only while the store fails. */
  doubtAll(): void {
    for (const entry of this.#known.values()) {
      entry.freshUntilMs = Number.NEGATIVE_INFINITY
      entry.failing = false
    }
    this.#lookups.clear()
  }

  #ask(name: string, organizationId: string, workspaceId: string): Promise<OwnKeys> {
    const lookups = this.#lookups
    const running = lookups.get(name)
    if (running !== undefined) return running
    // Async, so that a refusal comes as a rejection like every other.
    if (lookups.size >= this.#limits.maxLookups) return (async () => this.#lastKnown(name))()
    // What is read for a workspace that was forgotten meanwhile may be the old state, and is not kept.
    const current = (): boolean => lookups.get(name) === lookup
    const lookup: Promise<OwnKeys> = this.#refresh(name, organizationId, workspaceId, current).finally(() => {
      if (current()) lookups.delete(name)
    })
    lookups.set(name, lookup)
    return lookup
  }

  async #refresh(
    name: string,
    organizationId: string,
    workspaceId: string,
    current: () => boolean,
  ): Promise<OwnKeys> {
    const { lookupMs, freshMs, staleMs } = this.#limits
    let records: readonly CredentialRecord[]
    try {
      const asked = this.#store.credentials.ofWorkspace(organizationId, workspaceId)
      records = await within(this.#clock, lookupMs, asked)
    } catch (error) {
      // Once per outage: the next thousand lines would say the same.
      if (!this.#storeFails) this.#log?.fault('credentials cannot be looked up', error)
      this.#storeFails = true
      return this.#lastKnown(name, error)
    }
    if (this.#storeFails) {
      this.#storeFails = false
      this.#log?.notice('credentials can be looked up again')
    }
    const ownKeys = records.length === 0 ? NO_OWN_KEYS : new OwnKeys(records.map(withoutKey))
    const nowMs = this.#clock.monotonicMs()
    if (current()) {
      this.#known.set(name, {
        ownKeys,
        size: 1 + records.length,
        freshUntilMs: nowMs + freshMs,
        staleUntilMs: nowMs + freshMs + staleMs,
        failing: false,
      })
    }
    return ownKeys
  }

  #lastKnown(name: string, cause?: unknown): OwnKeys {
    const entry = this.#known.get(name)
    const nowMs = this.#clock.monotonicMs()
    if (entry === undefined || nowMs >= entry.staleUntilMs) throw serviceUnavailable(cause)
    entry.freshUntilMs = Math.min(nowMs + RETRY_MS, entry.staleUntilMs)
    entry.failing = true
    return entry.ownKeys
  }
}

function nameOf(organizationId: string, workspaceId: string): string {
  return `${organizationId}\n${workspaceId}`
}

function withoutKey({ sealed: _sealed, ...credential }: CredentialRecord): Credential {
  return credential
}
