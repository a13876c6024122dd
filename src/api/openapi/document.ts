/**
 * Builds the OpenAPI document from the table of operations and their descriptions. Pure. It names no host, and only the
 * maximum body sizes come from the configuration.
 */
import { type TSchema, Type } from '@sinclair/typebox'
import type { KeyRole } from '../../protocol/management/keys.ts'
import type { Operation } from '../operation.ts'
import { ACCOUNT } from './account.ts'
import { BATCHES } from './batches.ts'
import { CATALOGUE } from './catalogue.ts'
import { NAMED_SCHEMAS } from './components.ts'
import {
  type AnswerDescription,
  type ContentDescription,
  type Descriptions,
  type OperationDescription,
  PATH_PARAMETERS,
  TAGS,
  tagged,
  text,
} from './description.ts'
import { END_USERS } from './end-users.ts'
import { ENVELOPES, errorTypesOf, familyOf, statusesOf } from './failures.ts'
import { FILES } from './files.ts'
import { GENERATIONS } from './generations.ts'
import { GOOGLE } from './google.ts'
import { INFERENCE } from './inference.ts'
import { createSchemaWriter, type JsonSchema, type SchemaWriter } from './json-schema.ts'
import { KEYS } from './keys.ts'
import { MESSAGE_BATCHES } from './message-batches.ts'
import { RULES } from './rules.ts'

/** The part of a row that the document uses. */
export type DescribedRow = Pick<
  Operation,
  | 'id'
  | 'summary'
  | 'method'
  | 'path'
  | 'bases'
  | 'key'
  | 'accept'
  | 'dialect'
  | 'generates'
  | 'bodyLimitBytes'
> & { readonly role?: KeyRole }

const INTERFACE = tagged('Interface', {
  getInterface: {
    text: 'OpenAPI 3.1; needs no key. It changes only with the version of the gateway.',
    answers: {
      200: {
        text: 'The description of all operations.',
        content: {
          schema: Type.Object(
            {
              openapi: text,
              info: Type.Object({ title: text, version: text }, { additionalProperties: true }),
            },
            { additionalProperties: true },
          ),
          examples: { head: { openapi: '3.1.0', info: { title: 'Sluice', version: '1.0.0' } } },
        },
      },
      304: { text: 'The client already has the document.', content: null },
    },
  },
  findRoot: {
    text: 'Some clients call this when they start, without a key, and also at the root path. It is not logged.',
    answers: { 200: { text: 'The gateway can be reached.', content: null } },
  },
  sayHello: {
    text: 'Some clients call this when they start, without a key, and also at the root path. It is not logged.',
    answers: {
      200: {
        text: 'The gateway can be reached.',
        content: { schema: Type.Object({ status: text }), examples: { ok: { status: 'ok' } } },
      },
    },
  },
})

export const DESCRIPTIONS: Descriptions = {
  ...INFERENCE,
  ...GOOGLE,
  ...BATCHES,
  ...MESSAGE_BATCHES,
  ...FILES,
  ...CATALOGUE,
  ...GENERATIONS,
  ...KEYS,
  ...ACCOUNT,
  ...END_USERS,
  ...RULES,
  ...INTERFACE,
}

/** The description of an operation that has none yet. A test reports each of them. */
const DEFAULT_DESCRIPTION: OperationDescription = {
  tag: 'Interface',
  answers: { 200: { text: 'The answer.', content: null } },
}

const INFO = {
  title: 'Sluice',
  version: '1.0.0',
  summary: 'One interface in front of many AI model providers.',
  description:
    'Paths are below /v1 and, with the same meaning, below /api/v1, unless an operation names other servers. Keys go in ' +
    'the header Authorization as a bearer token, or in X-Api-Key or X-Goog-Api-Key. HEAD works where GET does. In ' +
    'requests null means absent, but in a PATCH it clears the field. Unknown query parameters are ignored. Answers may ' +
    'get new fields.',
  license: { name: 'Apache License 2.0', identifier: 'Apache-2.0' },
}

