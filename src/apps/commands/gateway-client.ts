/**
 * HTTP client for commands that may run on a different machine than the gateway. Each failure is one sentence, without
 * the key and without anything that could control the terminal.
 */
import type { Readable } from 'node:stream'
import { systemCode } from '../../base/errors.ts'
import { CommandError, type Option, type OptionValues, UsageError } from './command.ts'
import { type PortAddress, type PortTerms, portAddress, portUrl } from './port-address.ts'
import { plain } from './terminal/text.ts'

export const GATEWAY_OPTIONS = {
  url: { value: 'URL', does: 'address of the gateway; default: the one in the configuration' },
  key: {
    value: 'KEY',
    does: 'API key; default: GATEWAY_API_KEY, or the file that GATEWAY_API_KEY_FILE names',
  },
} as const satisfies Record<string, Option>

/** The gateway's answer is an error, unusable or missing. */
export class GatewayFault extends CommandError {
  override readonly name = 'GatewayFault'
  /** A short reason: a code of the system, status and message of the reply, or a few words. */
  readonly reason: string
  /** Status of the reply, or 200 if the server is no gateway; null: there was no reply, or it broke off. */
  readonly status: number | null
  /** The wait that the gateway requests, in milliseconds; null: none. */
  readonly retryAfterMs: number | null

  constructor(
    message: string,
    reason: string,
    status: number | null = null,
    retryAfterMs: number | null = null,
  ) {
    super(message)
    this.reason = reason
    this.status = status
    this.retryAfterMs = retryAfterMs
  }

  /** True if another try may succeed: the gateway is unreachable, starting or overloaded, or limits the key. */
  get isTemporary(): boolean {
    return this.status === null || this.status === 429 || this.status >= 500
  }
}

/** Time limit for connecting, for the head of a reply, and between two parts of a body. */
const CONNECT_TIMEOUT_MS = 10_000
const SILENCE_TIMEOUT_MS = 60_000
/** A page of batches has a few hundred KB. */
const JSON_MAX_BYTES = 16 * 1024 * 1024
const FAILURE_MAX_BYTES = 64 * 1024
/** A shorter text is not a key, and may be part of a word. */
const SECRET_MIN_CHARS = 8
/** A longer wait is probably a mistake, and is shortened to this. */
const RETRY_AFTER_MAX_S = 600

const GATEWAY_PORT = {
  part: 'listen',
  defaultPort: 8080,
  key: 'apiKey',
  missing:
    'an API key is missing: pass --key KEY, or set GATEWAY_API_KEY or GATEWAY_API_KEY_FILE; sluice keys create --name NAME makes one',
  otherKind:
    'this is a management key, but this needs an API key: pass one with --key KEY; sluice keys create --name NAME makes one',
} as const satisfies PortTerms

/** The gateway's address, including `/v1`, and key. @throws UsageError, ConfigError, CommandError */
export function gatewayOf(options: OptionValues): PortAddress {
  const { url, key } = portAddress(options, GATEWAY_PORT)
  return { url: versioned(url), key }
}

/** Only the address, including `/v1`. @throws UsageError, ConfigError */
export const addressOf = (options: OptionValues): string => versioned(portUrl(options, GATEWAY_PORT))

export const versioned = (url: string): string => (url.endsWith('/v1') ? url : `${url}/v1`)

export class GatewayClient {
  readonly url: string
  readonly #key: string
  readonly #terms: PortTerms
  readonly #signal: AbortSignal | undefined

  /**
   * @param terms those by which the address was found
   * @param signal ends calls of `json`
   */
  constructor({ url, key }: PortAddress, terms: PortTerms = GATEWAY_PORT, signal?: AbortSignal) {
    this.url = url
    this.#key = key
    this.#terms = terms
    this.#signal = signal
  }

