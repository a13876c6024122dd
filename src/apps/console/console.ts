/**
 * The console: one page on the admin port for operators. The page itself is public. Each request for data carries a
 * management key, or the cookie of a session with one, and gets only what that key's organization may see. Public entry
 * point of this module. Main thread; client requests never pass through it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { PAGE_DATA_HEADERS } from '../../api/page-headers.ts'
import type { Timer } from '../../base/clock.ts'
import { GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import { requireRole, roleOf } from '../../callers/key-roles.ts'
import { ApiKeys, secretHash } from '../../callers/keys.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { Invalidation, InvalidationBus } from '../../storage/invalidation/bus.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import { Feed } from './feed.ts'
import type { PublicPort } from './forward.ts'
import { ManagementCalls } from './management.ts'
import { PageFiles } from './page-files.ts'
import type { SignInPages, SignInSettings } from './sign-in/sign-in.ts'
import { Trials } from './trial.ts'
import type { View } from './view.ts'
import type { ViewDeps } from './views.ts'

interface ConsoleDeps extends ViewDeps, PublicPort {
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly changes: InvalidationBus
  /** Null: only management keys. */
  readonly signIn: SignInSettings | null
  /** False until the store was ready once: before that a configured key may be missing. */
  readonly isReady: () => boolean
  /** Called when the first viewer or summary needs records and finished requests, and when none does any more. */
  readonly onWatched: (isWatched: boolean) => void
}

/** Path of the page; all paths of the console are below it. */
export const CONSOLE_PATH = '/console'
const CALLBACK_PATH = `${CONSOLE_PATH}/callback`
const ASSETS_PATH = `${CONSOLE_PATH}/assets/`
const DATA_PATH = `${CONSOLE_PATH}/data/`
/** Operations of the public API, below DATA. */
const API_PREFIX = 'api/'

/** Limit of viewers, because each uses a connection of the admin port, which scrapers and probes need too. */
const VIEWERS_MAX = 16
/** Shorter than the timeouts of proxies; also how long an expired key may keep watching. */
const HEARTBEAT_MS = 15_000
/** A viewer that reads nothing is disconnected at this buffer size. */
const MAX_BUFFERED_BYTES = 4 << 20

interface OpenViewer {
  readonly keyHash: string
  /** Hash of the secret that the viewer sent. */
  readonly secretHash: string
  readonly response: ServerResponse
}

export class Console {
  readonly #deps: ConsoleDeps
  readonly #keys: ApiKeys
  readonly #feed: Feed
  readonly #files = new PageFiles()
  /** Null: not requested yet, and the code is not loaded. */
  #views: Promise<ReadonlyMap<string, View>> | null = null
  readonly #trials: Trials
  readonly #management: ManagementCalls
  /** Null: nobody has signed in yet and the code is not loaded, or sign-in is disabled. */
  #signIn: Promise<SignInPages> | null = null
  readonly #viewers = new Set<OpenViewer>()
  #heartbeat: Timer | null = null

  constructor(deps: ConsoleDeps) {
    const { store, clock, log, onWatched } = deps
    this.#deps = deps
    this.#keys = new ApiKeys({ store, clock, log })
    this.#feed = new Feed({ store, clock, onWatched })
    this.#trials = new Trials(clock, deps)
    this.#management = new ManagementCalls(clock, deps)
  }

  /** False while nobody watches or has just requested a summary: records and finished requests are not needed then. */
  get isWatched(): boolean {
    return this.#feed.isWatched
  }

  /** Receives usage records that are in the store. */
  record(records: readonly UsageRecord[]): void {
    this.#feed.record(records)
  }

  /** Receives finished requests, as reported by their threads. */
  ended(requests: readonly EndedRequest[]): void {
    this.#feed.ended(requests)
  }

