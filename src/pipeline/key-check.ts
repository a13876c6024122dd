/**
 * Tests a provider key with cheap calls: the provider's list of models, if that list requires a key, otherwise the
 * smallest completion. The calls are sent like a caller's: to the key's own address, through the provider's egress.
 * They create no usage record, and do not affect the health of an endpoint. Serve threads.
 */
import type { Clock } from '../base/clock.ts'
import { GatewayError, RETRY_AFTER_SECONDS, refuseField, toGatewayError } from '../base/errors.ts'
import { HeldShare, type Holder } from '../base/fairness/held-share.ts'
import type { Log } from '../base/log/log.ts'
import { abortSignalOf, type RequestSignal } from '../base/signal.ts'
import { EMBEDDINGS_FORMATS } from '../formats/embeddings/table.ts'
import type { Format } from '../formats/format.ts'
import { FORMATS } from '../formats/table.ts'
import {
  type AnyFormatName,
  type Endpoint,
  isEmbeddingsFormat,
  type OutgoingKey,
  ownKeyScheme,
  type Provider,
} from '../protocol/provider.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Credential } from '../providers/credentials/catalog.ts'
import type { OutgoingKeys } from '../providers/credentials/outgoing-key.ts'
import { API_OF_FORMAT } from '../providers/format-apis.ts'
import { readList } from '../providers/known-models.ts'
import { authHeaders } from '../providers/upstream/auth.ts'
import { upstreamFailure } from '../providers/upstream/error-reply.ts'
import { hasList } from '../providers/upstream/list-models.ts'
import type { Transport } from '../providers/upstream/transport.ts'
import { type WholeReply, wholeReply } from '../providers/upstream/whole-reply.ts'
import { cheapestEndpoint, endpointsOf, readSmallestReply, smallestRequest } from './smallest-request.ts'
import { openRecord } from './turn/failover.ts'
import { failureOf, refusalIn } from './turn/provider-failure.ts'
import { deployedEndpoint, keyOwner, type ProviderRequests } from './turn/provider-request.ts'

interface KeyCheckDeps {
  readonly catalog: Pick<Catalog, 'model' | 'models' | 'provider'>
  readonly client: Transport
  readonly providerKeys: Pick<OutgoingKeys, 'ownKey' | 'sharedKey'>
  readonly requests: Pick<ProviderRequests, 'address'>
  readonly clock: Clock
  readonly log: Log
}

/** A key to be tested. */
interface KeyToTry {
  /** Slug. */
  readonly provider: string
  /** Null: the gateway's own key. */
  readonly credential: Credential | null
  /** Id of the model to call; absent: the list, or otherwise the cheapest model. */
  readonly model?: string | undefined
}

/** A key whose provider is known, and optionally a model of that provider. */
interface TriedKey {
  readonly provider: Provider
  readonly credential: Credential | null
  /** The endpoint for a completion; null if the catalogue has no model of the provider that the key may serve. */
  readonly endpoint: Endpoint | null
  /** True if the caller named the model. The provider's list of models is then not requested. */
  readonly isNamed: boolean
}

export interface KeyVerdict {
  /** The call that decided; null if none was made. */
  readonly probe: 'models' | 'completion' | 'embedding' | null
  /** Id of the model that was called; null if none was. */
  readonly model: string | null
  /** Null: the key works. Without secrets. */
  readonly error: GatewayError | null
}

/** Time limit of a check with all its calls. */
const CHECK_TIMEOUT_MS = 20_000
/** The longest known lists have some megabytes. */
const LIST_MAX_BYTES = 16 * 1024 * 1024
const REPLY_MAX_BYTES = 256 * 1024
/** Concurrent checks in a thread: of all management keys, and of each. */
const MAX_RUNNING_CHECKS = { total: 8, perKey: 2 }
/** Checks of an organization per minute and thread: they may be charged to the gateway's own keys. */
const MAX_CHECKS_PER_MINUTE = 30
const MINUTE_MS = 60_000
/** Statuses of a list request that say nothing about model calls: there is no list, or the key may not read it. */
const UNDECIDED_STATUSES: ReadonlySet<number> = new Set([400, 403, 404, 405, 501])

/** Tests provider keys. One instance per thread. */
export class KeyCheck {
  readonly #deps: KeyCheckDeps
  readonly #running = new HeldShare(MAX_RUNNING_CHECKS)
  /** Checks by organization in the minute that ends at `#minuteEndsMs`. */
  readonly #callCounts = new Map<string, number>()
  #minuteEndsMs = 0

  constructor(deps: KeyCheckDeps) {
    this.#deps = deps
  }

  /**
   * Takes a slot for a check; call the returned function when the check is over.
   * @throws GatewayError `rate_limit_exceeded`
   */
  enter(key: Holder): () => void {
    this.#count(key.organizationId)
    if (this.#running.reserve(key, 1) !== 'taken') {
      throw new GatewayError('rate_limit_exceeded', 'Too many keys are being checked at once; try again', {
        retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
      })
    }
    return () => this.#running.release(key, 1)
  }

