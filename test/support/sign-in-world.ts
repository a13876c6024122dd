/** A console with sign-in between a gateway and an OpenID provider: real sockets, and one clock for both. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { Console } from '../../src/apps/console/console.ts'
import { createLog } from '../../src/base/log/log.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import { startAdmin } from '../../src/process/threads/admin.ts'
import { configuredParts } from '../../src/process/wiring/catalog.ts'
import type { KeyRecord, KeyRole } from '../../src/protocol/management/keys.ts'
import { catalogOf } from '../../src/providers/catalog.ts'
import type { Invalidation } from '../../src/storage/invalidation/bus.ts'
import { openStore } from '../../src/storage/open.ts'
import type { Store } from '../../src/storage/store.ts'
import { startConsoleWorld } from './console-world.ts'
import { freePort } from './free-port.ts'
import { startGateway, type TestGateway } from './gateway.ts'
import { CLIENT_ID, CLIENT_SECRET, OidcProvider } from './oidc-provider.ts'
import { tempFolder } from './temp-folder.ts'
import { TestClock } from './test-clock.ts'

export interface SignInWorld {
  readonly provider: OidcProvider
  /** Settings of the sign-in; later ones see what a test changes. */
  readonly oidc: { issuer: string; roleClaim: string; roles: Readonly<Record<string, KeyRole>> }
  readonly gateway: TestGateway
  readonly store: Store
  readonly clock: TestClock
  /** The admin port. */
  readonly url: string
  /** Its address for browsers. */
  readonly origin: string
  /** Lines of the console's log. */
  readonly lines: readonly Record<string, unknown>[]
  /** All keys but the two of the gateway. */
  sessionKeys(): Promise<readonly KeyRecord[]>
  browser(): TestBrowser
  /** As the supervisor announces a change. */
  announce(change: Invalidation): void
}

interface SignInWorldOptions {
  /** Default: the admin port itself. */
  readonly origin?: string
  readonly clientSecret?: string
}

const ROLES = {
  'gateway-admins': 'admin',
  'gateway-operators': 'operator',
  'gateway-viewers': 'viewer',
} as const

/** A gateway as its own process with sign-in, behind a provider of another site than that of the console. */
export async function startSignInConsole(t: Test, claims: OidcProvider['claims'] = {}) {
  const provider = await OidcProvider.start(t)
  provider.issuer = provider.issuer.replace('127.0.0.1', 'localhost')
  provider.claims = claims
  const clientSecretFile = join(tempFolder(), 'client.secret')
  writeFileSync(clientSecretFile, CLIENT_SECRET, { mode: 0o600 })
  const port = await freePort()
  const origin = `http://127.0.0.1:${port}`
  const oidc = { issuer: provider.issuer, clientId: CLIENT_ID, clientSecretFile, roles: ROLES }
  const world = await startConsoleWorld(
    t,
    { console: { publicUrl: origin, oidc } },
    { GATEWAY_ADMIN_PORT: String(port) },
  )
  return { provider, origin, world }
}

export async function startSignInWorld(t: Test, options: SignInWorldOptions = {}): Promise<SignInWorld> {
  // Tokens carry the time of the system, which the library compares with the same.
  const clock = new TestClock(Date.now())
  const provider = await OidcProvider.start(t)
  const gateway = await startGateway({ clock })
  const store = await openStore(gateway.storageUrl)
  const secretFile = join(tempFolder(), 'client.secret')
  writeFileSync(secretFile, `${options.clientSecret ?? CLIENT_SECRET}\n`)
  const lines: Record<string, unknown>[] = []
  const catalog = catalogOf(
    configuredParts(loadConfig([], {}), {
      simUrl: 'http://127.0.0.1:1',
      knownModels: { imported: [], discovered: new Map() },
    }),
  )
  let page: Console | null = null
  const admin = await startAdmin(
    { host: '127.0.0.1', port: 0, hosts: [] },
    {
      metrics: async () => '',
      unreadyReason: () => null,
      console: { handle: async (...asked) => await page?.handle(...asked) },
    },
  )
  const origin = options.origin ?? admin.url
  const oidc = {
    issuer: provider.issuer,
    clientId: CLIENT_ID,
    clientSecretFile: secretFile,
    roleClaim: 'roles',
    roles: ROLES as Readonly<Record<string, KeyRole>>,
  }
  const announce = (change: Invalidation) => {
    page?.changed(change)
    gateway.serving.invalidate(change)
  }
  page = new Console({
    store,
    clock,
    log: createLog('trace', { write: line => void lines.push(JSON.parse(line) as Record<string, unknown>) }),
    byokFeePercent: 0,
    publicUrl: gateway.url.replace(/\/v1$/, ''),
    certificateFile: null,
    isReady: () => true,
    catalog: () => catalog,
    health: { condition: () => 'closed', ownConditions: () => () => ({}), figures: () => null },
    decisions: async () => [],
    process: async () => ({ version: '0', unreadyReason: null, degraded: [], openStreams: 0, inFlight: 0 }),
    onWatched: () => undefined,
    changes: { publish: announce },
    signIn: { origin, oidc },
  })
  t.teardown(async () => {
    page?.close()
    await admin.close()
    await gateway.close()
    await store.close()
  })
  return {
    provider,
    oidc,
    gateway,
    store,
    clock,
    url: admin.url,
    origin,
    lines,
    async sessionKeys() {
      return (await store.keys.list('org_default')).filter(({ identity }) => identity !== null)
    },
    announce,
    browser: () => new TestBrowser(admin.url, origin),
  }
}

export interface Reply {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly document: Record<string, unknown>
}

/** A browser as far as sign-ins need one: it keeps cookies, and sends what a script of the page sends. */
export class TestBrowser {
  readonly #url: string
  readonly #origin: string
  readonly cookies = new Map<string, string>()
  /** `Set-Cookie` as they came. */
  readonly set: string[] = []

  constructor(url: string, origin: string) {
    this.#url = url
    this.#origin = origin
  }

  /** Asks a path below /console/data as the page does. */
  async call(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Reply> {
    return await this.ask(`/console/data/${path}`, {
      method,
      headers: {
        'x-sluice-console': '1',
        ...(method === 'GET' ? {} : { origin: this.#origin }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  async ask(path: string, init: RequestInit = {}): Promise<Reply> {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const reply = await fetch(this.#url + path, {
      redirect: 'manual',
      ...init,
      headers: { ...(cookie === '' ? {} : { cookie }), ...init.headers },
    })
    for (const line of reply.headers.getSetCookie()) {
      this.set.push(line)
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      if (/; Max-Age=0/.test(line)) this.cookies.delete(name)
      else this.cookies.set(name, value)
    }
    const text = await reply.text()
    const isJson = reply.headers.get('content-type')?.startsWith('application/json') === true
    const document = isJson ? (JSON.parse(text) as Record<string, unknown>) : {}
    return { status: reply.status, headers: reply.headers, text, document }
  }

  /** Begins a sign-in and visits the provider: the address to which that sends the browser back. */
  async visitProvider(): Promise<URL> {
    const begun = await this.call('POST', 'sign-in')
    if (begun.status !== 200) throw new Error(`${begun.status} ${begun.text}`)
    const reply = await fetch(String(begun.document['url']), { redirect: 'manual' })
    return new URL(reply.headers.get('location') ?? '')
  }

  async comeBack({ pathname, search }: URL): Promise<Reply> {
    return await this.ask(pathname + search)
  }

  async signIn(): Promise<Reply> {
    return await this.comeBack(await this.visitProvider())
  }

  async session(): Promise<unknown> {
    return (await this.call('GET', 'session')).document['signed_in']
  }
}
