/** The OpenAPI description of the operations for Google's clients. Pure. */

import { Type } from '@sinclair/typebox'
import { GeminiBody, GeminiContent } from '../../dialects/gemini/body-schema.ts'
import { count, nullable, nullableText, oneOf } from '../../protocol/json/schema.ts'
import { MODELS_PAGE_MAX } from '../../protocol/limits.ts'
import { GatewayMetadata, ResponseUsage } from '../../protocol/response.ts'
import {
  answer,
  CACHE_HEADER,
  type Descriptions,
  IDEMPOTENCY_HEADER,
  METADATA_HEADER,
  PROOF_HEADER,
  query,
  repeat,
  SESSION_HEADER,
  tagged,
  text,
} from './description.ts'

const openObject = { additionalProperties: true }
const COMMON_HEADERS = [METADATA_HEADER, PROOF_HEADER, SESSION_HEADER]
/** The model is in the path. */
const { model: _model, stream: _stream, ...settings } = GeminiBody.properties
const Body = Type.Object(settings)
const Embedded = Type.Object({
  content: GeminiContent,
  taskType: Type.Optional(text),
  outputDimensionality: Type.Optional(Type.Integer({ minimum: 1 })),
})

const Usage = Type.Object({
  promptTokenCount: count,
  cachedContentTokenCount: Type.Optional(count),
  candidatesTokenCount: count,
  thoughtsTokenCount: Type.Optional(count),
  totalTokenCount: count,
  cost: ResponseUsage.properties.cost,
  cost_details: ResponseUsage.properties.cost_details,
  is_byok: ResponseUsage.properties.is_byok,
})

const Candidate = Type.Object(
  {
    content: Type.Object({ parts: Type.Array(Type.Object({}, openObject)), role: Type.Literal('model') }),
    finishReason: Type.Optional(text),
    finishMessage: Type.Optional(text),
    groundingMetadata: Type.Optional(Type.Object({}, openObject)),
    logprobsResult: Type.Optional(Type.Object({}, openObject)),
    index: count,
  },
  openObject,
)

/** A whole answer, and one chunk of a stream. */
const GeminiAnswer = Type.Object(
  {
    candidates: Type.Optional(Type.Array(Candidate)),
    promptFeedback: Type.Optional(Type.Object({ blockReason: text, blockReasonMessage: text })),
    usageMetadata: Type.Optional(Usage),
    modelVersion: Type.Optional(text),
    responseId: Type.Optional(text),
    provider: Type.Optional(nullableText),
    gateway_metadata: Type.Optional(GatewayMetadata),
  },
  openObject,
)

const ModelAnswer = Type.Object({
  ...repeat(text, 'name', 'baseModelId', 'version', 'displayName', 'description'),
  inputTokenLimit: Type.Optional(count),
  outputTokenLimit: Type.Optional(count),
  supportedGenerationMethods: Type.Array(text),
  thinking: Type.Boolean(),
})

const EXAMPLE_ID = 'gen-1795373585-OIVPacWO6j6gITKu4v7b'
const EXAMPLE_CONTENTS = [{ role: 'user', parts: [{ text: 'Hello' }] }]
const CANDIDATE_EXAMPLE = { content: { parts: [{ text: 'Hello' }], role: 'model' } }
const COMMON_EXAMPLE_FIELDS = { modelVersion: 'sim/echo', responseId: EXAMPLE_ID, provider: 'Simulated' }
const ANSWER_EXAMPLE = {
  candidates: [{ ...CANDIDATE_EXAMPLE, finishReason: 'STOP', index: 0 }],
  ...COMMON_EXAMPLE_FIELDS,
  usageMetadata: { promptTokenCount: 5, candidatesTokenCount: 3, totalTokenCount: 8, cost: 0.000007 },
}
const CHUNK_EXAMPLE = `data: ${JSON.stringify({ candidates: [{ ...CANDIDATE_EXAMPLE, index: 0 }], ...COMMON_EXAMPLE_FIELDS })}\n\n`
const MODEL_EXAMPLE = {
  name: 'models/acme/fast-1',
  baseModelId: 'acme/fast-1',
  version: '001',
  displayName: 'Fast 1',
  description: '',
  inputTokenLimit: 128000,
  outputTokenLimit: 8192,
  supportedGenerationMethods: ['generateContent', 'streamGenerateContent', 'countTokens'],
  thinking: false,
}

const BODY_DESCRIPTION = {
  schema: Body,
  examples: {
    text: { contents: EXAMPLE_CONTENTS },
    function: {
      contents: EXAMPLE_CONTENTS,
      tools: [
        {
          functionDeclarations: [
            { name: 'greet', parameters: { type: 'OBJECT', properties: { name: { type: 'STRING' } } } },
          ],
        },
      ],
      generationConfig: { maxOutputTokens: 100, thinkingConfig: { includeThoughts: true } },
    },
  },
}
const ADDRESS_NOTES =
  'The model id keeps its slash, models/ may be left out, and /v1, /v1alpha and /api/v1 work as well as /v1beta. ' +
  'The key is sent in X-Goog-Api-Key or as a bearer token, never in the query.'