  /** Receives invalidations from all instances: viewers with an invalid key are disconnected. */
  changed(change: Invalidation): void {
    if (change.kind === 'all') this.#keys.invalidateAll()
    else if (change.kind === 'key') this.#keys.invalidate(change.hash)
    else return
    for (const viewer of this.#viewers) {
      if (change.kind === 'all' || change.hash === viewer.keyHash) void this.#check(viewer)
    }
  }

  /** Answers a request at or below `/console`. Never throws. */
  async handle(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    // A client that has left gets no answer.
    response.on('error', () => undefined)
    try {
      const pages = path === CALLBACK_PATH ? await this.#signInPages() : null
      if (pages !== null) {
        requireMethod(request, 'GET')
        await pages.callback(request, response)
      } else if (path.startsWith(DATA_PATH)) await this.#data(request, response, path.slice(DATA_PATH.length))
      else if (!(await this.#page(request, response, path))) throw new GatewayError('not_found', 'Not found')
    } catch (thrown) {
      const error = toGatewayError(thrown)
      if (error.code === 'internal') this.#deps.log.fault('console', 'console request failed', thrown)
      refuse(response, error)
    }
  }

  close(): void {
    this.#heartbeat?.cancel()
    this.#feed.close()
    for (const { response } of this.#viewers) if (!response.writableEnded) response.end()
  }

  async #page(request: IncomingMessage, response: ServerResponse, path: string): Promise<boolean> {
    requireMethod(request, 'GET', 'HEAD')
    if (path === CONSOLE_PATH || path === `${CONSOLE_PATH}/`)
      return await this.#files.send('index.html', request, response)
    return (
      path.startsWith(ASSETS_PATH) &&
      (await this.#files.send(path.slice(ASSETS_PATH.length), request, response))
    )
  }

  async #data(request: IncomingMessage, response: ServerResponse, name: string): Promise<void> {
    refuseOtherSites(request, this.#deps.signIn?.origin)
    if (name === 'sign-in' || name === 'sign-out') return await this.#sign(name, request, response)
    const authorization =
      request.headers.authorization ?? (await this.#signInPages())?.authorizationOf(request)
    if (name === 'session') return await this.#sendSession(authorization, request, response)
    const key = await this.#authenticate(authorization)
    if (name === 'try') {
      requireMethod(request, 'POST')
      requireRole(key, 'operator', 'The playground')
      return await this.#trials.run(request, response)
    }
    if (name.startsWith(API_PREFIX))
      return await this.#management.run(request, response, name.slice(API_PREFIX.length), authorization)
    requireMethod(request, 'GET')
    if (name === 'live') return await this.#watch(key, authorization, response)
    this.#views ??= import('./views.ts').then(({ createViews }) => createViews(this.#deps, this.#feed))
    const view = (await this.#views).get(name)
    if (view === undefined) throw new GatewayError('not_found', 'Not found')
    const [, query = ''] = (request.url ?? '').split('?', 2)
    const document = await view(key, new URLSearchParams(query))
    response.writeHead(200, PAGE_DATA_HEADERS).end(JSON.stringify(document))
  }

  async #sign(
    name: 'sign-in' | 'sign-out',
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const pages = await this.#signInPages()
    if (pages === null) throw new GatewayError('not_found', 'Not found')
    this.#requireReady()
    if (name === 'sign-in') await pages.begin(request, response)
    else await pages.signOut(request, response)
  }

  async #signInPages(): Promise<SignInPages | null> {
    const { signIn } = this.#deps
    if (signIn === null) return null
    this.#signIn ??= import('./sign-in/sign-in.ts').then(
      module => new module.SignInPages(signIn, this.#deps, CALLBACK_PATH),
    )
    return await this.#signIn
  }

  /** Public: shows if sign-in is available, and who is signed in. */
  async #sendSession(
    authorization: string | undefined,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    requireMethod(request, 'GET')
    const key = authorization === undefined ? null : await this.#authenticate(authorization).catch(() => null)
    const document = {
      sign_in: this.#deps.signIn !== null,
      signed_in: key === null ? null : { name: key.name, role: roleOf(key), expires_at: key.expiresAt },
    }
    response.writeHead(200, PAGE_DATA_HEADERS).end(JSON.stringify(document))
  }

  /** @throws GatewayError unless the request has a valid management key */
  async #authenticate(authorization: string | undefined): Promise<KeyRecord> {
    this.#requireReady()
    const key = await this.#keys.authenticate(authorization)
    if (key.kind !== 'management') {
      throw new GatewayError(
        'permission_denied',
        'A management key is required: an API key does not work here',
      )
    }
    return key
  }

  #requireReady(): void {
    if (!this.#deps.isReady()) throw new GatewayError('service_unavailable', 'The database is not ready yet')
  }

  async #watch(key: KeyRecord, authorization: string | undefined, response: ServerResponse): Promise<void> {
    if (this.#viewers.size >= VIEWERS_MAX) {
      throw new GatewayError('rate_limit_exceeded', `At most ${VIEWERS_MAX} consoles can be open at once`)
    }
    const viewer = { keyHash: key.hash, secretHash: secretHash(authorization), response }
    this.#viewers.add(viewer)
    const closed = new Promise<void>(resolve => {
      response.on('close', () => {
        this.#viewers.delete(viewer)
        resolve()
      })
    })
    let stopWatching: () => void
    try {
      stopWatching = await this.#feed.watch(key.organizationId, {
        send(event, data) {
          if (response.writableEnded || response.destroyed) return
          if (!response.headersSent) response.writeHead(200, STREAM_HEADERS)
          response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
          if (response.writableLength > MAX_BUFFERED_BYTES) response.destroy()
        },
      })
    } catch (error) {
      this.#viewers.delete(viewer)
      throw error
    }
    this.#scheduleHeartbeat()
    await closed
    stopWatching()
  }

  #scheduleHeartbeat(): void {
    this.#heartbeat ??= this.#deps.clock.after(HEARTBEAT_MS, () => {
      this.#heartbeat = null
      for (const viewer of this.#viewers) {
        if (!viewer.response.writableEnded) viewer.response.write(': still here\n\n')
        void this.#check(viewer)
      }
      if (this.#viewers.size > 0) this.#scheduleHeartbeat()
    })
  }

  /** Disconnects a viewer whose key or secret is no longer valid. */
  async #check({ secretHash, response }: OpenViewer): Promise<void> {
    try {
      await this.#keys.bySecret(secretHash)
    } catch (thrown) {
      // While the database is unavailable the key cannot be checked. What is shown is already known.
      if (toGatewayError(thrown).code !== 'authentication' || response.writableEnded) return
      response.end('event: refused\ndata: {}\n\n')
    }
  }
}

