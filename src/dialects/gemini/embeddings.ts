/**
 * Translates embedContent and batchEmbedContents to POST /embeddings, and its replies back. Pure. The HTTP operation
 * puts `model` into the body.
 */
import { type Static, Type } from '@sinclair/typebox'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { EmbeddingsResult } from '../../protocol/embeddings.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import type { Offering } from '../../protocol/json/request-parser.ts'
import { maybe } from '../../protocol/json/schema.ts'
import { EMBEDDING_INPUTS_MAX } from '../../protocol/limits.ts'
import { createEmbeddingsParser } from '../embeddings/parse.ts'
import type { EmbeddingsDialect } from '../embeddings.ts'
import { spellingCheck } from '../field-names.ts'
import { renamed } from '../translation.ts'
import { GeminiContent, type Part } from './body-schema.ts'
import { geminiFailure } from './failure.ts'
import { camel, inUsualSpelling, respell } from './names.ts'

const Request = Type.Object({
  content: GeminiContent,
  taskType: maybe(Type.String()),
  outputDimensionality: maybe(Type.Integer({ minimum: 1 })),
})
type Request = Static<typeof Request>
const Batch = Type.Object({
  requests: Type.Array(Request, { minItems: 1, maxItems: EMBEDDING_INPUTS_MAX }),
})

const checkOne = bodyCheck(Request)
const checkBatch = bodyCheck(Batch)
const checkSpellingOfOne = spellingCheck(Request, { more: ['model'], usual: camel })
const checkSpellingOfBatch = spellingCheck(Batch, { more: ['model'], usual: camel })

/** `isBatch`: there is a list of inputs. */
export function createGeminiEmbeddings(offering: Offering, isBatch: boolean): EmbeddingsDialect {
  const parse = createEmbeddingsParser(offering)
  const nameOf = (message: string): string =>
    renamed(message, (field, index) => pathOf(field, index, isBatch))
  return {
    name: 'embeddings',
    parse(value) {
      if (isBatch) checkSpellingOfBatch(value)
      else checkSpellingOfOne(value)
      const body = respell(inUsualSpelling(value))
      const requests = isBatch ? checkBatch(body).requests : [checkOne(body)]
      const merged = { ...(body as object), ...settingsOf(requests) } as Record<string, unknown>
      for (const name of Object.keys(Request.properties)) delete merged[name]
      const { requests: _, ...fields } = merged
      try {
        return parse({ ...fields, input: inputOf(requests, isBatch) })
      } catch (thrown) {
        if (!(thrown instanceof GatewayError)) throw thrown
        throw new GatewayError(thrown.code, nameOf(thrown.message))
      }
    },
    refused: error =>
      error.code === 'model_not_found'
        ? new GatewayError(DIALECT_ABILITIES.gemini.unknownModel, error.message)
        : error,
    document: result => documentOf(result, isBatch),
    failure: (error, details) => geminiFailure(error, { ...details, request: null }),
  }
}

/** Null where the name is the same. */
function pathOf(field: string, index: number | null, isBatch: boolean): string | null {
  if (field === 'dimensions') return 'outputDimensionality'
  if (field === 'input_type') return 'taskType'
  if (field !== 'input') return null
  return isBatch ? `requests${index === null ? '' : `[${index}]`}.content` : 'content'
}

/** All vectors of an answer have the same settings. */
function settingsOf([first, ...others]: readonly Request[]): Record<string, unknown> {
  for (const [at, other] of others.entries()) {
    for (const name of ['taskType', 'outputDimensionality'] as const) {
      if ((other[name] ?? null) !== (first?.[name] ?? null))
        throw refuseField(
          `requests[${at + 1}].${name}`,
          'must be the same as in the first request: send requests that differ separately',
        )
    }
  }
  return { dimensions: first?.outputDimensionality ?? null, input_type: wordOf(first?.taskType) }
}

function wordOf(taskType: string | null | undefined): string | null {
  return taskType == null || taskType === 'TASK_TYPE_UNSPECIFIED' ? null : taskType.toLowerCase()
}

/** Plain texts if there is nothing else, because every provider accepts them. */
function inputOf(requests: readonly Request[], isBatch: boolean): unknown {
  const path = (at: number): string => (isBatch ? `requests[${at}].content` : 'content')
  const parts = requests.map(({ content }, at) => {
    const list = content.parts ?? []
    if (list.length === 0) throw refuseField(`${path(at)}.parts`, 'must have at least 1 part')
    return list.map((part, index) => partOf(part, `${path(at)}.parts[${index}]`))
  })
  const texts = parts.flatMap(([only, ...others]) =>
    others.length === 0 && only?.type === 'text' ? [only.text] : [],
  )
  return texts.length === parts.length ? texts : parts.map(content => ({ content }))
}

type InputPart = { type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string } }

function partOf({ text, inlineData }: Part, path: string): InputPart {
  if (text != null && text !== '') return { type: 'text', text }
  if (inlineData == null) throw refuseField(path, 'must be non-empty text, or an image in inlineData')
  return { type: 'image_url', image_url: { url: `data:${inlineData.mimeType};base64,${inlineData.data}` } }
}

/** Written by hand, because vectors are JSON already. */
function documentOf({ id, model, provider, vectors, usage, metadata }: EmbeddingsResult, isBatch: boolean) {
  const pieces: Buffer[] = [Buffer.from(isBatch ? '{"embeddings":[' : '{"embedding":')]
  for (const [index, vector] of vectors.entries())
    pieces.push(Buffer.from(index === 0 ? '{"values":' : ',{"values":'), vector, CLOSING)
  const { input_tokens, cost } = usage ?? {}
  const rest = JSON.stringify({
    usageMetadata: usage === null ? null : { promptTokenCount: input_tokens, cost },
    modelVersion: model,
    responseId: id,
    provider,
    ...(metadata === null ? {} : { gateway_metadata: metadata }),
  })
  pieces.push(Buffer.from(`${isBatch ? ']' : ''},${rest.slice(1)}`))
  return Buffer.concat(pieces)
}

const CLOSING = Buffer.from('}')
