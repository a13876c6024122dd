/**
 * The record of one request in a capture: a line of JSON. Secrets of the gateway, of callers' credentials and of MCP
 * servers are removed; text that guardrails redacted never enters it. Pure.
 */
import { isUtf8 } from 'node:buffer'
import { isoInstant } from '../../base/clock.ts'
import type { GatewayError } from '../../base/errors.ts'
import type { AttemptRecord, ClientRequest, EndedExchange, Exchange } from '../../exchange/exchange.ts'
import type { ObservedReply } from '../../exchange/observer.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { withoutSecrets } from '../../protocol/tool-secrets.ts'
import type { Tool } from '../../protocol/tools.ts'
import { gatewayKeysIn, SecretScan, type ShownHeaders } from './secrets.ts'

/** The beginning of a body, and its full length. */
export interface RecordedBody {
  readonly bytes: number
  beginning(): Buffer
}

/** Maximum bytes of each body. */
export const MAX_BODY_BYTES = 1024 * 1024

/** One recorded call to a provider. */
export interface CallFacts {
  readonly method: string
  readonly host: string
  /** The path without the query. */
  readonly path: string
  readonly headers: ShownHeaders
  /** Secrets that were sent; they must not be shown. */
  readonly secrets: readonly string[]
  readonly sent: RecordedBody
  /** Milliseconds since the request began. */
  readonly atMs: number
  readonly status: number | null
  readonly replyHeaders: ShownHeaders
  readonly reply: RecordedBody
  readonly endedMs: number | null
  readonly error: GatewayError | null
}

export interface RecordingFacts {
  readonly clientRequest: ClientRequest
  /** Unix milliseconds. */
  readonly startedMs: number
  readonly durationMs: number
  readonly calls: readonly CallFacts[]
  /** Number of calls beyond the recorded ones. */
  readonly moreCalls: number
}

/** A longer line would consist of bytes written as escapes, which nobody can read. */
const MAX_RECORD_BYTES = 12 * 1024 * 1024

/** A value that is already JSON. */
interface RawJson {
  readonly json: string
}

/** The line of a request; null if it would be too long. */
export function recordOf(
  recording: RecordingFacts,
  { error, exchange }: EndedExchange,
  { isReplyGuarded, output }: ObservedReply,
): Uint8Array<ArrayBuffer> | null {
  const remover = new SecretScan(secretsOf(recording, exchange))
  const { clientRequest: request, calls, moreCalls, startedMs } = recording
  const started = exchange.attempts.filter(({ isStarted }) => isStarted)
  const fields: Readonly<Record<string, RawJson | undefined>> = {
    generation_id: raw(request.context.id),
    parent_id: request.parent === undefined ? undefined : raw(request.parent),
    time: raw(isoInstant(startedMs)),
    duration_ms: raw(recording.durationMs),
    key_hash: raw(request.caller.keyHash),
    workspace_id: raw(request.caller.workspaceId),
    dialect: raw(request.dialect),
    is_batched: raw(request.batch !== undefined),
    // In a refused request a client may have written anything as the model, even a key.
    model: raw(
      calls.length === 0
        ? null
        : remover.text(String(request.request.model ?? request.request.models?.[0] ?? '')),
    ),
    request: requestIn(remover, recording, exchange),
    calls: rawList(calls.map((call, index) => callIn(remover, call, started[index], isReplyGuarded))),
    more_calls: moreCalls === 0 ? undefined : raw(moreCalls),
    finish: raw(exchange.finish?.reason ?? null),
    output: documentIn(remover, output, calls),
    error: error === null ? raw(null) : raw({ type: error.errorType, message: remover.text(error.message) }),
  }
  const line = Buffer.from(`${rawObject(fields).json}\n`)
  // Copied, because small buffers share their memory.
  return line.length > MAX_RECORD_BYTES ? null : new Uint8Array(line)
}

/** The secrets of the request: values that were sent, provider keys, and headers of MCP servers. */
function* secretsOf(
  { calls, clientRequest }: RecordingFacts,
  { attempts, request }: Exchange,
): Generator<string> {
  for (const { secrets, sent } of calls) {
    yield* secrets
    yield* gatewayKeysIn(sent.beginning().toString('latin1'))
  }
  yield* gatewayKeysIn(JSON.stringify(clientRequest.request))
  for (const { providerKey, endpoint } of attempts) {
    if (providerKey !== null) yield* providerKey.secrets
    if (endpoint.provider.apiKey !== null) yield endpoint.provider.apiKey
  }
  yield* textsIn(toolSecrets(request))
  yield* textsIn(toolSecrets(clientRequest.request))
}

