/**
 * Descriptions of operations, beyond their rows: tag, parameters, body, answers, examples. Pure.
 * A new operation adds its description to the file of its resource; test/api/openapi.test.ts lists the operations that
 * lack one.
 */
import { type TSchema, Type } from '@sinclair/typebox'
import type { FailureCode } from '../../base/errors.ts'
import { count, nullableText, oneOf } from '../../protocol/json/schema.ts'
import {
  IDEMPOTENCY_KEY_PATTERN,
  IDENTIFIER_MAX_CHARS,
  PAGE_DEFAULT,
  PAGE_MAX,
} from '../../protocol/limits.ts'
import { CACHE_SECONDS_MAX } from '../../protocol/management/response-cache.ts'
import { AlignmentReport, GatewayMetadata } from '../../protocol/response.ts'

export const text = Type.String()

/** Gives several fields the same value: a schema, or an example. */
export function repeat<Value, Name extends string>(value: Value, ...names: readonly Name[]) {
  return Object.fromEntries(names.map(name => [name, value])) as Record<Name, Value>
}

/** Fields that only some answers have. */
export const reportFields = {
  alignment: Type.Optional(AlignmentReport),
  gateway_metadata: Type.Optional(GatewayMetadata),
}

/** Tags in the order of the document. */
export const TAGS = {
  Inference: 'Ask a model: one JSON document, or a stream of events.',
  Batches: 'Many requests that run within a day.',
  Models: 'The catalogue: models, their endpoints, providers.',
  Generations: 'Records of requests.',
  Keys: 'API keys.',
  Workspaces: 'Workspaces of the organization.',
  Account: 'Credits, usage by day, audit.',
  'End users': "Tracking strings of the caller's own users.",
  'Provider credentials': "The organization's own keys for providers.",
  Guardrails: 'Rules for requests and replies, and whom they apply to.',
  Captures: 'Requests of one key or workspace, kept for a day to find a fault.',
  Rollouts: 'Candidates that get a growing share of a route.',
  Pauses: 'Providers out of service for a time.',
  Files: 'Files that requests and tools use.',
  Interface: 'This description.',
} as const
type TagName = keyof typeof TAGS

export interface ParameterDescription {
  readonly name: string
  readonly in: 'query' | 'header'
  readonly schema: TSchema
  readonly text: string
  readonly required?: true
}

/** The content of a body or an answer. */
export interface ContentDescription {
  readonly schema: TSchema
  /** Examples by a short name; each matches the schema. */
  readonly examples?: Readonly<Record<string, unknown>>
  /** Default: JSON. */
  readonly media?: string
}

export interface AnswerDescription {
  readonly text: string
  /** Null: an answer without a body, or one that is always a stream. */
  readonly content: ContentDescription | null
  /** Events of the answer if the client requests a stream. */
  readonly stream?: { readonly schema: TSchema; readonly example: string }
}

export interface OperationDescription {
  readonly tag: TagName
  readonly text?: string
  readonly parameters?: readonly ParameterDescription[]
  readonly body?: ContentDescription
  /** Keyed by status. */
  readonly answers: Readonly<Record<number, AnswerDescription>>
  /** Failures specific to the operation; document.ts adds those that follow from its row. */
  readonly failures?: readonly FailureCode[]
}

/** Descriptions by operationId. */
export type Descriptions = Readonly<Record<string, OperationDescription>>

export type UntaggedDescription = Omit<OperationDescription, 'tag'>

export function tagged(
  tag: TagName,
  operations: Readonly<Record<string, UntaggedDescription>>,
): Descriptions {
  return Object.fromEntries(
    Object.entries(operations).map(([id, description]) => [id, { tag, ...description }]),
  )
}

/** Path parameters by name. */
export const PATH_PARAMETERS: Readonly<Record<string, { readonly schema: TSchema; readonly text: string }>> =
  {
    id: { schema: Type.String({ minLength: 1 }), text: 'The id of the record.' },
    hash: {
      schema: Type.String({ pattern: '^[0-9a-f]{64}$' }),
      text: 'The hash of the API key: SHA-256 in lowercase hexadecimal.',
    },
    ref: {
      schema: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
      text: 'The id or the slug of the workspace.',
    },
    user: {
      schema: Type.String({ minLength: 1, maxLength: IDENTIFIER_MAX_CHARS }),
      text: 'The tracking string, percent-encoded.',
    },
    provider: {
      schema: Type.String({ minLength: 1 }),
      text: 'The slug of the provider, percent-encoded: google-vertex%2Fus.',
    },
    route: {
      schema: Type.String({ minLength: 1 }),
      text: 'The name of the route, percent-encoded: prod%2Fchat.',
    },
    author: { schema: Type.String({ minLength: 1 }), text: 'The part of the model id before the slash.' },
    slug: { schema: Type.String({ minLength: 1 }), text: 'The part of the model id after the slash.' },
    model: {
      schema: Type.String({ minLength: 1 }),
      text: 'The whole model id, percent-encoded: acme%2Ffast-1.',
    },
  }

