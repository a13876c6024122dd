/**
 * A provider that repeats the key it was called with. The prompt chooses how: `CASE<place/writing>` names the place in
 * the reply and the way the key is written. The first segment of the path is the format it uses.
 */
import type { ServerResponse } from 'node:http'
import { Provider } from './provider.ts'

export const FORMATS = ['openai-responses', 'openai-chat', 'anthropic-messages', 'google-gemini'] as const
export type Format = (typeof FORMATS)[number]

const inHex = (key: string, mark: string) => Buffer.from(key).toString('hex').replace(/../g, `${mark}$&`)
const base64 = (text: string) => Buffer.from(text).toString('base64')

/** How the key is written. */
export const WRITINGS = {
  plain: key => key,
  url: key => encodeURIComponent(key),
  percent: key => inHex(key, '%'),
  json: key => JSON.stringify(key).slice(1, -1).replaceAll('/', '\\/'),
  escaped: key => inHex(key, '\\u00'),
  base64: key => base64(key),
  'base64-after-one': key => base64(`x${key}`),
  'base64-of-header': key => base64(`Bearer ${key}`),
  base64url: key => Buffer.from(`xy${key}`).toString('base64url'),
  hex: key => inHex(key, ''),
  halves: key => `begins with ${key.slice(0, key.length >> 1)}, ends with ${key.slice(key.length >> 1)}`,
  upper: key => key.toUpperCase(),
} satisfies Record<string, (key: string) => string>
export type Writing = keyof typeof WRITINGS

type Answer = (to: {
  readonly response: ServerResponse
  readonly format: Format
  /** The key as it is written, within a sentence. */
  readonly saying: string
  readonly written: string
  readonly output: string
}) => void

/** Where it stands. */
export const PLACES = {
  refusal: ({ response, format, saying }) => json(response, 401, errorOf(format, saying)),
  invalid: ({ response, format, saying }) => json(response, 400, errorOf(format, saying)),
  limited: ({ response, format, saying, written }) =>
    json(response, 429, errorOf(format, saying), { 'retry-after': headerText(written) }),
  unusual: ({ response, saying, written }) =>
    json(response, 422, {
      detail: [{ msg: saying, loc: [written] }],
      message: saying,
      [written]: written,
      error: { message: saying, code: written, innererror: { code: written }, details: [{ reason: saying }] },
    }),
  text: ({ response, saying }) => response.writeHead(500, { 'content-type': 'text/plain' }).end(saying),
  page: ({ response, saying }) =>
    response.writeHead(502, { 'content-type': 'text/html' }).end(`<html><title>${saying}</title></html>`),
  cut: ({ response, format, written }) =>
    json(response, 400, errorOf(format, `${'long story '.repeat(43)}${written}${' and more'.repeat(50)}`)),
  headers: ({ response, written }) => {
    const value = headerText(written)
    response.writeHead(503, value, {
      'x-request-id': value,
      'www-authenticate': `Bearer ${value}`,
      'set-cookie': `key=${value}`,
      'retry-after': value,
      'content-type': `application/json; key=${value}`,
    })
    response.end('{}')
  },
  redirect: ({ response, written }) =>
    response.writeHead(302, { location: `https://elsewhere.example/?key=${headerText(written)}` }).end(),
  'under-200': ({ response, format, saying }) => json(response, 200, errorOf(format, saying)),
  first: ({ response, format, saying }) => stream(response, [errorFrame(format, saying)]),
  midway: ({ response, format, saying, output }) =>
    stream(response, [...beginning(format, output), errorFrame(format, saying)]),
  nonsense: ({ response, saying }) => stream(response, [`data: {"${saying}": \n\n`]),
  names: ({ response, format, written, output }) => json(response, 200, goodReply(format, written, output)),
} satisfies Record<string, Answer>
export type Place = keyof typeof PLACES

/** The part of a prompt that orders a case. */
export const order = (place: Place, writing: Writing) => `CASE<${place}/${writing}>`

interface CanaryProvider {
  /** Base URL of a format. */
  url(format: Format): string
  /** Keys that it was called with. */
  readonly keys: ReadonlySet<string>
  close(): void
}

/** What its models say when they are not ordered to fail: to a line of a batch, by its prompt, and to others. */
type Said = Readonly<Record<'output' | 'batchPrompt' | 'batchOutput', string>>

