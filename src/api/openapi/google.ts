/** The OpenAPI description of the operations for Google's clients. Pure. */

import { Type } from '@sinclair/typebox'
import { GeminiBody, GeminiContent } from '../../dialects/gemini/body-schema.ts'
import { count, nullable, oneOf, orNoText } from '../../protocol/json/schema.ts'
import { GatewayMetadata, ResponseUsage } from '../../protocol/response.ts'
import {
  alike,
  answer,
  CACHE_HEADER,
  type Descriptions,
  IDEMPOTENCY_HEADER,
  METADATA_HEADER,
  PROOF_HEADER,
  query,
  SESSION_HEADER,
  tagged,
  text,
} from './description.ts'

const open = { additionalProperties: true }
const HEADERS = [METADATA_HEADER, PROOF_HEADER, SESSION_HEADER]
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
    content: Type.Object({ parts: Type.Array(Type.Object({}, open)), role: Type.Literal('model') }),
    finishReason: Type.Optional(text),
    finishMessage: Type.Optional(text),
    groundingMetadata: Type.Optional(Type.Object({}, open)),
    logprobsResult: Type.Optional(Type.Object({}, open)),
    index: count,
  },
  open,
)

/** A whole answer, and one chunk of a stream. */
const GeminiAnswer = Type.Object(
  {
    candidates: Type.Optional(Type.Array(Candidate)),
    promptFeedback: Type.Optional(Type.Object({ blockReason: text, blockReasonMessage: text })),
    usageMetadata: Type.Optional(Usage),
    modelVersion: Type.Optional(text),
    responseId: Type.Optional(text),
    provider: Type.Optional(orNoText),
    gateway_metadata: Type.Optional(GatewayMetadata),
  },
  open,
)

const ModelAnswer = Type.Object({
  ...alike(text, 'name', 'baseModelId', 'version', 'displayName', 'description'),
  inputTokenLimit: Type.Optional(count),
  outputTokenLimit: Type.Optional(count),
  supportedGenerationMethods: Type.Array(text),
  thinking: Type.Boolean(),
})

const ID = 'gen-1795373585-OIVPacWO6j6gITKu4v7b'
const HELLO = [{ role: 'user', parts: [{ text: 'Hello' }] }]
const CANDIDATE = { content: { parts: [{ text: 'Hello' }], role: 'model' } }
const HEAD = { modelVersion: 'sim/echo', responseId: ID, provider: 'Simulated' }
const ANSWER = {
  candidates: [{ ...CANDIDATE, finishReason: 'STOP', index: 0 }],
  ...HEAD,
  usageMetadata: { promptTokenCount: 5, candidatesTokenCount: 3, totalTokenCount: 8, cost: 0.000007 },
}
const CHUNK = `data: ${JSON.stringify({ candidates: [{ ...CANDIDATE, index: 0 }], ...HEAD })}\n\n`
const MODEL = {
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

const BODY = {
  schema: Body,
  examples: {
    text: { contents: HELLO },
    function: {
      contents: HELLO,
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
const ADDRESS =
  'The model id keeps its slash, models/ may be left out, and /v1, /v1alpha and /api/v1 work as well as /v1beta. ' +
  'The key is sent in X-Goog-Api-Key or as a bearer token, never in the query.'
const VALUES = Type.Object({ values: Type.Array(Type.Number()) })
const embeddedFacts = {
  usageMetadata: nullable(Type.Object({ promptTokenCount: count }, open)),
  modelVersion: text,
  responseId: text,
  provider: text,
  gateway_metadata: Type.Optional(GatewayMetadata),
}
const EMBEDDED = { usageMetadata: { promptTokenCount: 2 }, ...HEAD, modelVersion: 'sim/embed' }
const ONE = { content: { parts: [{ text: 'Hello' }] } }

const inference = tagged('Inference', {
  generateContent: {
    text: ADDRESS,
    parameters: [...HEADERS, IDEMPOTENCY_HEADER, CACHE_HEADER],
    body: BODY,
    answers: { 200: answer(GeminiAnswer, 'The answer, or the reason why the prompt was blocked.', ANSWER) },
  },
  streamGenerateContent: {
    text: `${ADDRESS} A failure in the middle of the stream is {"error":…} without data:, in its own write.`,
    parameters: [
      query('alt', oneOf('sse', 'json'), 'sse: frames of server-sent events; otherwise one JSON array.'),
      ...HEADERS,
      IDEMPOTENCY_HEADER,
      CACHE_HEADER,
    ],
    body: BODY,
    answers: {
      200: {
        ...answer(Type.Array(GeminiAnswer), 'The chunks of the answer.', [ANSWER]),
        stream: { schema: GeminiAnswer, example: CHUNK },
      },
    },
  },
  countTokens: {
    text: `${ADDRESS} Contents, or a whole request in generateContentRequest.`,
    body: {
      schema: Type.Union([Body, Type.Object({ generateContentRequest: Body })]),
      examples: { text: { contents: HELLO } },
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
    text: ADDRESS,
    parameters: [METADATA_HEADER, IDEMPOTENCY_HEADER],
    body: { schema: Embedded, examples: { text: ONE } },
    answers: {
      200: answer(Type.Object({ embedding: VALUES, ...embeddedFacts }), 'The vector.', {
        embedding: { values: [0.28, -0.96] },
        ...EMBEDDED,
      }),
    },
  },
  batchEmbedContents: {
    text: `${ADDRESS} All requests have the same task and number of dimensions.`,
    parameters: [METADATA_HEADER, IDEMPOTENCY_HEADER],
    body: {
      schema: Type.Object({ requests: Type.Array(Embedded, { minItems: 1 }) }),
      examples: { texts: { requests: [ONE] } },
    },
    answers: {
      200: answer(
        Type.Object({ embeddings: Type.Array(VALUES), ...embeddedFacts }),
        'A vector for each request, in the order of the requests.',
        { embeddings: [{ values: [0.28, -0.96] }], ...EMBEDDED },
      ),
    },
  },
})

const models = tagged('Models', {
  listGoogleModels: {
    text: 'GET /v1/models also answers in this shape if the client sends X-Goog-Api-Key or X-Goog-Api-Client.',
    parameters: [
      query('pageSize', Type.Integer({ minimum: 0, default: 50 }), 'Maximum number of models; at most 1000.'),
      query('pageToken', text, 'The nextPageToken of the previous page.'),
    ],
    answers: {
      200: answer(
        Type.Object({ models: Type.Array(ModelAnswer), nextPageToken: Type.Optional(text) }),
        'A page of models.',
        { models: [MODEL] },
      ),
    },
  },
  getGoogleModel: { answers: { 200: answer(ModelAnswer, 'The model.', MODEL) } },
})

export const GOOGLE: Descriptions = { ...inference, ...models }
