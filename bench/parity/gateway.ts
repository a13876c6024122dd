/** The gateway of a parity run: the real process of a source tree, configured with the replaying provider only. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { createGuardedKey } from '../guards.ts'
import { lineOf, start } from '../processes.ts'
import { asksToWait, type Case, FORMATS, type Format } from './cases.ts'

const START_MS = 120_000
const READY_POLL_MS = 100
const HOUR_MS = 3_600_000
const PRICING = { prompt: '0.0000005', completion: '0.0000015', inputCacheRead: '0.0000001' }
export const API_KEY = 'sk-gw-v1-3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d'
const MANAGEMENT_KEY = 'sk-gw-mgmt-2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6'
/** Model author in the catalogue. */
const AUTHOR = 'replay'

/** Words that many answers have, so that much is redacted; windows are small, so that there are several. */
const RULES = {
  output: {
    content_filter_builtins: [
      { slug: 'email', action: 'redact' },
      { slug: 'ip-address', action: 'block' },
    ],
    content_filters: [{ pattern: '(?i)\\b(?:the|is)\\b', action: 'redact', label: 'frequent words' }],
    window_bytes: 512,
    overlap_bytes: 64,
  },
}

export interface ParityGateway {
  /** With `/v1`. */
  readonly url: string
  /** The key of a caller whose answers are under a guardrail. */
  readonly guardedKey: string
  stop(): Promise<void>
}

/** Id of a case's model for clients. */
export function modelOf({ id }: Case): string {
  return `${AUTHOR}/${id}`
}

/**
 * @param tree sources with packages
 * @param side first part of the path under which the provider is asked
 */
export async function startParityGateway(
  tree: string,
  side: string,
  folder: string,
  providerUrl: string,
  cases: readonly Case[],
): Promise<ParityGateway> {
  const home = join(folder, `home-${side}`)
  mkdirSync(home, { recursive: true })
  const config = join(home, 'gateway.yaml')
  // JSON is YAML.
  writeFileSync(config, JSON.stringify(parityConfiguration(`${providerUrl}/${side}/v1`, cases)))
  const log = join(home, 'errors.log')
  const words = ['--disable-warning=ExperimentalWarning', join(tree, 'src/main.ts'), '--config', config]
  const one = start(process.execPath, words, {
    core: null,
    log,
    readLines: true,
    cwd: home,
    environment: {
      GATEWAY_API_KEY: API_KEY,
      GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY,
      DATABASE_URL: `sqlite:${join(home, 'gateway.db')}`,
      // Its ports are free ones, which a line of this level names.
      LOG_LEVEL: 'info',
    },
  })
  const { url, adminUrl } = await lineOf(one, log, START_MS, line =>
    line.includes('"msg":"listening"') ? (JSON.parse(line) as { url: string; adminUrl: string }) : null,
  )
  for (let waitedMs = 0; !(await isReady(adminUrl)); waitedMs += READY_POLL_MS) {
    if (waitedMs > START_MS) throw new Error(`the gateway of ${tree} does not become ready`)
    await pause(READY_POLL_MS)
  }
  const guardedKey = await createGuardedKey(`${url}/v1`, MANAGEMENT_KEY, RULES)
  return { url: `${url}/v1`, guardedKey, stop: () => one.stop() }
}

/** A reply takes no time, so that heartbeats and shedding would only tell how busy the machine is. */
export function parityConfiguration(baseUrl: string, cases: readonly Case[]): object {
  const rowOf = (format: Format) => ({
    slug: format as string,
    name: `Replayed ${format}`,
    format,
    baseUrl,
    apiKey: 'replay-provider-key',
  })
  const rows = FORMATS.map(rowOf)
  // A provider that asks to wait is not asked by any request of a batch meanwhile.
  const limited = cases.filter(isLimited).map(one => ({ ...rowOf(one.play.format), slug: limitedSlug(one) }))
  const general = { ...rows[0], slug: 'general', name: 'Replayed without relay', quirks: ['no-relay'] }
  return {
    listen: { host: '127.0.0.1', port: 0 },
    admin: { host: '127.0.0.1', port: 0 },
    threads: { serve: 1, tasks: 1 },
    limits: { maxLagMs: HOUR_MS },
    timeouts: { heartbeatMs: HOUR_MS },
    providers: [...rows, general, ...limited],
    models: cases.map(one => ({
      id: modelOf(one),
      contextLength: 1_000_000,
      maxOutputTokens: 100_000,
      endpoints: [
        {
          provider: slugOf(one),
          upstreamModel: one.id,
          pricing: PRICING,
        },
      ],
    })),
  }
}

function slugOf(one: Case): string {
  if (one.way === 'general') return 'general'
  return isLimited(one) ? limitedSlug(one) : one.play.format
}

function isLimited({ play, way }: Case): boolean {
  return way !== 'general' && asksToWait(play)
}

function limitedSlug({ id, play }: Case): string {
  return `${play.format}-${id}`
}

async function isReady(adminUrl: string): Promise<boolean> {
  try {
    return (await fetch(`${adminUrl}/readyz`)).ok
  } catch {
    return false
  }
}