  /** Reads a JSON reply. @param body sent as JSON @throws CommandError, UsageError, or the reason of the abort */
  async json(method: 'GET' | 'POST', path: string, body?: object): Promise<unknown> {
    const use = async (reply: Readable): Promise<unknown> => {
      const text = await textOf(reply, JSON_MAX_BYTES)
      try {
        return JSON.parse(text ?? '') as unknown
      } catch {
        throw this.notAGateway()
      }
    }
    return this.read(method, path, this.#signal, use, body)
  }

  /**
   * Passes the body of a successful reply to `use`, and closes it afterwards.
   * @throws CommandError, usually a GatewayFault; UsageError for status 400; the reason of the abort; or an error of `use`
   */
  async read<T>(
    method: 'GET' | 'POST',
    path: string,
    signal: AbortSignal | undefined,
    use: (body: Readable) => Promise<T>,
    requestBody?: object,
  ): Promise<T> {
    // Loaded here, so that commands without HTTP start faster.
    const { Agent, errors } = await import('undici')
    const agent = new Agent({
      // Requests are seconds apart, so a kept connection may be closed at just that moment.
      pipelining: 0,
      connect: { timeout: CONNECT_TIMEOUT_MS },
      headersTimeout: SILENCE_TIMEOUT_MS,
      bodyTimeout: SILENCE_TIMEOUT_MS,
    })
    const isOfClient = (error: unknown) => error instanceof errors.UndiciError || systemCode(error) !== null
    try {
      const { origin, pathname } = new URL(this.url)
      const reply = await agent.request({
        origin,
        path: `${pathname}${path}`,
        method,
        headers: {
          authorization: `Bearer ${this.#key}`,
          accept: 'application/json',
          ...(requestBody === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(requestBody === undefined ? {} : { body: JSON.stringify(requestBody) }),
        ...(signal === undefined ? {} : { signal }),
      })
      // Ignores errors after an abort or after `use`.
      reply.body.on('error', () => undefined)
      if (reply.statusCode === 200) return await use(reply.body)
      throw await this.#refusal(reply.statusCode, retryAfterMs(reply.headers['retry-after']), reply.body)
    } catch (error) {
      signal?.throwIfAborted()
      if (error instanceof CommandError || !isOfClient(error)) throw error
      throw this.#unreachable(error)
    } finally {
      await agent.destroy()
    }
  }

  /** The address is not a gateway's. */
  notAGateway(): GatewayFault {
    return new GatewayFault(
      `${this.url} does not answer like a gateway: pass the address of the gateway with --url URL`,
      'another server',
      200,
    )
  }

  #unreachable(error: unknown): GatewayFault {
    const code = systemCode(error) ?? 'no answer'
    return new GatewayFault(
      `no gateway answers at ${this.url} (${code}): start one there, or pass the address of the gateway with --url URL`,
      code,
    )
  }

  async #refusal(status: number, waitMs: number | null, body: Readable): Promise<CommandError> {
    const message = messageOf(await textOf(body, FAILURE_MAX_BYTES))
    if (message === null && status < 500 && status !== 429) return this.notAGateway()
    const plainMessage = this.#withoutKey(message ?? 'no reason given')
    const wait = waitMs === null ? 'try again later' : `try again in ${Math.ceil(waitMs / 1000)} s`
    if (status === 400) return new UsageError(asOption(plainMessage))
    const { key, otherKind } = this.#terms
    if (status === 403 && key === 'apiKey' && /management key/i.test(plainMessage))
      return new CommandError(otherKind)
    const sentence = SENTENCE_BY_STATUS.get(status) ?? (status >= 500 ? unavailableSentence : refusedSentence)
    const reason = `${status}, ${plainMessage}`
    return new GatewayFault(sentence(reason, wait, KEY_VARIABLES[key]), reason, status, waitMs)
  }

  /** A message from the gateway. Another server could send the key back, so it is removed. */
  #withoutKey(message: string): string {
    return plain(this.#key.length < SECRET_MIN_CHARS ? message : message.replaceAll(this.#key, '(the key)'))
  }
}

/** @param variable the one with the key */
type Sentence = (message: string, wait: string, variable: string) => string

const KEY_VARIABLES: Readonly<Record<PortTerms['key'], string>> = {
  apiKey: 'GATEWAY_API_KEY',
  managementKey: 'GATEWAY_MANAGEMENT_KEY',
}

const unavailableSentence: Sentence = (message, wait) =>
  `the gateway cannot answer at the moment (${message}): ${wait}`
const refusedSentence: Sentence = message => `the gateway refused the request (${message})`
const SENTENCE_BY_STATUS: ReadonlyMap<number, Sentence> = new Map([
  [
    401,
    (message, _wait, variable) =>
      `the gateway does not accept the key (${message}): pass another one with --key KEY or ${variable}`,
  ],
  [404, message => `the gateway does not have what was asked for (${message})`],
  [429, (message, wait) => `this key has sent too many requests (${message}): ${wait}`],
] satisfies [number, Sentence][])

/** Replaces a query parameter in the message by the option that it came from. */
function asOption(message: string): string {
  const option = /^(?:limit|after|status|created_after|created_before)(?=: )/.exec(message)?.[0]
  return option === undefined ? message : `--${option.replace('_', '-')}${message.slice(option.length)}`
}

/** Null: the header is absent, or a date, which no gateway sends. */
function retryAfterMs(header: string | string[] | undefined): number | null {
  return typeof header === 'string' && /^\d{1,9}$/.test(header)
    ? Math.min(Number(header), RETRY_AFTER_MAX_S) * 1000
    : null
}

/** The body as text; null if it is longer. */
async function textOf(body: Readable, maxBytes: number): Promise<string | null> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBytes) return null
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** The message of an error document; null: it is another document. */
export function messageOf(text: string | null): string | null {
  try {
    const { error } = JSON.parse(text ?? '') as { error?: { message?: unknown } }
    return typeof error?.message === 'string' ? error.message : null
  } catch {
    return null
  }
}
