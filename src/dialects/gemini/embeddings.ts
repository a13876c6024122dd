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
import { withClientPath } from '../translation.ts'
import { GeminiContent, type Part } from './body-schema.ts'
import { geminiFailure } from './failure.ts'
import { camelCase, inUsualSpelling, respell } from './names.ts'

const Request = Type.Object({
  content: GeminiContent,
  taskType: maybe(Type.String()),
  outputDimensionality: maybe(Type.Integer({ minimum: 1 })),
})
type Request = Static<typeof Request>
const Batch = Type.Object({
  requests: Type.Array(Request, { minItems: 1, maxItems: EMBEDDING_INPUTS_MAX }),
})

const checkSingle = bodyCheck(Request)
const checkBatch = bodyCheck(Batch)
const checkSpellingOfSingle = spellingCheck(Request, { moreNames: ['model'], usualSpelling: camelCase })
const checkSpellingOfBatch = spellingCheck(Batch, { moreNames: ['model'], usualSpelling: camelCase })

/** `isBatch`: there is a list of inputs. */
export function createGeminiEmbeddings(offering: Offering, isBatch: boolean): EmbeddingsDialect {
  const parse = createEmbeddingsParser(offering)
  const nameOf = (message: string): string =>
    withClientPath(message, (field, index) => pathOf(field, index, isBatch))
  return {
    name: 'embeddings',
    parse(value) {
      if (isBatch) checkSpellingOfBatch(value)
      else checkSpellingOfSingle(value)
      const body = respell(inUsualSpelling(value))
      const requests = isBatch ? checkBatch(body).requests : [checkSingle(body)]
      const bodyFields = { ...(body as object), ...settingsOf(requests) } as Record<string, unknown>
      for (const name of Object.keys(Request.properties)) delete bodyFields[name]
      const { requests: _, ...fields } = bodyFields
      try {
        return parse({ ...fields, input: inputOf(requests, isBatch) })
      } catch (thrown) {
        if (!(thrown instanceof GatewayError)) throw thrown
        throw new GatewayError(thrown.code, nameOf(thrown.message))
      }
    },
    clientError: error =>
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
function settingsOf([firstRequest, ...laterRequests]: readonly Request[]): Record<string, unknown> {
  for (const [index, request] of laterRequests.entries()) {
    for (const name of ['taskType', 'outputDimensionality'] as const) {
      if ((request[name] ?? null) !== (firstRequest?.[name] ?? null))
        throw refuseField(
          `requests[${index + 1}].${name}`,
          'must be the same as in the first request: send requests that differ separately',
        )
    }
  }
  return {
    dimensions: firstRequest?.outputDimensionality ?? null,
    input_type: inputTypeOf(firstRequest?.taskType),
  }
}

function inputTypeOf(taskType: string | null | undefined): string | null {
  return taskType == null || taskType === 'TASK_TYPE_UNSPECIFIED' ? null : taskType.toLowerCase()
}

/** Plain texts if there is nothing else, because every provider accepts them. */
function inputOf(requests: readonly Request[], isBatch: boolean): unknown {
  const parts = requests.map(({ content }, requestIndex) => {
    const contentParts = content.parts ?? []
    const path = `${isBatch ? `requests[${requestIndex}].` : ''}content.parts`
    if (contentParts.length === 0) throw refuseField(path, 'must have at least 1 part')
    return contentParts.map((part, index) => partOf(part, `${path}[${index}]`))
  })
  const texts = parts.flatMap(([part, ...moreParts]) =>
    moreParts.length === 0 && part?.type === 'text' ? [part.text] : [],
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
    pieces.push(Buffer.from(index === 0 ? '{"values":' : ',{"values":'), vector, BRACE)
  const { input_tokens, cost } = usage ?? {}
  const lastFields = JSON.stringify({
    usageMetadata: usage === null ? null : { promptTokenCount: input_tokens, cost },
    modelVersion: model,
    responseId: id,
    provider,
    ...(metadata === null ? {} : { gateway_metadata: metadata }),
  })
  pieces.push(Buffer.from(`${isBatch ? ']' : ''},${lastFields.slice(1)}`))
  return Buffer.concat(pieces)
}

const BRACE = Buffer.from('}')
