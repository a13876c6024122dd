/**
 * Operations for Google's clients, which put the model and the method into the URL path. All of them answer in the
 * `gemini` dialect, errors included.
 */

import { GatewayError } from '../base/errors.ts'
import { createGeminiEmbeddings } from '../dialects/gemini/embeddings.ts'
import { geminiFailure } from '../dialects/gemini/failure.ts'
import { createGemini } from '../dialects/gemini.ts'
import type { Offering } from '../protocol/json/request-parser.ts'
import { isObject } from '../protocol/json/schema.ts'
import { INFERENCE_BODY_MAX_BYTES } from '../protocol/limits.ts'
import { countTokens, ESTIMATE_FIELD } from './count-tokens.ts'
import { createEmbeddingsHandler } from './embeddings.ts'
import { createInference } from './inference.ts'
import type { InferenceParts } from './inference-parts.ts'
import type { ListingDeps } from './models/models.ts'
import type { ApiRequest, Handler, Operation } from './operation.ts'

interface GoogleDeps extends InferenceParts, ListingDeps {
  readonly offered: Offering
}

export function googleRows(deps: GoogleDeps): Operation[] {
  const { offered } = deps
  const gemini = createGemini(offered)
  const post = (verb: string, summary: string, handler: Handler): Operation => ({
    id: verb,
    summary,
    method: 'POST',
    path: `/v1beta/models/{model}:${verb}`,
    bases: [''],
    freeParam: 'model',
    verb,
    key: 'inference',
    accept: 'json',
    bodyLimitBytes: INFERENCE_BODY_MAX_BYTES,
    dialect: gemini,
    handler,
  })
  const countHandler = countTokens(gemini, deps, { bodyOf: countedBody, answer: countedTokens })
  return [
    post('generateContent', 'Generate content', createInference(gemini, deps, documentBody)),
    post('streamGenerateContent', 'Generate content as a stream', createInference(gemini, deps, streamBody)),
    {
      ...post('countTokens', 'Count the input tokens of contents', countHandler),
      generates: false,
    },
    post('embedContent', 'Create one embedding', embedding(deps, false)),
    post('batchEmbedContents', 'Create embeddings', embedding(deps, true)),
    readRow('GET /v1beta/models', 'listGoogleModels', 'List models, for Google clients', listModels(deps)),
    {
      ...readRow(
        'GET /v1beta/models/{model}',
        'getGoogleModel',
        'Get a model, for Google clients',
        findModel(deps),
      ),
      freeParam: 'model',
      takesRest: true,
    },
  ]

  function readRow(address: string, id: string, summary: string, handler: Handler): Operation {
    return {
      id,
      summary,
      method: 'GET',
      path: address.slice('GET '.length),
      bases: [''],
      key: 'any',
      accept: 'none',
      bodyLimitBytes: 0,
      dialect: gemini,
      generates: false,
      handler,
    }
  }
}

/** The model in the path, which may begin with `models/` twice. */
function modelOf({ params }: ApiRequest): string {
  const model = params.get('model') ?? `${params.get('author')}/${params.get('slug')}`
  return model.replace(/^models\//, '')
}

/** A body that is not an object is left to the body check. */
function documentBody(request: ApiRequest): unknown {
  const { body } = request
  return isObject(body) ? { ...body, model: modelOf(request), stream: false } : body
}

function streamBody(request: ApiRequest): unknown {
  const { body } = request
  const alt = request.query.get('alt') ?? 'json'
  return isObject(body) ? { ...body, model: modelOf(request), stream: true, alt } : body
}

/** Contents alone, or a whole request in a field. */
function countedBody(request: ApiRequest): unknown {
  const { body } = request
  if (!isObject(body)) return body
  const inner = body['generateContentRequest'] ?? body['generate_content_request']
  return { ...(isObject(inner) ? inner : body), model: modelOf(request), stream: false }
}

function countedTokens(tokens: number, isEstimated: boolean): object {
  return {
    totalTokens: tokens,
    promptTokensDetails: [{ modality: 'TEXT', tokenCount: tokens }],
    ...(isEstimated ? ESTIMATE_FIELD : {}),
  }
}

function embedding(deps: GoogleDeps, isBatch: boolean): Handler {
  const dialect = createGeminiEmbeddings(deps.offered, isBatch)
  return createEmbeddingsHandler(dialect, deps, request => {
    const { body } = request
    return isObject(body) ? { ...body, model: modelOf(request) } : body
  })
}

/**
 * True for Google's clients, which also request models below /v1; they get the same answer as below /v1beta. They are
 * recognized by the name of their library and the header of their key.
 */
function isGoogleClient(headers: ReadonlyMap<string, string>): boolean {
  return headers.has('x-goog-api-key') || headers.has('x-goog-api-client')
}

/** The handler for all clients except Google's. */
export function exceptGoogle(handler: Handler, google: Handler): Handler {
  return (request, reply) =>
    isGoogleClient(request.headers) ? google(request, reply) : handler(request, reply)
}

/** For a path at which Google's own API has a list of another form. @throws GatewayError always */
export const refuseGoogle: Handler = () => {
  throw new GatewayError(
    'not_found',
    'No such operation: /v1beta has only models and their methods, such as models/NAME:generateContent',
  )
}

export function listModels({ listing, dataRegionOf }: ListingDeps): Handler {
  return ({ query, host }, reply) => reply.json(200, listing.inGoogleShape(query, dataRegionOf(host)))
}

export function findModel({ listing }: Pick<ListingDeps, 'listing'>): Handler {
  return (request, reply) => {
    const model = listing.googleModel(modelOf(request))
    if (model !== null) {
      reply.json(200, model)
      return
    }
    const error = new GatewayError('unknown_model', UNKNOWN_MODEL_MESSAGE)
    reply.error = error
    reply.json(
      error.status,
      geminiFailure(error, { id: request.context.id, metadata: null, usage: null, request: null }),
    )
  }
}

const UNKNOWN_MODEL_MESSAGE = 'model: is not a valid model ID: GET /v1beta/models lists all ids'
