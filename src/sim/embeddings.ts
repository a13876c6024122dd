/** Embeddings that depend on nothing but the text: equal texts give equal vectors of length one. Pure. */
import { createHash } from 'node:crypto'
import { countWords } from './ask.ts'
import { type Fields, numberOf } from './loose.ts'

const DEFAULT_DIMENSIONS = 8
const MAX_DIMENSIONS = 4096

/** The reply to a request of the OpenAI shape; null when `model` is not `embed` or `embed-<dimensions>`. */
export function embeddingsReply(model: string, body: Fields): unknown {
  const match = /^embed(?:-(\d{1,4}))?$/.exec(model)
  if (match === null) return null
  const asked = numberOf(body['dimensions']) ?? Number(match[1] ?? DEFAULT_DIMENSIONS)
  const dimensions = Math.min(Math.max(1, Math.floor(asked)), MAX_DIMENSIONS)
  const input: unknown = body['input']
  // A list of numbers is one text given as tokens.
  const texts = Array.isArray(input) && typeof input[0] !== 'number' ? input : [input]
  const words = texts.map(text =>
    typeof text === 'string' ? countWords(text) : Array.isArray(text) ? text.length : 0,
  )
  const total = words.reduce((sum, count) => sum + count, 0)
  return {
    object: 'list',
    model,
    data: texts.map((text, index) => ({
      object: 'embedding',
      index,
      embedding: encoded(vectorOf(typeof text === 'string' ? text : JSON.stringify(text), dimensions), body),
    })),
    usage: { prompt_tokens: total, total_tokens: total },
  }
}

function encoded(vector: Float32Array, body: Fields): unknown {
  return body['encoding_format'] === 'base64'
    ? Buffer.from(vector.buffer).toString('base64')
    : Array.from(vector)
}

function vectorOf(text: string, dimensions: number): Float32Array {
  const vector = new Float32Array(dimensions)
  let squares = 0
  for (let at = 0; at < dimensions; at++) {
    const value = createHash('sha256').update(`${at}:${text}`).digest().readInt32LE(0) / 2 ** 31
    vector[at] = value
    squares += value * value
  }
  const length = Math.sqrt(squares)
  return vector.map(value => value / length)
}