export function query(name: string, schema: TSchema, text: string, required?: true): ParameterDescription {
  return { name, in: 'query', schema, text, ...(required === undefined ? {} : { required }) }
}

export function header(name: string, schema: TSchema, text: string): ParameterDescription {
  return { name, in: 'header', schema, text }
}

/** Paging parameters of record listings. */
export const PAGE_PARAMETERS: readonly ParameterDescription[] = [
  query('offset', Type.Integer({ minimum: 0, default: 0 }), 'Number of elements to skip at the beginning.'),
  query(
    'limit',
    Type.Integer({ minimum: 1, maximum: PAGE_MAX, default: PAGE_DEFAULT }),
    'Maximum number of elements.',
  ),
]

export const KEY_HASH_FILTER = query(
  'api_key_hash',
  Type.String({ pattern: '^[0-9a-f]{64}$' }),
  'Only requests of the API key with this hash.',
)

export const flag = Type.Unsafe<boolean>({ type: 'boolean', default: false })

/** `X-Gateway-Metadata`. */
export const METADATA_HEADER = header(
  'X-Gateway-Metadata',
  oneOf('disabled', 'enabled'),
  'enabled: the answer has gateway_metadata, which says how the request was routed.',
)

/** `X-Gateway-Proof`. */
export const PROOF_HEADER = header(
  'X-Gateway-Proof',
  Type.Unsafe<boolean>({ type: 'boolean', default: false }),
  'true: gateway_metadata has a signed proof of where the data went. Needs X-Gateway-Metadata.',
)

export const SESSION_HEADER = header(
  'X-Session-Id',
  Type.String({ maxLength: IDENTIFIER_MAX_CHARS }),
  'session_id for a body without one.',
)

/** `X-Gateway-Resumable`. */
export const RESUMABLE_HEADER = header(
  'X-Gateway-Resumable',
  oneOf('false', 'true'),
  'true, with stream: the stream continues without its client, and GET /responses/{id} reads it again.',
)

/** `Idempotency-Key`. */
export const IDEMPOTENCY_HEADER = header(
  'Idempotency-Key',
  Type.String({ pattern: IDEMPOTENCY_KEY_PATTERN }),
  'Requests with the same value and the same body get the answer of the first one, for one bill.',
)

/** `X-Gateway-Cache`. */
export const CACHE_HEADER = header(
  'X-Gateway-Cache',
  text,
  `seconds=N (1 to ${CACHE_SECONDS_MAX}), refresh, both with a comma, or off: whether equal requests get one answer.`,
)

export function answer(schema: TSchema, text: string, example?: unknown): AnswerDescription {
  return {
    text,
    content: { schema, ...(example === undefined ? {} : { examples: { answer: example } }) },
  }
}

/** `{"data": …}`. */
export function oneRecord(schema: TSchema, text: string, example: unknown): AnswerDescription {
  return answer(Type.Object({ data: schema }), text, { data: example })
}

/** A page of records with the total number. */
export function listOf(schema: TSchema, example: unknown): AnswerDescription {
  return answer(
    Type.Object({ data: Type.Array(schema), total_count: count }),
    'A page of records, and how many there are.',
    { data: [example], total_count: 1 },
  )
}

/** A page of records that follows an id. */
export function listById(schema: TSchema, text: string, example: { readonly id: string }): AnswerDescription {
  return answer(
    Type.Object({
      object: Type.Literal('list'),
      data: Type.Array(schema),
      ...repeat(nullableText, 'first_id', 'last_id'),
      has_more: Type.Boolean(),
    }),
    text,
    { object: 'list', data: [example], ...repeat(example.id, 'first_id', 'last_id'), has_more: false },
  )
}

export const DELETED_ANSWER = answer(Type.Object({ deleted: Type.Literal(true) }), 'It was deleted.', {
  deleted: true,
})
