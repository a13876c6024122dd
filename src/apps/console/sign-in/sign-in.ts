/**
 * Sign-in to the console with OpenID Connect: authorization code with PKCE, started by a request of the page and
 * completed by the same browser. Manages the cookies, and shows errors to the user. Main thread.
 */
import { randomBytes } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { PAGE_DATA_HEADERS, PLAIN_PAGE_HEADERS } from '../../../api/page-headers.ts'
import type { Clock } from '../../../base/clock.ts'
import { GatewayError, toGatewayError } from '../../../base/errors.ts'
import type { Log } from '../../../base/log/log.ts'
import { hashKey } from '../../../callers/api-key.ts'
import type { InvalidationBus } from '../../../storage/invalidation/bus.ts'
import type { Store } from '../../../storage/store.ts'
import { isAway } from '../../../storage/store-error.ts'
import { OidcClient, type OidcSettings, SignInError, type SignInTerms } from './oidc-client.ts'
import { ConsoleSessions } from './sessions.ts'

/** Settings of the sign-in; it needs both. */
export interface SignInSettings {
  /** The origin of `console.publicUrl`. */
  readonly origin: string
  readonly oidc: OidcSettings
}

interface SignInDeps {
  readonly store: Pick<Store, 'keys' | 'audited'>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly changes: InvalidationBus
}

interface PendingSignIn extends SignInTerms {
  /** Hash of the cookie that the browser got. */
  readonly cookieHash: string
  readonly endsAtMs: number
}

/** Enough time for a password and a second factor. */
const PENDING_LIFETIME_MS = 600_000
/** At the limit the oldest sign-in is dropped, so nobody can block others for long. */
const MAX_PENDING = 128
/** Limit of concurrent starts, because each requests the provider's metadata. */
const MAX_CONCURRENT_STARTS = 8
/** Only scripts of this page can send it: other sites would need a permission that is never granted. */
const PAGE_HEADER = 'x-sluice-console'
const SESSION_NAME = 'sluice-session'

export class SignInPages {
  readonly #deps: SignInDeps
  readonly #origin: string
  readonly #isSecure: boolean
  readonly #client: OidcClient
  readonly #sessions: ConsoleSessions
  /** Keyed by state, oldest first. */
  readonly #pending = new Map<string, PendingSignIn>()
  #concurrentStarts = 0

  constructor({ origin, oidc }: SignInSettings, deps: SignInDeps, callbackPath: string) {
    this.#deps = deps
    this.#origin = origin
    this.#isSecure = origin.startsWith('https:')
    this.#client = new OidcClient(oidc, origin + callbackPath)
    this.#sessions = new ConsoleSessions(deps)
  }

  /** `Bearer …` of the request's session; undefined: it has none. */
  authorizationOf(request: IncomingMessage): string | undefined {
    const secret = this.#sessionCookie(request)
    if (secret === null) return undefined
    return this.#sessions.authorizationOf(secret) ?? undefined
  }

