/**
 * Access tokens for Google service accounts. A signed assertion is exchanged for a token, which is cached until shortly
 * before it expires. Concurrent requests share one exchange. A token that expires soon is renewed in the background
 * while it is still in use. Hot path: a cached token is returned synchronously. Serve and batch threads.
 *
 * The address of the exchange is in the provider's row. An address in the key is ignored.
 */
import { createHash, createPrivateKey } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Clock } from '../../base/clock.ts'
import { GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Egress } from '../../protocol/provider.ts'
import type { Transport } from './transport.ts'
import { wholeReply } from './whole-reply.ts'

/** The required part of a service account's key file. */
export interface ServiceAccount {
  readonly clientEmail: string
  /** PEM of an RSA key. */
  readonly privateKey: string
  readonly privateKeyId: string | null
}

/** The address that exchanges assertions. */
interface TokenEndpoint {
  readonly tokenUrl: string
  readonly egress?: Egress | undefined
}

interface GoogleTokensOptions {
  readonly client: Transport
  readonly clock: Clock
  /** Maximum number of tokens that are kept. Default 1,000. */
  readonly maxEntries?: number
}

/** The scope that requests to models need. */
const TOKEN_SCOPE = 'https://www.googleapis.com/auth/cloud-platform'
const ASSERTION_SECONDS = 3600
/** A token is renewed in the background from this long before its expiry. */
const RENEW_BEFORE_MS = 5 * 60_000
/** A token this close to its expiry is not used, because it could expire on its way. */
const EXPIRY_MARGIN_MS = 30_000
/** After a failure the exchange is not tried again for this long. */
const RETRY_PAUSE_MS = 10_000
/** Google answers within a few hundred milliseconds. */
const EXCHANGE_TIMEOUT_MS = 10_000
const REPLY_MAX_BYTES = 64 * 1024
/** A token that can be sent in a header. */
const TOKEN_TEXT = /^[\x21-\x7e]{1,8192}$/

interface Entry {
  /** Null after a failure. */
  readonly token: string | null
  readonly error: GatewayError | null
  /** Monotonic. From this time on, the token is renewed. */
  readonly renewAtMs: number
  /** Monotonic. From this time on, the entry is not used. */
  readonly endsAtMs: number
}

/** The tokens of one thread. */
export class GoogleTokens {
  readonly #options: GoogleTokensOptions
  readonly #entries: LRUCache<string, Entry>
  readonly #exchanges = new Map<string, Promise<string>>()
  /** Cached, so that each private key is hashed only once. */
  readonly #names = new WeakMap<ServiceAccount, string>()
  readonly #closing = new AbortController()

  constructor(options: GoogleTokensOptions) {
    this.#options = options
    this.#entries = new LRUCache({ max: options.maxEntries ?? 1_000 })
  }

  /**
   * The token of an account; a promise only if no cached one can be used.
   * @throws (or rejects with) GatewayError `provider_unavailable` or `upstream_timeout`, without any part of the key
   */
  token(account: ServiceAccount, endpoint: TokenEndpoint): string | Promise<string> {
    const name = this.#nameOf(account, endpoint)
    const entry = this.#entries.get(name)
    const nowMs = this.#options.clock.monotonicMs()
    if (entry !== undefined && nowMs < entry.endsAtMs) {
      if (entry.token === null) throw entry.error ?? exchangeFailed()
      // A failure is not lost: it is reported once the old token has expired.
      if (nowMs >= entry.renewAtMs) void this.#exchange(name, account, endpoint, entry).catch(() => undefined)
      return entry.token
    }
    return this.#exchange(name, account, endpoint, null)
  }

  /** Drops everything. Called before the thread ends. */
  close(): void {
    this.#closing.abort(new Error('the thread ends'))
    this.#entries.clear()
  }

