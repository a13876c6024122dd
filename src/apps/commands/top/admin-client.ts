/** Client for the admin port of a gateway, with a management key. Each failure is one sentence, without the key. */
import { systemCode } from '../../../base/errors.ts'
import { CommandError, type OptionValues } from '../command.ts'
import { messageOf } from '../gateway-client.ts'
import { MANAGEMENT_OPTIONS } from '../management-client.ts'
import { type PortAddress, type PortTerms, portAddress } from '../port-address.ts'
import { plain } from '../terminal/text.ts'
import { readSummary, type Summary } from './summary.ts'

export const ADMIN_OPTIONS = {
  ...MANAGEMENT_OPTIONS,
  url: { value: 'URL', does: 'address of the admin port; default: the one in the configuration' },
} as const

const SUMMARY_PATH = '/console/data/summary'
const ANSWER_TIMEOUT_MS = 15_000
const JSON_MAX_BYTES = 4 << 20

/** There is no answer, or the gateway cannot answer at the moment; another try may help. */
export class AdminFault extends CommandError {
  override readonly name = 'AdminFault'
}

const ADMIN_PORT = {
  part: 'admin',
  defaultPort: 9090,
  key: 'managementKey',
  missing:
    'a management key is missing: pass --key KEY, or set GATEWAY_MANAGEMENT_KEY or GATEWAY_MANAGEMENT_KEY_FILE; sluice keys create --name NAME --management makes one',
  otherKind:
    'this is an API key, but the console needs a management key: pass one with --key KEY; sluice keys create --name NAME --management makes one',
} as const satisfies PortTerms

/** Address and key of the admin port. @throws UsageError, ConfigError, CommandError */
export const adminPortOf = (options: OptionValues): PortAddress => portAddress(options, ADMIN_PORT)

/** The current summary. @throws CommandError; AdminFault if another try may help; the reason of the abort */
export async function askSummary({ url, key }: PortAddress, signal: AbortSignal): Promise<Summary> {
  const reply = await request(url, key, signal)
  const text = await textOf(reply, url, signal)
  if (reply.ok) {
    const summary = readSummary(text)
    if (summary === null) throw notAnAdminPort(url)
    return summary
  }
  const message = messageWithoutKey(text, key)
  switch (reply.status) {
    case 401:
      throw new CommandError(
        `the gateway does not accept the key (${message ?? '401'}): pass another management key with --key KEY or GATEWAY_MANAGEMENT_KEY`,
      )
    case 403:
      throw message !== null && /management key is required/.test(message)
        ? new CommandError(ADMIN_PORT.otherKind)
        : new CommandError(`the gateway refused this key (${message ?? '403'})`)
    case 404:
      throw new CommandError(
        `${url} has no console: pass the address of the admin port with --url URL (port 9090 unless admin.port is set); console.enabled must be true there`,
      )
    default:
      if (reply.status >= 500 || reply.status === 429) {
        throw new AdminFault(
          `the gateway cannot answer at the moment (${reply.status}, ${message ?? 'no reason given'}): try again later`,
        )
      }
      throw message === null
        ? notAnAdminPort(url)
        : new CommandError(`the gateway refused the request (${reply.status}, ${message})`)
  }
}

async function request(url: string, key: string, signal: AbortSignal): Promise<Response> {
  try {
    return await fetch(`${url}${SUMMARY_PATH}`, {
      headers: { authorization: `Bearer ${key}`, accept: 'application/json' },
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]),
    })
  } catch (error) {
    signal.throwIfAborted()
    throw unreachable(url, error)
  }
}

async function textOf(reply: Response, url: string, signal: AbortSignal): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const chunk of reply.body ?? []) {
      bytes += chunk.length
      if (bytes > JSON_MAX_BYTES) throw notAnAdminPort(url)
      chunks.push(chunk)
    }
  } catch (error) {
    signal.throwIfAborted()
    throw error instanceof CommandError ? error : unreachable(url, error)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function unreachable(url: string, error: unknown): AdminFault {
  const code = systemCode(error) ?? 'no answer'
  return new AdminFault(
    `no gateway answers at ${url} (${code}): start one there, or pass the address of its admin port with --url URL`,
  )
}

/** The address is not a gateway's admin port. */
function notAnAdminPort(url: string): CommandError {
  return new CommandError(
    `${url} does not answer like the admin port of a gateway: pass its address with --url URL`,
  )
}

/** The message of an error document, without the key; null: it is another document. */
function messageWithoutKey(text: string, key: string): string | null {
  const message = messageOf(text)
  return message === null ? null : plain(message.replaceAll(key, '(the key)'))
}
