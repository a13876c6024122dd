/**
 * Every recorded embeddings reply against a plain reading written here: whole documents, and numbers read one by one
 * out of base64.
 */
import t from 'tap'
import { EMBEDDINGS_FORMATS } from '../../../src/formats/embeddings/table.ts'
import type { EmbeddingsFormatName } from '../../../src/protocol/provider.ts'
import { AS_FLOATS, decodeVectors, float32s } from '../../support/decode-embeddings.ts'
import {
  arrivals,
  checkFailures,
  type Recording,
  recordings,
  withoutRecordings,
} from '../../support/recordings.ts'

/** Formats of providers that do not speak as OpenAI does. */
const FORMAT_OF: Readonly<Record<string, EmbeddingsFormatName>> = {
  cohere: 'cohere-embeddings',
  google: 'gemini-embeddings',
  vertex: 'vertex-embeddings',
  ollama: 'ollama-embeddings',
}
const formatOf = ({ provider }: Recording) => EMBEDDINGS_FORMATS[FORMAT_OF[provider] ?? 'openai-embeddings']

const all = recordings('embeddings')
const failed = all.filter(({ httpStatus }) => httpStatus !== 200)
const replies = all.filter(({ httpStatus }) => httpStatus === 200)

// The plain reading

interface Reading {
  id: string | null
  tokens: number | null
  vectors: (readonly number[])[]
}
interface OpenaiReply {
  id?: string
  data: { index: number; embedding: string | number[] }[]
  usage: { prompt_tokens?: number; total_tokens: number }
}
interface CohereReply {
  id: string
  embeddings: { float: number[][] }
  meta: { billed_units: { input_tokens: number } }
}
interface GeminiReply {
  embeddings: { values: number[] }[]
  usageMetadata?: { promptTokenCount: number }
}
interface VertexReply {
  predictions: { embeddings: { values: number[]; statistics: { token_count: number } } }[]
}

/** How each provider writes numbers in base64. */
const READ: Readonly<Record<string, (base64: string) => number[]>> = {
  perplexity: base64 => [...new Int8Array(Buffer.from(base64, 'base64'))],
  localserver(base64) {
    const bytes = Buffer.from(base64, 'base64')
    return Array.from({ length: bytes.length / 8 }, (_, at) => bytes.readDoubleLE(at * 8))
  },
}

function read(recording: Recording): Reading {
  const document: unknown = JSON.parse(recording.bytes().toString())
  switch (recording.provider) {
    case 'cohere': {
      const { id, embeddings, meta } = document as CohereReply
      return { id, tokens: meta.billed_units.input_tokens, vectors: embeddings.float }
    }
    case 'google': {
      const { embeddings, usageMetadata } = document as GeminiReply
      return {
        id: null,
        tokens: usageMetadata?.promptTokenCount ?? null,
        vectors: embeddings.map(({ values }) => values),
      }
    }
    case 'vertex': {
      const { predictions } = document as VertexReply
      const tokens = predictions.map(({ embeddings }) => embeddings.statistics.token_count)
      return {
        id: null,
        tokens: tokens.reduce((sum, each) => sum + each, 0),
        vectors: predictions.map(({ embeddings }) => embeddings.values),
      }
    }
    case 'ollama':
      return { id: null, tokens: null, vectors: [(document as { embedding: number[] }).embedding] }
    default: {
      const { id, data, usage } = document as OpenaiReply
      const inBase64 = READ[recording.provider] ?? float32s
      return {
        id: id ?? null,
        tokens: usage.prompt_tokens ?? usage.total_tokens,
        vectors: data
          .toSorted((a, b) => a.index - b.index)
          .map(({ embedding }) => (typeof embedding === 'string' ? inBase64(embedding) : embedding)),
      }
    }
  }
}

const termsOf = ({ provider }: Recording) => ({ ...AS_FLOATS, isInt8: provider === 'perplexity' })

t.test('the recordings are here', { skip: withoutRecordings }, async t => {
  t.equal(all.length, 31)
  t.equal(failed.length, 9)
})

t.test('every reply equals the plain reading, at any border', { skip: withoutRecordings }, async t => {
  let equal = 0
  for (const recording of replies) {
    const expected = read(recording)
    const bytes = recording.bytes()
    const differing = [...arrivals(bytes)].filter(({ chunks }) => {
      const got = decodeVectors(formatOf(recording), chunks, expected.vectors.length, termsOf(recording))
      const reading: Reading = {
        id: got.upstreamId,
        tokens: got.usage?.inputTokens ?? null,
        vectors: got.vectors as number[][],
      }
      return JSON.stringify(reading) !== JSON.stringify(expected)
    })
    const names = differing.map(({ name }) => name)
    if (t.same(names, [], recording.name)) equal++
  }
  t.comment(`${equal}/${replies.length} replies equal the plain reading`)
  t.equal(equal, replies.length)
})

t.test(
  'every reply is the same numbers as base64, as float32 has them',
  { skip: withoutRecordings },
  async t => {
    let equal = 0
    for (const recording of replies) {
      const expected = read(recording).vectors.map(vector => vector.map(Math.fround))
      const terms = { ...termsOf(recording), encoding: 'base64' as const }
      const got = decodeVectors(formatOf(recording), [recording.bytes()], expected.length, terms)
      if (
        t.same(
          got.vectors.map(each => float32s(String(each))),
          expected,
          recording.name,
        )
      )
        equal++
    }
    t.comment(`${equal}/${replies.length} replies as base64`)
  },
)

t.test('what is parsed at once is short, whatever the vectors', { skip: withoutRecordings }, async t => {
  for (const recording of replies) {
    const { restChars } = decodeVectors(
      formatOf(recording),
      [recording.bytes()],
      read(recording).vectors.length,
      termsOf(recording),
    )
    t.ok(restChars < 3_000, `${recording.name}: ${restChars}`)
  }
})

t.test(
  'recorded HTTP errors become failures that the interface knows',
  { skip: withoutRecordings },
  async t => checkFailures(t, failed, formatOf),
)
