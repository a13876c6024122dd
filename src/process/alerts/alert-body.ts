/** An alert: its types, its id, the body that receivers get in each format, and the signature of a delivery. Pure. */
import { createHash, createHmac } from 'node:crypto'
import type { ALERT_EVENTS, ALERT_FORMATS } from '../config/list-rows.ts'

export type AlertType = (typeof ALERT_EVENTS)[number]
export type AlertFormat = (typeof ALERT_FORMATS)[number]

/** The subject of an alert. */
export interface AlertObject {
  readonly kind: 'key' | 'organization' | 'certificate' | 'provider' | 'gateway' | 'route'
  readonly id: string
  /** The name that people know it by. */
  readonly name: string
  readonly workspaceId: string | null
}

/** An event that may cause an alert. */
export interface AlertEvent {
  readonly type: AlertType | 'test'
  readonly object: AlertObject
  /** The period or state that an event belongs to. It causes one alert, however often and wherever it is detected. */
  readonly window: string
  /** Numbers, times and names of the gateway; never a key, a secret or text of a prompt. */
  readonly data: Readonly<Record<string, string | number | boolean | null>>
}

/** The same for the same event, object and window, on every instance and after a restart. */
export function alertId({ type, object, window }: AlertEvent): string {
  const hash = createHash('sha256').update(JSON.stringify([type, object.kind, object.id, window]))
  return `alert_${hash.digest('hex').slice(0, 32)}`
}

/** The JSON of an alert. @param gateway public address of the gateway @param created ISO 8601 UTC */
export function alertBody(event: AlertEvent, gateway: string, created: string): string {
  const { type, data } = event
  const { kind, id, name, workspaceId } = event.object
  const object = { kind, id, name, workspace_id: workspaceId }
  return JSON.stringify({ id: alertId(event), type, created, gateway, object, data })
}

interface Body {
  readonly type: string
  readonly gateway: string
  readonly object: { readonly kind: string; readonly name: string }
  readonly data: Readonly<Record<string, unknown>>
}

/** Characters that end a line, or change the position or direction of shown text. */
const LINE_ENDS = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu

/** The body in a receiver's format; Slack reads only `text`. */
export function bodyAs(format: AlertFormat, body: string): string {
  if (format === 'json') return body
  const { type, gateway, object, data } = JSON.parse(body) as Body
  const details = Object.entries(data).map(([name, value]) => `${name} ${String(value)}`)
  const text = [`Sluice ${gateway}: ${type}`, `${object.kind} ${object.name}`, ...details].join(', ')
  return JSON.stringify({
    // Escaped for Slack, which reads links and mentions between angle brackets; a name could also begin a new line.
    text: text
      .replace(LINE_ENDS, ' ')
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;'),
  })
}

/**
 * The header `X-Sluice-Signature`: `t=SECONDS,v1=HEX`, with one `v1` for each secret while one replaces another. HEX is
 * the HMAC-SHA256 over `SECONDS.BODY`.
 */
export function signatureOf(secrets: readonly string[], body: string, seconds: number): string {
  const signatures = secrets.map(secret =>
    createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex'),
  )
  return [`t=${seconds}`, ...signatures.map(hex => `v1=${hex}`)].join(',')
}
