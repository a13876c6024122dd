/** Parses the target of a request to the simulated provider from its path, key and body. */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { GatewayError } from '../../base/errors.ts'
import { BODY_CUT_TOO_FINE, BODY_PIECES, PieceCount } from '../../base/fairness/short-chunks.ts'
import { parseJson, record } from '../../base/json.ts'
import type { SimFields, SimFormat } from './ask.ts'

// Incoming requests

/** The server refuses larger bodies with 413. */
const BODY_MAX_BYTES = 64 * 1024 * 1024

/** The API of a path; format null for embeddings and unknown paths. */
type SimTarget =
  | { readonly format: SimFormat; readonly model: string; readonly stream: boolean }
  | { readonly format: null; readonly embeddings: boolean }

const GEMINI_PATH = /^\/models\/([^/]+):(generateContent|streamGenerateContent)$/
const FORMAT_BY_PATH: ReadonlyMap<string, SimFormat> = new Map([
  ['/responses', 'openai-responses'],
  ['/chat/completions', 'openai-chat'],
  ['/messages', 'anthropic-messages'],
])

export function targetOf(method: string, path: string): SimTarget {
  const unknownTarget: SimTarget = { format: null, embeddings: false }
  if (method !== 'POST') return unknownTarget
  const [pathWithVersion = '', query = ''] = path.split('?', 2)
  // Base URLs include a version at some providers, but not at others.
  const route = pathWithVersion.replace(/^\/v1(?:beta)?(?=\/)/, '')
  const format = FORMAT_BY_PATH.get(route)
  if (format !== undefined) return { format, model: '', stream: false }
  const match = GEMINI_PATH.exec(route)
  if (match === null) return { format: null, embeddings: route === '/embeddings' }
  const stream = match[2] === 'streamGenerateContent'
  if (stream && !query.split('&').includes('alt=sse')) return unknownTarget
  return { format: 'google-gemini', model: decodeSegment(match[1] ?? ''), stream }
}

function decodeSegment(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

export function hasKey(headers: IncomingHttpHeaders): boolean {
  return [headers.authorization, headers['x-api-key'], headers['x-goog-api-key']].some(
    key => key !== undefined,
  )
}

/** The body as text; null if it is too large. @throws GatewayError `invalid_request` if its chunks are too short */
export async function readBody(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = []
  const count = new PieceCount(BODY_PIECES)
  for await (const chunk of request as AsyncIterable<Buffer>) {
    if (!count.add(chunk.length)) throw new GatewayError('invalid_request', BODY_CUT_TOO_FINE)
    if (count.bytes <= BODY_MAX_BYTES) chunks.push(chunk)
  }
  return count.bytes > BODY_MAX_BYTES ? null : Buffer.concat(chunks).toString('utf8')
}

/** Parses a JSON object; null for other text. */
export function parseObject(text: string): SimFields | null {
  return record(parseJson(text))
}