const Values = Type.Object({ values: Type.Array(Type.Number()) })
const embeddedFacts = {
  usageMetadata: nullable(Type.Object({ promptTokenCount: count }, openObject)),
  modelVersion: text,
  responseId: text,
  provider: text,
  gateway_metadata: Type.Optional(GatewayMetadata),
}
const EMBEDDING_EXAMPLE_FIELDS = {
  usageMetadata: { promptTokenCount: 2 },
  ...COMMON_EXAMPLE_FIELDS,
  modelVersion: 'sim/embed',
}
const EMBEDDING_REQUEST_EXAMPLE = { content: { parts: [{ text: 'Hello' }] } }

const inference = tagged('Inference', {
  generateContent: {
    text: ADDRESS_NOTES,
    parameters: [...COMMON_HEADERS, IDEMPOTENCY_HEADER, CACHE_HEADER],
    body: BODY_DESCRIPTION,
    answers: {
      200: answer(GeminiAnswer, 'The answer, or the reason why the prompt was blocked.', ANSWER_EXAMPLE),
    },
  },
  streamGenerateContent: {
    text: `${ADDRESS_NOTES} A failure in the middle of the stream is {"error":…} without data:, in its own write.`,
    parameters: [
      query('alt', oneOf('sse', 'json'), 'sse: frames of server-sent events; otherwise one JSON array.'),
      ...COMMON_HEADERS,
      IDEMPOTENCY_HEADER,
      CACHE_HEADER,
    ],
    body: BODY_DESCRIPTION,
    answers: {
      200: {
        ...answer(Type.Array(GeminiAnswer), 'The chunks of the answer.', [ANSWER_EXAMPLE]),
        stream: { schema: GeminiAnswer, example: CHUNK_EXAMPLE },
      },
    },
  },
  countTokens: {
    text: `${ADDRESS_NOTES} Contents, or a whole request in generateContentRequest.`,
    body: {
      schema: Type.Union([Body, Type.Object({ generateContentRequest: Body })]),
      examples: { text: { contents: EXAMPLE_CONTENTS } },
    },
    answers: {
      200: answer(
        Type.Object({
          totalTokens: count,
          promptTokensDetails: Type.Array(Type.Object({ modality: text, tokenCount: count })),
          estimated: Type.Optional(Type.Literal(true)),
        }),
        'The number of tokens; estimated from the length of the texts if the provider cannot count.',
        { totalTokens: 2, promptTokensDetails: [{ modality: 'TEXT', tokenCount: 2 }], estimated: true },
      ),
    },
  },
  embedContent: {
    text: ADDRESS_NOTES,
    parameters: [METADATA_HEADER, IDEMPOTENCY_HEADER],
    body: { schema: Embedded, examples: { text: EMBEDDING_REQUEST_EXAMPLE } },
    answers: {
      200: answer(Type.Object({ embedding: Values, ...embeddedFacts }), 'The vector.', {
        embedding: { values: [0.28, -0.96] },
        ...EMBEDDING_EXAMPLE_FIELDS,
      }),
    },
  },
  batchEmbedContents: {
    text: `${ADDRESS_NOTES} All requests have the same task and number of dimensions.`,
    parameters: [METADATA_HEADER, IDEMPOTENCY_HEADER],
    body: {
      schema: Type.Object({ requests: Type.Array(Embedded, { minItems: 1 }) }),
      examples: { texts: { requests: [EMBEDDING_REQUEST_EXAMPLE] } },
    },
    answers: {
      200: answer(
        Type.Object({ embeddings: Type.Array(Values), ...embeddedFacts }),
        'A vector for each request, in the order of the requests.',
        { embeddings: [{ values: [0.28, -0.96] }], ...EMBEDDING_EXAMPLE_FIELDS },
      ),
    },
  },
})

const models = tagged('Models', {
  listGoogleModels: {
    text: 'GET /v1/models also answers in this shape if the client sends X-Goog-Api-Key or X-Goog-Api-Client.',
    parameters: [
      query(
        'pageSize',
        Type.Integer({ minimum: 0, default: 50 }),
        `Maximum number of models; at most ${MODELS_PAGE_MAX}.`,
      ),
      query('pageToken', text, 'The nextPageToken of the previous page.'),
    ],
    answers: {
      200: answer(
        Type.Object({ models: Type.Array(ModelAnswer), nextPageToken: Type.Optional(text) }),
        'A page of models.',
        { models: [MODEL_EXAMPLE] },
      ),
    },
  },
  getGoogleModel: { answers: { 200: answer(ModelAnswer, 'The model.', MODEL_EXAMPLE) } },
})

export const GOOGLE: Descriptions = { ...inference, ...models }