/** The secrets of MCP servers: all that `withoutSecrets` removes, at any depth. */
function toolSecrets({ tools, ...otherFields }: ResponsesRequest): unknown[] {
  const { mcp_servers: servers } = otherFields as { readonly mcp_servers?: unknown }
  const secrets: unknown[] = []
  const visit = (value: unknown, depth: number): void => {
    if (typeof value !== 'object' || value === null || depth > 6) return
    for (const [name, inner] of Object.entries(value)) {
      if (name === 'authorization' || name === 'authorization_token' || name === 'headers')
        secrets.push(inner)
      else if (name === 'tools' || name === 'parameters' || Array.isArray(value)) visit(inner, depth + 1)
    }
  }
  visit(
    (tools ?? []).filter(({ type }) => type !== 'function'),
    0,
  )
  visit(servers, 0)
  return secrets
}

function* textsIn(values: readonly unknown[]): Generator<string> {
  for (const value of values) {
    // Shorter values are words such as true.
    if (typeof value === 'string' && value.length >= 8) yield value.replace(/^(?:Bearer|Basic)\s+/i, '')
    else if (typeof value === 'object' && value !== null) yield* textsIn(Object.values(value))
  }
}

/** The request after guardrails and plugins. Before the first provider call it may contain forbidden text. */
function requestIn(remover: SecretScan, { calls }: RecordingFacts, { prompt, attempts }: Exchange): RawJson {
  if (attempts.length === 0 || calls.length === 0) return raw({ left_out: 'no provider was called' })
  if ((calls[0]?.sent.bytes ?? 0) > MAX_BODY_BYTES) return raw({ left_out: 'longer than 1 MiB' })
  const tools = prompt.tools == null ? {} : { tools: (prompt.tools as readonly Tool[]).map(withoutSecrets) }
  return withoutSecretsIn(remover, JSON.stringify({ ...prompt, ...tools }))
}

function documentIn(
  remover: SecretScan,
  output: ObservedReply['output'],
  calls: readonly CallFacts[],
): RawJson {
  // Serializing the output is worth its time only if the result will probably be short enough.
  const replyBytes = calls.reduce((sum, { reply }) => sum + reply.bytes, 0)
  if (output === null) return raw(null)
  if (replyBytes > 4 * MAX_BODY_BYTES) return raw({ left_out: 'longer than 1 MiB' })
  const json = JSON.stringify(output)
  return json.length > MAX_BODY_BYTES
    ? raw({ left_out: 'longer than 1 MiB' })
    : withoutSecretsIn(remover, json)
}

/** JSON without secrets. If there were any, it becomes a text, because the remaining document may be invalid JSON. */
function withoutSecretsIn(remover: SecretScan, json: string): RawJson {
  const clean = remover.text(json)
  return clean === json ? { json } : raw({ text: clean })
}

function callIn(
  remover: SecretScan,
  call: CallFacts,
  attempt: AttemptRecord | undefined,
  isReplyGuarded: boolean,
): RawJson {
  return rawObject({
    provider: raw(attempt?.endpoint.provider.slug ?? null),
    method: raw(call.method),
    host: raw(remover.text(call.host)),
    path: raw(remover.text(call.path)),
    headers: headersIn(remover, call.headers),
    body: bodyIn(remover, call.sent),
    at_ms: raw(call.atMs),
    status: raw(call.status),
    reply_headers: headersIn(remover, call.replyHeaders),
    reply: isReplyGuarded
      ? raw({ bytes: call.reply.bytes, left_out: 'guardrails of the caller check replies' })
      : bodyIn(remover, call.reply),
    ended_ms: raw(call.endedMs),
    error: raw(call.error === null ? null : call.error.errorType),
  })
}

/** A list of pairs, because providers choose the names. */
function headersIn(remover: SecretScan, headers: ShownHeaders): RawJson {
  return raw(headers.map(([name, value]) => [name, remover.text(value)]))
}

function bodyIn(remover: SecretScan, body: RecordedBody): RawJson {
  const beginning = body.beginning()
  const cutNote = beginning.length < body.bytes ? { cut_after: beginning.length } : {}
  const clean = remover.bytes(beginning)
  const text = textOf(clean, beginning.length < body.bytes)
  const content = text === null ? { base64: clean.toString('base64') } : { text }
  return raw({ bytes: body.bytes, ...content, ...cutNote })
}

/** The bytes as text; null if they are none. `isCut`: the last character may be incomplete. */
function textOf(bytes: Buffer, isCut: boolean): string | null {
  for (let cutBytes = 0; cutBytes <= (isCut ? 3 : 0) && cutBytes <= bytes.length; cutBytes++) {
    const characters = bytes.subarray(0, bytes.length - cutBytes)
    if (isUtf8(characters)) return characters.toString()
  }
  return null
}

function raw(value: unknown): RawJson {
  return { json: JSON.stringify(value) }
}

function rawList(values: readonly RawJson[]): RawJson {
  return { json: `[${values.map(({ json }) => json).join(',')}]` }
}

function rawObject(fields: Readonly<Record<string, RawJson | undefined>>): RawJson {
  const members = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [`${JSON.stringify(name)}:${value.json}`],
  )
  return { json: `{${members.join(',')}}` }
}