  /**
   * The cache key. It includes the hash of the private key, so that a caller without the key cannot get the account's
   * token.
   */
  #nameOf(account: ServiceAccount, { tokenUrl }: TokenEndpoint): string {
    let name = this.#names.get(account)
    if (name === undefined) {
      name = createHash('sha256').update(`${account.clientEmail}\n${account.privateKey}`).digest('base64')
      this.#names.set(account, name)
    }
    return `${name} ${tokenUrl}`
  }

  /** Joins the running exchange, or starts one. `currentEntry`: the entry that stays in use if it fails. */
  #exchange(
    name: string,
    account: ServiceAccount,
    endpoint: TokenEndpoint,
    currentEntry: Entry | null,
  ): Promise<string> {
    const runningExchange = this.#exchanges.get(name)
    if (runningExchange !== undefined) return runningExchange
    const exchange = this.#requestToken(account, endpoint)
      .then(
        ({ token, lifeMs }) => {
          const nowMs = this.#options.clock.monotonicMs()
          this.#entries.set(name, {
            token,
            error: null,
            renewAtMs: nowMs + Math.max(lifeMs / 2, lifeMs - RENEW_BEFORE_MS),
            endsAtMs: nowMs + Math.max(lifeMs / 2, lifeMs - EXPIRY_MARGIN_MS),
          })
          return token
        },
        (thrown: unknown) => {
          const error = toGatewayError(thrown)
          const pausedUntilMs = this.#options.clock.monotonicMs() + RETRY_PAUSE_MS
          this.#entries.set(
            name,
            currentEntry === null
              ? { token: null, error, renewAtMs: pausedUntilMs, endsAtMs: pausedUntilMs }
              : { ...currentEntry, renewAtMs: pausedUntilMs },
          )
          throw error
        },
      )
      .finally(() => this.#exchanges.delete(name))
    this.#exchanges.set(name, exchange)
    return exchange
  }

  async #requestToken(
    account: ServiceAccount,
    { tokenUrl, egress }: TokenEndpoint,
  ): Promise<{ token: string; lifeMs: number }> {
    const { client } = this.#options
    const assertion = await this.#assertion(account, tokenUrl)
    const form = new URLSearchParams({ grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer', assertion })
    const { status, text } = await wholeReply(
      client,
      {
        url: new URL(tokenUrl),
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: form.toString(),
        headersTimeoutMs: EXCHANGE_TIMEOUT_MS,
        idleTimeoutMs: EXCHANGE_TIMEOUT_MS,
        egress,
      },
      { maxBytes: REPLY_MAX_BYTES, signal: this.#closing.signal },
    )
    // The error contains no text of the reply, because the reply may repeat the assertion.
    if (status < 200 || status > 299) throw exchangeFailed(status)
    return readToken(text)
  }

  async #assertion(account: ServiceAccount, tokenUrl: string): Promise<string> {
    const { SignJWT } = await import('jose')
    const { clientEmail, privateKey, privateKeyId } = account
    const seconds = Math.floor(this.#options.clock.nowMs() / 1000)
    return new SignJWT({ scope: TOKEN_SCOPE })
      .setProtectedHeader({
        alg: 'RS256',
        typ: 'JWT',
        ...(privateKeyId === null ? {} : { kid: privateKeyId }),
      })
      .setIssuer(clientEmail)
      .setAudience(tokenUrl)
      .setIssuedAt(seconds)
      .setExpirationTime(seconds + ASSERTION_SECONDS)
      .sign(createPrivateKey(privateKey))
  }
}

function readToken(text: string): { token: string; lifeMs: number } {
  let reply: unknown
  try {
    reply = JSON.parse(text)
  } catch {
    throw exchangeFailed()
  }
  const { access_token: token, expires_in: seconds } = (reply ?? {}) as Readonly<Record<string, unknown>>
  if (typeof token !== 'string' || !TOKEN_TEXT.test(token)) throw exchangeFailed()
  const lifeSeconds = typeof seconds === 'number' && seconds > 0 && seconds <= 86_400 ? seconds : 600
  return { token, lifeMs: lifeSeconds * 1000 }
}

function exchangeFailed(status?: number): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider returned no token for the service account', {
    ...(status === undefined ? undefined : { metadata: { provider_status: status } }),
  })
}
