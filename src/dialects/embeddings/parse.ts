/**
 * Translates a POST /embeddings body to a request. Pure. Errors name fields of this body and never repeat what was
 * sent.
 */
import { GatewayError } from '../../base/errors.ts'
import type { EmbeddingsRequest, EmbeddingsSettings } from '../../protocol/embeddings.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { type Offering, refusal } from '../../protocol/json/request-parser.ts'
import { ResponsesRequest } from '../../protocol/request.ts'
import { spellingCheck } from '../field-names.ts'
import { EmbeddingsBody } from './body-schema.ts'
import { readInput } from './input.ts'

/** A parsed body. */
export interface ParsedEmbeddings {
  readonly request: EmbeddingsRequest
  readonly settings: EmbeddingsSettings
}

/** Fields of the body that a request has under the same name. */
const SHARED_FIELDS: ReadonlySet<string> = new Set([
  'model',
  'provider',
  'user',
  'session_id',
  'safety_identifier',
  'trace',
])
/** All known fields: also settings, and fields that only apply to models that write. */
const KNOWN_FIELDS: ReadonlySet<string> = new Set([
  ...Object.keys(ResponsesRequest.properties),
  ...Object.keys(EmbeddingsBody.properties),
])

/** Fields of other operations, with advice. Passing them on as unknown fields would lose them silently. */
const FOREIGN_FIELDS: readonly (readonly [name: string, problem: string])[] = [
  ['models', 'must be left out: vectors of different models cannot be compared; name one model in model'],
  ['messages', 'is not a field of embeddings: use input'],
  ['texts', 'is not a field of embeddings: use input'],
  ['plugins', 'is not a field of embeddings: plugins work on text that a model writes'],
  ['tools', 'is not a field of embeddings'],
  ['preset', 'a stored preset is not offered by this gateway yet'],
  ['output_dimension', 'is not a field of embeddings: use dimensions'],
  ['task_type', 'is not a field of embeddings: use input_type'],
  ['embedding_types', 'is not a field of embeddings: use encoding_format'],
]
/** Other values would change the type of the numbers in a vector. */
const FLOAT_TYPES: ReadonlySet<unknown> = new Set([undefined, null, 'float'])

/** No plugin works on embeddings, so `:online` means nothing there. */
const NO_PLUGINS: ReadonlySet<string> = new Set()

const checkBody = bodyCheck(EmbeddingsBody)
const checkSpelling = spellingCheck(EmbeddingsBody, {
  moreNames: [...KNOWN_FIELDS, ...FOREIGN_FIELDS.map(([name]) => name)],
})

/** Creates the parser of embeddings bodies. It throws GatewayError `invalid_request` that names a field of the body. */
export function createEmbeddingsParser(offering: Offering): (value: unknown) => ParsedEmbeddings {
  return value => parseEmbeddings(value, offering)
}

function parseEmbeddings(value: unknown, offering: Offering): ParsedEmbeddings {
  checkSpelling(value)
  const body = checkBody(value)
  refuseUnsupported(body)
  const { items, isList } = readInput(body.input)
  const fields: Record<string, unknown> = {}
  for (const [name, field] of Object.entries(body)) {
    if (field !== null && field !== undefined && (SHARED_FIELDS.has(name) || !KNOWN_FIELDS.has(name)))
      fields[name] = field
  }
  fields['input'] = items
  const request = fields as unknown as EmbeddingsRequest
  const problem = refusal(request, { ...offering, plugins: NO_PLUGINS })
  if (problem !== null) throw new GatewayError('invalid_request', problem)
  return {
    request,
    settings: {
      dimensions: body.dimensions ?? null,
      encoding: body.encoding_format ?? 'float',
      inputType: body.input_type ?? null,
      isList,
    },
  }
}

function refuseUnsupported(body: EmbeddingsBody): void {
  const fields = body as unknown as Readonly<Record<string, unknown>>
  for (const [name, problem] of FOREIGN_FIELDS) {
    if (fields[name] != null) throw new GatewayError('invalid_request', `${name}: ${problem}`)
  }
  if (body.stream === true) {
    throw new GatewayError('invalid_request', 'stream: must be false: vectors are returned in one document')
  }
  if (!FLOAT_TYPES.has(fields['output_dtype'])) {
    throw new GatewayError(
      'invalid_request',
      'output_dtype: must be float: vectors of other types are not offered',
    )
  }
}
