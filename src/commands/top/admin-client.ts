/** Asks the admin port of a gateway with a management key. Each failure is one sentence, without the key. */
import { keyKind } from '../../access/api-key.ts'
import { type Config, loadConfig, processEnvironment } from '../../config/config.ts'
import { systemCode } from '../../errors.ts'
import { CommandError, type Given, type Option, UsageError } from '../command.ts'
import { configWords } from '../outcome.ts'
import { plain } from '../terminal/text.ts'
import { readSummary, type Summary } from './summary.ts'

export const ADMIN_OPTIONS = {
  url: { value: 'URL', does: 'address of the admin port; default: that of the configuration' },
  key: {
    value: 'KEY',
    does: 'management key; default: GATEWAY_MANAGEMENT_KEY, or the file that GATEWAY_MANAGEMENT_KEY_FILE names',
  },
} as const satisfies Record<string, Option>

const PATH = '/console/data/summary'
const ANSWER_MS = 15_000
const JSON_MAX_BYTES = 4 << 20

/** The gateway did not answer as it should; another try may help. */
export class AdminFault extends CommandError {
  override readonly name = 'AdminFault'
}

export interface AdminPort {
  readonly url: string
  readonly key: string
}

/** Reads address and key from options, configuration or environment. @throws UsageError, ConfigError, CommandError */
export function adminPortOf(given: Given): AdminPort {
  const { url, key } = given
  const isGiven = typeof url === 'string' && typeof key === 'string'
  const config = isGiven ? null : loadConfig(configWords(given['config']), processEnvironment())
  const port = {
    url: typeof url === 'string' ? checkedUrl(url) : urlOf(config),
    key: typeof key === 'string' ? key : (config?.managementKey ?? ''),
  }
  if (port.key === '') {
    throw new UsageError(
      'a management key is missing: pass --key KEY, or set GATEWAY_MANAGEMENT_KEY or GATEWAY_MANAGEMENT_KEY_FILE; sluice keys create --name NAME --management makes one',
    )
  }
  if (!/^[\x21-\x7e]+$/.test(port.key)) throw new UsageError('--key: expects a key without spaces')
  // It would be refused; so it need not leave this machine.
  if (keyKind(port.key) === 'inference') throw apiKey()
  return port
}

function apiKey(): CommandError {
  return new CommandError(
    'this is an API key, but the console needs a management key: pass one with --key KEY; sluice keys create --name NAME --management makes one',
  )
}

function checkedUrl(text: string): string {
  const url = URL.parse(text)
  const isPlain =
    url !== null && url.username === '' && url.password === '' && url.search === '' && url.hash === ''
  if (!isPlain || !/^https?:$/.test(url.protocol)) {
    throw new UsageError('--url: expects http:// or https://, a host, and no user or query')
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}

/** The admin port of a gateway of this configuration, as seen from its own machine. */
function urlOf(config: Config | null): string {
  const { host = '127.0.0.1', port = 9090 } = config?.admin ?? {}
  if (port === 0) throw new UsageError('--url: is required, because admin.port is 0')
  const reached = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reached.includes(':') ? `[${reached}]` : reached}:${port}`
}

/** The summary of now. @throws CommandError; AdminFault where another try may help; the reason of the abort */
export async function askSummary({ url, key }: AdminPort, signal: AbortSignal): Promise<Summary> {
  const reply = await asked(url, key, signal)
  const text = await textOf(reply, url, signal)
  if (reply.ok) {
    const summary = readSummary(text)
    if (summary === null) throw stranger(url)
    return summary
  }
  const said = saidBy(text, key)
  switch (reply.status) {
    case 401:
      throw new CommandError(
        `the gateway does not accept the key (${said ?? '401'}): give another management key by --key KEY or GATEWAY_MANAGEMENT_KEY`,
      )
    case 403:
      throw said !== null && /management key is required/.test(said)
        ? apiKey()
        : new CommandError(`the gateway refuses this key (${said ?? '403'})`)
    case 404:
      throw new CommandError(
        `${url} has no console: name the admin port by --url URL (9090 unless admin.port says otherwise); console.enabled must be true there`,
      )
    default:
      if (reply.status >= 500 || reply.status === 429) {
        throw new AdminFault(
          `the gateway cannot answer now (${reply.status}, ${said ?? 'no reason given'}): try again later`,
        )
      }
      throw said === null
        ? stranger(url)
        : new CommandError(`the gateway refuses this (${reply.status}, ${said})`)
  }
}

async function asked(url: string, key: string, signal: AbortSignal): Promise<Response> {
  try {
    return await fetch(`${url}${PATH}`, {
      headers: { authorization: `Bearer ${key}`, accept: 'application/json' },
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
    })
  } catch (error) {
    signal.throwIfAborted()
    throw away(url, error)
  }
}

async function textOf(reply: Response, url: string, signal: AbortSignal): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const chunk of reply.body ?? []) {
      bytes += chunk.length
      if (bytes > JSON_MAX_BYTES) throw stranger(url)
      chunks.push(chunk)
    }
  } catch (error) {
    signal.throwIfAborted()
    throw error instanceof CommandError ? error : away(url, error)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function away(url: string, error: unknown): AdminFault {
  const code = systemCode(error) ?? 'no answer'
  return new AdminFault(
    `no gateway answers at ${url} (${code}): start one there, or name its admin port by --url URL`,
  )
}

/** Something else answers at the address. */
function stranger(url: string): CommandError {
  return new CommandError(`${url} does not answer as the admin port of a gateway does: name it by --url URL`)
}

/** The message of an error document, without the key; null: it is none. */
function saidBy(text: string, key: string): string | null {
  try {
    const { error } = JSON.parse(text) as { error?: { message?: unknown } }
    return typeof error?.message === 'string' ? plain(error.message.replaceAll(key, '(the key)')) : null
  } catch {
    return null
  }
}