const SECURITY = {
  apiKey: { type: 'http', scheme: 'bearer', description: 'An API key (sk-gw-v1-…): for inference.' },
  managementKey: {
    type: 'http',
    scheme: 'bearer',
    description: 'A management key (sk-gw-mgmt-…): for everything about the organization.',
  },
  keyHeader: { type: 'apiKey', in: 'header', name: 'X-Api-Key', description: 'A key of either kind.' },
}

const SECURITY_BY_KEY = {
  none: [],
  inference: [{ apiKey: [] }, { keyHeader: [] }],
  management: [{ managementKey: [] }, { keyHeader: [] }],
  any: [{ apiKey: [] }, { managementKey: [] }, { keyHeader: [] }],
} satisfies Record<Operation['key'], object[]>

/** Every management key has a role that allows reading. */
const ROLE_NOTES: Readonly<Record<KeyRole, string | undefined>> = {
  viewer: undefined,
  operator: 'Needs the role operator or admin.',
  admin: 'Needs the role admin.',
}

const RESPONSE_HEADERS = {
  'X-Request-Id': {
    description: 'The id of the request, for logs and support: your own if you sent this header.',
    schema: { type: 'string' },
  },
  'X-Generation-Id': { description: 'The generation id; GET /generation?id= has its record.' },
  'Retry-After': { description: 'Seconds to wait before the next try, where they are known.' },
  ETag: { description: 'Changes with the document: send it as If-None-Match.' },
}
const REQUEST_ID = { 'X-Request-Id': { $ref: '#/components/headers/X-Request-Id' } }
const GENERATION_ID = { 'X-Generation-Id': { $ref: '#/components/headers/X-Generation-Id' } }
const RETRY_AFTER = { 'Retry-After': { $ref: '#/components/headers/Retry-After' } }
const ETAG = { ETag: { $ref: '#/components/headers/ETag' } }

/** @param descriptions by operationId */
export function createDocument(rows: readonly DescribedRow[], descriptions = DESCRIPTIONS): JsonSchema {
  const writer = createSchemaWriter(NAMED_SCHEMAS)
  const failures = new Map<string, JsonSchema>()
  const paths: Record<string, Record<string, JsonSchema>> = {}
  for (const row of rows) {
    const description = descriptions[row.id] ?? DEFAULT_DESCRIPTION
    const path = paths[row.path] ?? {}
    path[row.method.toLowerCase()] = operation(row, description, writer, failures)
    paths[row.path] = path
  }
  const usedTags = new Set(rows.map(({ id }) => (descriptions[id] ?? DEFAULT_DESCRIPTION).tag))
  return {
    openapi: '3.1.0',
    info: INFO,
    servers: [{ url: '/v1' }, { url: '/api/v1', description: 'The same, for clients that prepend this.' }],
    tags: Object.entries(TAGS).flatMap(([name, about]) =>
      usedTags.has(name as keyof typeof TAGS) ? [{ name, description: about }] : [],
    ),
    paths,
    components: {
      schemas: writer.components(),
      responses: Object.fromEntries([...failures].sort(([a], [b]) => (a < b ? -1 : 1))),
      headers: Object.fromEntries(
        Object.entries(RESPONSE_HEADERS).map(([name, about]) => [
          name,
          { schema: { type: 'string' }, ...about },
        ]),
      ),
      securitySchemes: SECURITY,
    },
  }
}