const STREAM_HEADERS = { ...PAGE_DATA_HEADERS, 'content-type': 'text/event-stream' } as const

/**
 * The page sends its key with each request, or a header of its own, which other sites cannot send; their requests are
 * refused here. @param pageOrigin the address of the page, in case a proxy changes the Host header
 */
function refuseOtherSites({ headers }: IncomingMessage, pageOrigin: string | undefined): void {
  const { origin, host } = headers
  const site = headers['sec-fetch-site']
  const allowedOrigins = [undefined, `http://${host}`, `https://${host}`, pageOrigin]
  const isOther = !allowedOrigins.includes(origin)
  if (isOther || (site !== undefined && site !== 'same-origin' && site !== 'none')) {
    throw new GatewayError('permission_denied', 'Requests from other sites are refused')
  }
}

function requireMethod({ method = '' }: IncomingMessage, ...allowed: readonly string[]): void {
  if (!allowed.includes(method)) throw new GatewayError('method_not_allowed', 'Method not allowed')
}

function refuse(response: ServerResponse, { status, message, retryAfterSeconds }: GatewayError): void {
  if (response.headersSent) return void response.destroy()
  response
    .writeHead(status, {
      ...PAGE_DATA_HEADERS,
      // After a body that was not read completely, the connection cannot be reused.
      connection: 'close',
      ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
    })
    .end(JSON.stringify({ error: { code: status, message } }))
}
