/**
 * Calls a search or page engine over the gateway's transport: key in a header, a deadline, a bounded reply. Errors are
 * EngineFailures that contain the engine and the cause, but never the key or the engine's own text. Serve threads.
 */
import { GatewayError } from '../../../base/errors.ts'
import { parseJson } from '../../../base/json.ts'
import type { Transport } from '../../../providers/upstream/transport.ts'
import { wholeReply } from '../../../providers/upstream/whole-reply.ts'
import type { EngineAccess, EngineRequest } from './engine.ts'

/** A failed call of an engine. The message may be shown to the caller and the model. */
export class EngineFailure extends Error {
  override readonly name = 'EngineFailure'
  readonly code: 'engine_timeout' | 'engine_status' | 'engine_reply' | 'engine_unreachable' | 'engine_busy'

  constructor(code: EngineFailure['code'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
  }
}

/** A configured engine. */
export interface ConfiguredEngine {
  readonly name: string
  readonly baseUrl: string
  readonly apiKey: string | null
}

/** The largest reply has 25 results of 100,000 characters, with escapes. */
const MAX_REPLY_BYTES = 16 * 1024 * 1024

const CAUSE_OF_STATUS: ReadonlyMap<number, string> = new Map([
  [400, 'it refused the request'],
  [401, 'it does not accept its apiKey'],
  [402, 'its account has no credits'],
  [403, 'its apiKey lacks permission, or its JSON format is turned off'],
  [404, 'its baseUrl does not offer this API'],
  [422, 'it refused the request'],
  [429, 'it received too many requests'],
])

/** Returns the JSON of the reply. Rejects with an EngineFailure, or with the reason of the signal. */
export async function callEngine(
  client: Transport,
  { keyHeader }: EngineAccess,
  engine: ConfiguredEngine,
  { method, path, body }: EngineRequest,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<unknown> {
  const { status, text } = await wholeReply(
    client,
    {
      ...(method === 'GET' ? { method } : {}),
      url: new URL(`${engine.baseUrl}${path}`),
      headers: {
        accept: 'application/json',
        ...(body === '' ? {} : { 'content-type': 'application/json' }),
        ...keyHeaders(keyHeader, engine.apiKey),
      },
      body,
      headersTimeoutMs: timeoutMs,
      idleTimeoutMs: timeoutMs,
    },
    { maxBytes: MAX_REPLY_BYTES, signal },
  ).catch(error => {
    signal.throwIfAborted()
    throw unreachableEngine(engine, error)
  })
  if (status < 200 || status > 299) {
    const cause = CAUSE_OF_STATUS.get(status)
    throw new EngineFailure(
      'engine_status',
      `the ${engine.name} engine answered ${status}${cause === undefined ? '' : `: ${cause}`}`,
    )
  }
  const value = parseJson(text)
  if (value === undefined) throw unreadableReply(engine)
  return value
}

/** The reply does not match the engine's API. */
export function unreadableReply({ name }: ConfiguredEngine): EngineFailure {
  return new EngineFailure('engine_reply', `the reply of the ${name} engine cannot be read`)
}

function unreachableEngine({ name }: ConfiguredEngine, error: unknown): EngineFailure {
  const isTimeout = error instanceof GatewayError && error.code === 'upstream_timeout'
  return isTimeout
    ? new EngineFailure('engine_timeout', `the ${name} engine did not answer in time`, error)
    : new EngineFailure('engine_unreachable', `the ${name} engine cannot be reached`, error)
}

function keyHeaders(header: EngineAccess['keyHeader'], key: string | null): Record<string, string> {
  if (key === null) return {}
  // An engine without a key of its own may be behind a proxy that requires one.
  return header === 'x-api-key' ? { 'x-api-key': key } : { authorization: `Bearer ${key}` }
}
