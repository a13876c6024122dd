/**
 * Receivers of alerts: one HTTPS request per delivery, signed each time, to a public address unless the row allows
 * others; redirects are not followed. Main thread and command line.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import { isError, systemCode } from '../../base/errors.ts'
import { checkUrl, type LinkRules, PageError, resolverOf } from '../../providers/upstream/pages/fetch-page.ts'
import { openServiceFetch } from '../../providers/upstream/pages/service-fetch.ts'
import { ReadTurns } from '../../providers/upstream/read-turns.ts'
import { type AlertFormat, type AlertType, bodyAs, signatureOf } from './alert-body.ts'

/** A row of `alerts` in the configuration. */
export interface ReceiverRow {
  readonly url?: string
  readonly urlFile?: string
  readonly secretFile?: string
  readonly format?: AlertFormat
  /** Absent: all. */
  readonly events?: readonly AlertType[]
  readonly allowPrivate?: boolean
}

/** The answer of a receiver, or the reason why there is none, in the gateway's own words. */
type DeliveryResult =
  | { readonly ok: true; readonly status: number }
  | { readonly ok: false; readonly reason: string }

export interface Receiver {
  /** Name in the Store, which does not reveal the address. */
  readonly id: string
  /** Host for logs, because the rest of the address may be a secret. */
  readonly host: string
  wants(type: string): boolean
  /** Never rejects. @param body JSON of the alert */
  deliver(body: string): Promise<DeliveryResult>
}

const DELIVERY_TIMEOUT_MS = 10_000
const REPLY_MAX_BYTES = 16 * 1024

/**
 * Reads the address; the secret is read for each delivery, so that it can be replaced.
 * @throws ReceiverError for a file that cannot be read, or an address that cannot be used
 */
export function createReceiver(row: ReceiverRow, clock: Clock): Receiver {
  const address = row.url ?? (row.urlFile === undefined ? '' : readLine(row.urlFile, 'urlFile'))
  const rules: LinkRules = { allowHttp: false, allowPrivate: row.allowPrivate === true, ports: ANY_PORT }
  const url = checkedUrl(rules, address)
  const { secretFile, events, format = 'json' } = row
  const resolve = resolverOf(rules)
  return {
    id: createHash('sha256').update(url.href).digest('hex').slice(0, 16),
    host: url.host,
    wants: type => events === undefined || events.some(event => event === type),
    async deliver(json) {
      const deadline = new AbortController()
      const timer = clock.after(DELIVERY_TIMEOUT_MS, () => deadline.abort(new Error('no answer within 10 s')))
      try {
        const body = bodyAs(format, json)
        const seconds = Math.floor(clock.nowMs() / 1000)
        const secrets = secretFile === undefined ? [] : secretsIn(secretFile)
        const terms = {
          url,
          headers: {
            'content-type': 'application/json',
            ...(secrets.length === 0 ? {} : { 'x-sluice-signature': signatureOf(secrets, body, seconds) }),
          },
          turns: new ReadTurns(),
          maxRequests: 1,
          maxReplyBytes: REPLY_MAX_BYTES,
          maxBytes: REPLY_MAX_BYTES,
        }
        const serviceFetch = await openServiceFetch(rules, resolve, terms, deadline.signal)
        try {
          const { status, body: unreadBody } = await serviceFetch.fetch(url, {
            method: 'POST',
            body,
            signal: deadline.signal,
          })
          await unreadBody?.cancel()
          return status >= 200 && status < 300
            ? { ok: true, status }
            : { ok: false, reason: `status ${status}` }
        } finally {
          serviceFetch.close()
        }
      } catch (error) {
        return { ok: false, reason: reasonOf(error) }
      } finally {
        timer.cancel()
      }
    },
  }
}

const ANY_PORT: ReadonlySet<string> = { has: () => true } as unknown as ReadonlySet<string>

/** A receiver cannot be used. The message does not contain its address. */
export class ReceiverError extends Error {
  override readonly name = 'ReceiverError'
}

function checkedUrl(rules: LinkRules, address: string): URL {
  try {
    return checkUrl(rules, address)
  } catch (error) {
    throw new ReceiverError(
      error instanceof PageError ? error.message.replace(/^the link/, 'url') : 'url cannot be read',
    )
  }
}

function readLine(path: string, name: string): string {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    throw new ReceiverError(`${name} cannot be read (${systemCode(error) ?? 'unknown'})`)
  }
}

/** One per line: during a change, the second line is the previous or the next secret. */
function secretsIn(path: string): readonly string[] {
  const lines = readLine(path, 'secretFile').split('\n')
  const secrets = lines.map(line => line.trim()).filter(line => line !== '')
  if (secrets.length === 0) throw new ReceiverError('secretFile is empty')
  return secrets.slice(0, 2)
}

function reasonOf(error: unknown): string {
  if (error instanceof PageError || error instanceof ReceiverError) return error.message
  return (
    systemCode(error) ?? (isError(error) && error.message.startsWith('no answer') ? error.message : 'failed')
  )
}