export async function startCanaryProvider(said: Said): Promise<CanaryProvider> {
  const keys = new Set<string>()
  const provider = new Provider(({ headers, text, base }) => {
    const own = [
      headers.authorization?.replace(/^Bearer /, ''),
      headers['x-api-key'],
      headers['x-goog-api-key'],
    ]
    const key = String(own.flat().find(value => value !== undefined) ?? '')
    keys.add(key)
    const format = base as Format
    const output = text.includes(said.batchPrompt) ? said.batchOutput : said.output
    const [, place, writing] = /CASE<([a-z0-9-]+)\/([a-z0-9-]+)>/.exec(text) ?? []
    if (place === undefined || writing === undefined) return { json: goodReply(format, 'stop', output) }
    const written = WRITINGS[writing as Writing](key)
    const saying = `Incorrect API key provided: ${written}. See https://provider.example/keys?key=${written}`
    return response => PLACES[place as Place]({ response, format, saying, written, output })
  })
  const url = await provider.listen()
  return { url: format => `${url}/${format}`, keys, close: () => void provider.close() }
}

function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

function stream(response: ServerResponse, frames: readonly string[]) {
  response.writeHead(200, { 'content-type': 'text/event-stream' }).end(frames.join(''))
}

const headerText = (text: string) => text.replace(/[^\x20-\x7e]/g, '')

const frame = (event: string, data: unknown) =>
  `${event === '' ? '' : `event: ${event}\n`}data: ${JSON.stringify(data)}\n\n`

function errorOf(format: Format, saying: string): unknown {
  const error = { message: saying, type: saying, code: saying, param: saying }
  switch (format) {
    case 'anthropic-messages':
      return { type: 'error', error, request_id: saying }
    case 'google-gemini':
      return { error: { code: 500, message: saying, status: saying, details: [{ reason: saying }] } }
    default:
      return { error }
  }
}

function errorFrame(format: Format, saying: string): string {
  if (format === 'openai-responses') {
    return frame('error', { type: 'error', sequence_number: 5, code: saying, message: saying, param: saying })
  }
  return frame(format === 'anthropic-messages' ? 'error' : '', errorOf(format, saying))
}

/** What comes before an error that has to be told in the stream. */
function beginning(format: Format, text: string): string[] {
  const event = (type: string, data: object) => frame(type, { type, ...data })
  switch (format) {
    case 'openai-responses': {
      const response = { id: 'r', object: 'response', status: 'in_progress', output: [] }
      const item = { id: 'm', type: 'message', role: 'assistant', status: 'in_progress', content: [] }
      const at = { item_id: 'm', output_index: 0, content_index: 0 }
      return [
        event('response.created', { sequence_number: 0, response }),
        event('response.output_item.added', { sequence_number: 1, output_index: 0, item }),
        event('response.content_part.added', {
          sequence_number: 2,
          ...at,
          part: { type: 'output_text', text: '', annotations: [] },
        }),
        event('response.output_text.delta', { sequence_number: 3, ...at, delta: text, logprobs: [] }),
      ]
    }
    case 'openai-chat':
      return [
        frame('', {
          id: 'c',
          object: 'chat.completion.chunk',
          choices: [{ index: 0, delta: { role: 'assistant', content: text } }],
        }),
      ]
    case 'anthropic-messages':
      return [
        event('message_start', {
          message: { id: 'm', type: 'message', role: 'assistant', content: [], usage: { input_tokens: 1 } },
        }),
        event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
        event('content_block_delta', { index: 0, delta: { type: 'text_delta', text } }),
      ]
    case 'google-gemini':
      return [frame('', { candidates: [{ index: 0, content: { role: 'model', parts: [{ text }] } }] })]
  }
}

/** A whole reply whose names for things are of the provider's choice. */
function goodReply(format: Format, name: string, text: string): unknown {
  switch (format) {
    case 'openai-responses': {
      const content = [{ type: 'output_text', text, annotations: [] }]
      return {
        id: name,
        object: 'response',
        status: 'completed',
        model: name,
        service_tier: name,
        output: [{ id: 'm', type: 'message', role: 'assistant', status: 'completed', content }],
        usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
      }
    }
    case 'openai-chat':
      return {
        id: name,
        object: 'chat.completion',
        model: name,
        service_tier: name,
        system_fingerprint: name,
        choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: name }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      }
    case 'anthropic-messages':
      return {
        id: name,
        type: 'message',
        role: 'assistant',
        model: name,
        content: [{ type: 'text', text }],
        stop_reason: name,
        usage: { input_tokens: 1, output_tokens: 1, service_tier: name },
      }
    case 'google-gemini':
      return {
        responseId: name,
        modelVersion: name,
        candidates: [{ content: { role: 'model', parts: [{ text }] }, finishReason: name }],
        usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
      }
  }
}