function operation(
  row: DescribedRow,
  description: OperationDescription,
  writer: SchemaWriter,
  failures: Map<string, JsonSchema>,
): JsonSchema {
  const { id, summary, accept, bodyLimitBytes } = row
  const { tag, body, parameters = [], answers } = description
  const notes = [description.text, ROLE_NOTES[row.role ?? 'viewer']]
    .filter(note => note !== undefined)
    .join(' ')
  const inPath = [...row.path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => pathParameter(name, writer))
  const allParameters = [...inPath, ...parameters.map(described => parameter(described, writer))]
  const responses: Record<string, JsonSchema> = {}
  for (const [status, description] of Object.entries(answers))
    responses[status] = response(description, row, answers, writer)
  for (const status of statusesOf(row, description.failures)) {
    responses[status] = failure(status, row, writer, failures)
  }
  return {
    operationId: id,
    summary,
    ...(notes === '' ? {} : { description: notes }),
    tags: [tag],
    ...(row.bases === undefined
      ? {}
      : { servers: row.bases.flatMap(base => (base === '' ? [] : [{ url: base }])) }),
    security: SECURITY_BY_KEY[row.key],
    ...(allParameters.length === 0 ? {} : { parameters: allParameters }),
    ...(body === undefined || accept === 'none'
      ? {}
      : {
          requestBody: {
            description: `At most ${bodyLimitBytes} bytes.`,
            required: true,
            content: content(body, writer),
          },
        }),
    responses,
  }
}

function pathParameter(name: string, writer: SchemaWriter): JsonSchema {
  const { schema, text: about } = PATH_PARAMETERS[name] ?? { schema: text, text: `The ${name}.` }
  return { name, in: 'path', required: true, description: about, schema: writer.write(schema) }
}

function parameter(
  description: NonNullable<OperationDescription['parameters']>[number],
  writer: SchemaWriter,
): JsonSchema {
  return {
    name: description.name,
    in: description.in,
    description: description.text,
    ...(description.required === true ? { required: true } : {}),
    schema: writer.write(description.schema),
  }
}

function response(
  { text: about, content: body, stream }: AnswerDescription,
  { dialect, generates }: DescribedRow,
  answers: OperationDescription['answers'],
  writer: SchemaWriter,
): JsonSchema {
  const headers = {
    ...REQUEST_ID,
    ...(dialect !== null && generates !== false ? GENERATION_ID : {}),
    ...(answers[304] === undefined ? {} : ETAG),
  }
  if (body === null && stream === undefined) return { description: about, headers }
  const document = body === null ? {} : content(body, writer)
  const events = stream === undefined ? {} : { 'text/event-stream': eventStream(stream, writer) }
  return { description: about, headers, content: { ...document, ...events } }
}

/** A stream is text. Its content schema describes the data of one frame. */
function eventStream(stream: NonNullable<AnswerDescription['stream']>, writer: SchemaWriter): JsonSchema {
  return {
    schema: {
      type: 'string',
      description:
        'Frames of server-sent events; the data of each is JSON. Lines that begin with a colon are heartbeats.',
      contentMediaType: 'text/event-stream',
      contentSchema: writer.write(stream.schema),
    },
    examples: { frame: { value: stream.example } },
  }
}

function content({ schema, examples, media }: ContentDescription, writer: SchemaWriter): JsonSchema {
  const namedExamples = Object.entries(examples ?? {}).map(([name, value]) => [name, { value }] as const)
  return {
    [media ?? 'application/json']: {
      schema: writer.write(schema),
      ...(namedExamples.length === 0 ? {} : { examples: Object.fromEntries(namedExamples) }),
    },
  }
}

function failure(
  status: number,
  row: DescribedRow,
  writer: SchemaWriter,
  failures: Map<string, JsonSchema>,
): JsonSchema {
  const family = familyOf(row)
  const name = `${family}${status}`
  if (!failures.has(name)) {
    const schema: TSchema = ENVELOPES[family]
    const waits = status === 429 || status === 503 ? RETRY_AFTER : {}
    failures.set(name, {
      description: `Error of type ${errorTypesOf(status).join(' or ')}.`,
      headers: { ...REQUEST_ID, ...waits },
      content: { 'application/json': { schema: writer.write(schema) } },
    })
  }
  return { $ref: `#/components/responses/${name}` }
}