  #count(organizationId: string): void {
    const nowMs = this.#deps.clock.monotonicMs()
    if (nowMs >= this.#minuteEndsMs) {
      this.#callCounts.clear()
      this.#minuteEndsMs = nowMs + MINUTE_MS
    }
    const count = this.#callCounts.get(organizationId) ?? 0
    if (count >= MAX_CHECKS_PER_MINUTE) {
      throw new GatewayError(
        'rate_limit_exceeded',
        'This organization has checked too many keys in the current minute; try again in a minute',
        {
          retryAfterSeconds: Math.ceil((this.#minuteEndsMs - nowMs) / 1000),
        },
      )
    }
    this.#callCounts.set(organizationId, count + 1)
  }

  /** @throws GatewayError `not_found` for an unknown provider, `invalid_request` for a model of another provider */
  prepare({ provider: slug, credential, model }: KeyToTry): TriedKey {
    const { catalog } = this.#deps
    const provider = catalog.provider(slug)
    if (provider === undefined) {
      throw new GatewayError('not_found', "provider: is not offered by this gateway's configuration")
    }
    if (model === undefined) {
      return {
        provider,
        credential,
        endpoint: cheapestEndpoint(catalog, provider, credential),
        isNamed: false,
      }
    }
    const endpoint = endpointsOf(catalog.model(model)?.endpoints ?? [], provider)[0]
    if (endpoint === undefined) throw refuseField('model', `has no endpoint at ${slug}`)
    return { provider, credential, endpoint, isNamed: true }
  }

  /**
   * Rejects only with the reason of the signal, or for a fault of the gateway: the provider's behaviour is a verdict.
   */
  async run(triedKey: TriedKey, signal: RequestSignal): Promise<KeyVerdict> {
    const deadline = new AbortController()
    const timer = this.#deps.clock.after(CHECK_TIMEOUT_MS, () =>
      deadline.abort(timeoutError(triedKey.provider)),
    )
    try {
      return await this.#decide(triedKey, AbortSignal.any([abortSignalOf(signal), deadline.signal]))
    } finally {
      timer.cancel()
    }
  }

  async #decide(triedKey: TriedKey, signal: AbortSignal): Promise<KeyVerdict> {
    const listResult = triedKey.isNamed ? null : await this.#list(triedKey, signal)
    if (listResult !== null && (listResult.isFinal || triedKey.endpoint === null)) return listResult.verdict
    if (triedKey.endpoint === null)
      return { probe: null, model: null, error: nothingToCallError(triedKey.provider) }
    return await this.#ask(triedKey, triedKey.endpoint, signal)
  }

  /** Null if the provider has no list with which this key could be tested. */
  async #list(triedKey: TriedKey, signal: AbortSignal) {
    const { provider, credential } = triedKey
    if (!hasList(provider)) return null
    const verdict = (error: GatewayError | null): KeyVerdict => ({ probe: 'models', model: null, error })
    try {
      const endpoint = { provider, format: provider.format, modelId: '' } as Endpoint
      const key = await within(
        signal,
        credential === null
          ? this.#deps.providerKeys.sharedKey(endpoint)
          : this.#deps.providerKeys.ownKey(credential, endpoint),
      )
      if (key?.sign !== undefined || key?.callUrl !== undefined) return null
      const headers = { ...keyHeaders(triedKey, key), ...key?.headers }
      const reply = await this.#get(triedKey, key, headers, signal)
      if (reply.status !== 200) {
        const error = upstreamFailure({
          format: failuresOf(provider.format),
          status: reply.status,
          headers: reply.headers,
          body: reply.text,
          secrets: key?.secrets ?? (provider.apiKey === null ? [] : [provider.apiKey]),
          providerName: provider.name,
          keyOwner: keyOwner(triedKey),
          clock: this.#deps.clock,
        })
        return { verdict: verdict(error), isFinal: !UNDECIDED_STATUSES.has(reply.status) }
      }
      if (readList(reply.text) === null) return { verdict: verdict(noListError(provider)), isFinal: false }
      if (provider.auth === 'none' || !(await this.#isOpen(triedKey, key, signal)))
        return { verdict: verdict(null), isFinal: true }
      return { verdict: verdict(publicListError(provider)), isFinal: false }
    } catch (thrown) {
      return { verdict: verdict(failureFrom(thrown, signal)), isFinal: true }
    }
  }

  /** True if the list is public, so that it proves nothing about a key. */
  async #isOpen(triedKey: TriedKey, key: OutgoingKey | null, signal: AbortSignal): Promise<boolean> {
    try {
      const { status, text } = await this.#get(triedKey, key, {}, signal)
      return status === 200 && readList(text) !== null
    } catch {
      signal.throwIfAborted()
      return false
    }
  }

  #get(
    { provider, credential }: TriedKey,
    key: OutgoingKey | null,
    authorization: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<WholeReply> {
    const { largestPage = '', headers = {} } = API_OF_FORMAT[provider.format].list ?? {}
    const query = largestPage === '' ? '' : `?${largestPage}`
    const request = {
      method: 'GET' as const,
      url: new URL(`${key?.baseUrl ?? provider.baseUrl}/models${query}`),
      headers: { accept: 'application/json', ...headers, ...provider.headers, ...authorization },
      body: '',
      headersTimeoutMs: CHECK_TIMEOUT_MS,
      idleTimeoutMs: CHECK_TIMEOUT_MS,
      isolation: credential?.id,
      egress: provider.egress,
    }
    return wholeReply(this.#deps.client, request, { maxBytes: LIST_MAX_BYTES, signal })
  }

  async #ask({ credential }: TriedKey, endpoint: Endpoint, signal: AbortSignal): Promise<KeyVerdict> {
    const { client, providerKeys, requests, clock, log } = this.#deps
    const verdict = (error: GatewayError | null): KeyVerdict => ({
      probe: isEmbeddingsFormat(endpoint.format) ? 'embedding' : 'completion',
      model: endpoint.modelId,
      error,
    })
    const attempt = openRecord({ endpoint, credential })
    try {
      attempt.providerKey = await within(
        signal,
        credential === null ? providerKeys.sharedKey(endpoint) : providerKeys.ownKey(credential, endpoint),
      )
      const calledEndpoint = deployedEndpoint(attempt)
      const request = await within(signal, requests.address(attempt, smallestRequest(calledEndpoint), 0))
      const reply = await wholeReply(client, request, { maxBytes: REPLY_MAX_BYTES, signal })
      if (reply.status < 200 || reply.status > 299) {
        const format = failuresOf(endpoint.format)
        return verdict(refusalIn(reply.text, reply, { format, clock }, attempt))
      }
      try {
        readSmallestReply(reply.text, calledEndpoint)
        return verdict(null)
      } catch (thrown) {
        return verdict(failureOf(thrown, attempt, log, reply))
      }
    } catch (thrown) {
      return verdict(failureFrom(thrown, signal))
    }
  }
}

