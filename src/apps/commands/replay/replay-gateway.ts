/**
 * The gateway of a configuration in this process, for a replay: one thread, a port on loopback, a database of its own in
 * a temporary folder. It has no guardrails and no keys but its own, so it changes no data of the operator.
 */
import { createSecretKey, randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../../base/clock.ts'
import { createLog } from '../../../base/log/log.ts'
import { createKey } from '../../../callers/api-key.ts'
import type { Config } from '../../../process/config/settings.ts'
import { type LedgerShipper, startShipper } from '../../../process/services/ledger-shipper.ts'
import { packParts } from '../../../process/wiring/catalog.ts'
import { buildServing, type Serving } from '../../../process/wiring/wiring.ts'
import type { OutputItem } from '../../../protocol/items.ts'
import type { Egress, Model, Provider } from '../../../protocol/provider.ts'
import type { CatalogParts } from '../../../providers/catalog.ts'
import { parseVaultKeys } from '../../../providers/credentials/vault-keys.ts'
import { openStore } from '../../../storage/open.ts'
import type { Store } from '../../../storage/store.ts'
import type { UsageRecord } from '../../../storage/usage.ts'

/** Longer than the default of `timeouts.requestMs`, which ends a request whose provider hangs. */
const REPLY_TIMEOUT_MS = 900_000

export interface ReplayedAnswer {
  readonly status: number
  readonly usage: UsageRecord | null
  readonly output: readonly OutputItem[]
  /** Type of the error; null: it succeeded. */
  readonly error: string | null
  readonly message: string | null
}

interface ReplayGatewayOptions {
  readonly config: Config
  readonly parts: CatalogParts
  /** Limit of all requests in millionths of USD; null: no limit. */
  readonly budget: number | null
}

export class ReplayGateway {
  readonly #folder: string
  readonly #serving: Serving
  readonly #shipper: LedgerShipper
  readonly #store: Store
  readonly #url: string
  readonly #key: string

  private constructor(parts: {
    folder: string
    serving: Serving
    shipper: LedgerShipper
    store: Store
    url: string
    key: string
  }) {
    this.#folder = parts.folder
    this.#serving = parts.serving
    this.#shipper = parts.shipper
    this.#store = parts.store
    this.#url = parts.url
    this.#key = parts.key
  }

  static async start({ config, parts, budget }: ReplayGatewayOptions): Promise<ReplayGateway> {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-replay-'))
    const url = `sqlite:${join(folder, 'gateway.db')}`
    const log = createLog('silent', { write: () => undefined })
    const clock = systemClock
    const store = await openStore(url)
    const { key, record } = createKey({ kind: 'inference', name: 'replay', clock })
    await store.keys.add({ ...record, limit: budget })
    const shipper = await startShipper({ storageUrl: url, clock, log })
    const serving = await buildServing({
      config: ownSettings(config, url, folder),
      catalogue: packParts(parts),
      spoolFolder: shipper.folder,
      simUrl: null,
      endUserKey: createSecretKey(randomBytes(32)),
      vaultKeys: parseVaultKeys(`replay:${randomBytes(32).toString('base64')}`),
      log,
      clock,
    })
    const port = await serving.server.listen('127.0.0.1', 0)
    return new ReplayGateway({ folder, serving, shipper, store, url: `http://127.0.0.1:${port}/v1`, key })
  }

  async ask(body: Readonly<Record<string, unknown>>): Promise<ReplayedAnswer> {
    const reply = await fetch(`${this.#url}/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.#key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(REPLY_TIMEOUT_MS),
    })
    const { output = [], error } = documentOf(await reply.text())
    const id = reply.headers.get('x-generation-id')
    // The record is written at the end of the turn of the event loop in which the answer ended.
    await new Promise(resolve => setImmediate(resolve))
    await this.#shipper.ship()
    const usage = id === null ? null : await this.#store.ledger.findOfAny(id)
    const isFailed = error != null || reply.status >= 400
    return {
      status: reply.status,
      usage,
      output,
      error: isFailed ? (error?.metadata?.error_type ?? error?.code?.toString() ?? 'failed') : null,
      message: error?.message ?? null,
    }
  }

  async close(): Promise<void> {
    this.#serving.server.close()
    await this.#serving.close()
    await this.#shipper.close()
    await this.#store.close()
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

/**
 * The configuration with everything that listens, writes or is shared replaced: port, database, files of tools, Redis,
 * captures, proof key, exports and alerts. `url`: of the database; `folder`: for the rest.
 */
export function ownSettings(config: Config, url: string, folder: string): Config {
  return {
    ...config,
    storage: { url },
    tools: { ...config.tools, files: { ...config.tools.files, url: `file:${join(folder, 'files')}` } },
    listen: { ...config.listen, host: '127.0.0.1', port: 0, tls: null },
    threads: { ...config.threads, serve: 1, warmUpMs: 0, tasks: 1 },
    redis: { ...config.redis, url: null },
    capture: { ...config.capture, enabled: false },
    proof: { keyFile: join(folder, 'proof.key') },
    quotas: { ...config.quotas, requestsPerMinute: null, tokensPerMinute: null },
    alerts: [],
    export: [],
    reconcile: [],
    managementKey: null,
    apiKey: null,
  }
}

/** The catalogue in which each provider that can be called is at another address, which needs no key. */
export function withProvidersAt(parts: CatalogParts, urlOf: (slug: string) => string): CatalogParts {
  const movedProviders = new Map(
    [...parts.providers].map(([slug, provider]) => [slug, withBaseUrl(urlOf(slug), provider)]),
  )
  const modelOf = (model: Model): Model => ({
    ...model,
    endpoints: model.endpoints.map(endpoint => ({
      ...endpoint,
      provider: movedProviders.get(endpoint.provider.slug) ?? endpoint.provider,
    })),
  })
  return {
    ...parts,
    providers: movedProviders,
    models: parts.models.map(modelOf),
    wildcards: parts.wildcards.map(modelOf),
  }
}

const DIRECT_EGRESS: Egress = { transport: 'direct', proxy: 'none', http2: false, tls: null }

function withBaseUrl(baseUrl: string, provider: Provider): Provider {
  // A provider without its key serves nobody, here as in the operator's gateway.
  if (provider.auth !== 'none' && provider.apiKey === null) return provider
  const {
    egress,
    baseUrls,
    regionUrls,
    awsService,
    tokenUrl,
    keyForm,
    batch,
    region,
    hosts,
    ...otherFields
  } = provider
  return { ...otherFields, baseUrl, auth: 'none', apiKey: null, egress: DIRECT_EGRESS }
}

interface AnswerDocument {
  readonly output?: readonly OutputItem[]
  readonly error?: {
    readonly code?: string | number
    readonly message?: string
    readonly metadata?: { readonly error_type?: string }
  } | null
}

/** The response in a JSON body, or in the last event of a stream that has one. */
function documentOf(text: string): AnswerDocument {
  if (!text.startsWith('event:') && !text.startsWith(':') && !text.startsWith('data:'))
    return parseOrEmpty(text) as AnswerDocument
  let last: AnswerDocument = {}
  for (const line of text.split('\n')) {
    if (!line.startsWith('data: {')) continue
    const event = parseOrEmpty(line.slice('data: '.length)) as { response?: AnswerDocument; type?: string }
    if (event.response !== undefined) last = event.response
    else if (event.type === 'error') last = { error: event as never }
  }
  return last
}

function parseOrEmpty(text: string): unknown {
  try {
    return JSON.parse(text) ?? {}
  } catch {
    return {}
  }
}