  /** Answers with the provider's address. @throws GatewayError */
  async begin(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#requirePage(request)
    if (this.#concurrentStarts >= MAX_CONCURRENT_STARTS)
      throw new GatewayError('rate_limit_exceeded', 'Too many people are signing in at once; try again')
    this.#concurrentStarts++
    try {
      const { url, terms } = await this.#client.begin()
      const secret = randomBytes(32).toString('base64url')
      const nowMs = this.#deps.clock.nowMs()
      const [oldest] = this.#pending.keys()
      if (oldest !== undefined && this.#pending.size >= MAX_PENDING) this.#pending.delete(oldest)
      this.#pending.set(terms.state, {
        ...terms,
        cookieHash: hashKey(secret),
        endsAtMs: nowMs + PENDING_LIFETIME_MS,
      })
      // A cookie for each tab. The browser returns from another site, so the cookie must be lax.
      const cookie = this.#cookie(
        pendingName(terms.state),
        secret,
        `SameSite=Lax; Max-Age=${PENDING_LIFETIME_MS / 1000}`,
      )
      sendJson(response, { url: url.href }, cookie)
    } catch (error) {
      if (!(error instanceof SignInError)) throw error
      this.#deps.log.notice('console', 'cannot start a sign-in', { why: error.why })
      throw new GatewayError(
        error.status === 503 ? 'service_unavailable' : 'provider_unavailable',
        error.message,
      )
    } finally {
      this.#concurrentStarts--
    }
  }

  /**
   * Answers the browser that comes back from the provider: leads it to the console, or shows a page with the error.
   * Never throws.
   */
  async callback(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { log } = this.#deps
    const [, query = ''] = (request.url ?? '').split('?', 2)
    const state = new URLSearchParams(query).get('state') ?? ''
    const cookies = [this.#cookie(pendingName(state), '', 'SameSite=Lax; Max-Age=0')]
    try {
      const pendingSignIn = this.#claim(request, state)
      const identity = await this.#client.finish(pendingSignIn, `?${query}`)
      const { issuer, subject, role } = identity
      const secret = await this.#sessions.open(identity, addressOf(request))
      cookies.push(this.#cookie(SESSION_NAME, secret, 'SameSite=Strict'))
      log.notice('console', 'signed in', { issuer, subject, role })
      response.writeHead(303, { ...PLAIN_PAGE_HEADERS, 'set-cookie': cookies, location: '/console' }).end()
    } catch (thrown) {
      const refusal = refusalOf(thrown)
      log.notice('console', 'sign-in refused', { why: refusal.why })
      if (refusal.status === 500) log.fault('console', 'sign-in failed', thrown)
      response
        .writeHead(refusal.status, { ...PLAIN_PAGE_HEADERS, 'set-cookie': cookies })
        .end(refusalPage(refusal.message))
    }
  }

  /** Ends the session of the page. @throws GatewayError like `#requirePage`, and if its key could not be removed */
  async signOut(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#requirePage(request)
    const secret = this.#sessionCookie(request)
    if (secret !== null) await this.#sessions.end(secret, addressOf(request))
    sendJson(response, {}, this.#cookie(SESSION_NAME, '', 'SameSite=Strict; Max-Age=0'))
  }

  /** The sign-in that this browser started; works only once. @throws SignInError */
  #claim(request: IncomingMessage, state: string): PendingSignIn {
    const pendingSignIn = this.#pending.get(state)
    const secret = cookieOf(request, this.#name(pendingName(state)))
    if (pendingSignIn === undefined || secret === null || hashKey(secret) !== pendingSignIn.cookieHash) {
      throw new SignInError(
        400,
        'state',
        'This sign-in was not started in this browser, has already been used, or took too long. Sign in again.',
      )
    }
    this.#pending.delete(state)
    if (pendingSignIn.endsAtMs > this.#deps.clock.nowMs()) return pendingSignIn
    throw new SignInError(400, 'late', 'This sign-in took too long. Sign in again.')
  }

  /** @throws GatewayError for a request that is no POST, has no script of this page behind it, or has another origin */
  #requirePage({ method, headers }: IncomingMessage): void {
    if (method !== 'POST') throw new GatewayError('method_not_allowed', 'Method not allowed')
    if (headers.origin === this.#origin && headers[PAGE_HEADER] !== undefined) return
    throw new GatewayError(
      'permission_denied',
      `Sign in at ${this.#origin}/console: that is the address that the provider knows`,
    )
  }

  #sessionCookie(request: IncomingMessage): string | null {
    const { origin } = request.headers
    if (request.headers[PAGE_HEADER] === undefined || (origin !== undefined && origin !== this.#origin))
      return null
    return cookieOf(request, this.#name(SESSION_NAME))
  }

  /** With this prefix no other host of the domain, and nothing without TLS, can set the cookie. */
  #name(name: string): string {
    return this.#isSecure ? `__Host-${name}` : name
  }

  #cookie(name: string, value: string, attributes: string): string {
    const scope = this.#isSecure ? 'Path=/; Secure' : 'Path=/console'
    return `${this.#name(name)}=${value}; ${scope}; HttpOnly; ${attributes}`
  }
}

/** The state comes from the browser, and may be anything. */
function pendingName(state: string): string {
  return `sluice-sign-in-${hashKey(state).slice(0, 16)}`
}

/** Null if there is none, or several: then one of them was set by someone else. */
function cookieOf({ headers: { cookie = '' } }: IncomingMessage, name: string): string | null {
  const values = cookie.split(/; */).filter(pair => pair.startsWith(`${name}=`))
  const [value] = values
  return value === undefined || values.length > 1 ? null : value.slice(name.length + 1)
}

function addressOf({ socket }: IncomingMessage): string {
  return socket.remoteAddress ?? ''
}

function refusalOf(thrown: unknown): SignInError {
  if (thrown instanceof SignInError) return thrown
  if (isAway(thrown))
    return new SignInError(503, 'database', "The gateway's database does not answer. Sign in again later.")
  const { status, code, message } = toGatewayError(thrown)
  return new SignInError(status, code, message)
}

function sendJson(response: ServerResponse, document: object, cookie: string): void {
  response.writeHead(200, { ...PAGE_DATA_HEADERS, 'set-cookie': cookie }).end(JSON.stringify(document))
}

function refusalPage(message: string): string {
  const text = message.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: sign-in</title>
</head>
<body>
<main>
<h1>You are not signed in</h1>
<p>${text}</p>
<p><a href="/console">Back to the console</a></p>
</main>
</body>
</html>
`
}