function failuresOf(format: AnyFormatName): Pick<Format, 'failure'> {
  return isEmbeddingsFormat(format) ? EMBEDDINGS_FORMATS[format] : FORMATS[format]
}

function keyHeaders({ provider, credential }: TriedKey, key: OutgoingKey | null): Record<string, string> {
  const usualScheme =
    credential === null ? provider.auth : ownKeyScheme({ provider, format: provider.format } as Endpoint)
  return authHeaders(key?.scheme ?? usualScheme, key === null ? provider.apiKey : key.text)
}

/** @throws the reason of a caller who left, or a fault of the gateway */
function failureFrom(thrown: unknown, signal: AbortSignal): GatewayError {
  const cause: unknown = signal.aborted ? signal.reason : thrown
  const error = toGatewayError(cause)
  if (GATEWAY_FAILURES.has(error.code)) throw cause
  return error
}

const GATEWAY_FAILURES: ReadonlySet<string> = new Set(['client_closed', 'deadline_exceeded', 'internal'])

/** Runs work that does not end with the signal by itself: signing, and exchanging a key for a token. */
async function within<T>(signal: AbortSignal, work: T | Promise<T>): Promise<T> {
  signal.throwIfAborted()
  let leave: () => void = () => undefined
  const clientLeft = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason as Error)
    signal.addEventListener('abort', leave, { once: true })
  })
  try {
    return await Promise.race([work, clientLeft])
  } finally {
    signal.removeEventListener('abort', leave)
  }
}

function timeoutError({ name }: Provider): GatewayError {
  return new GatewayError('upstream_timeout', `${name} did not answer within ${CHECK_TIMEOUT_MS / 1000} s`, {
    metadata: { reason: 'timeout' },
  })
}

function noListError({ name }: Provider): GatewayError {
  return new GatewayError('provider_unavailable', `${name} answered, but not with a list of models`, {
    metadata: { reason: 'other_answer' },
  })
}

function publicListError({ name }: Provider): GatewayError {
  return new GatewayError(
    'provider_unavailable',
    `${name} shows its list of models without a key, so the list does not prove that the key works, and the catalogue has no model of this provider to call`,
    { metadata: { reason: 'nothing_to_ask' } },
  )
}

function nothingToCallError({ name }: Provider): GatewayError {
  return new GatewayError(
    'provider_unavailable',
    `${name} has no list of models that tests this key, and the catalogue has no model of this provider that could be called with this key`,
    { metadata: { reason: 'nothing_to_ask' } },
  )
}
