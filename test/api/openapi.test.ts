/** The OpenAPI document: its form, its references, its examples, and that nothing of the table is missing. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Type } from '@sinclair/typebox'
import t from 'tap'
import { createDocument, DESCRIPTIONS } from '../../src/api/openapi/document.ts'
import { createSchemaWriter } from '../../src/api/openapi/json-schema.ts'
import { STREAM_EVENT_TYPES } from '../../src/protocol/events.ts'
import { nullable, oneOf, variants } from '../../src/protocol/json/schema.ts'
import { type ApiDocument, checksOf, contentsOf, documentFaults, operationsIn } from '../support/openapi.ts'
import { allOperations } from '../support/operations.ts'

const rows = await allOperations(t)
const document = createDocument(rows) as unknown as ApiDocument
const operations = operationsIn(document)

t.test('the document has the form of OpenAPI 3.1', async t => {
  t.match(document.openapi, /^3\.1\.\d+$/)
  t.match(document.info, {
    title: 'Sluice',
    version: /^\d+\.\d+\.\d+$/,
    license: { identifier: 'Apache-2.0' },
  })
  t.same(documentFaults(document), [])
})

t.test('the document has every operation of the table, and no other', async t => {
  const listed = operations.map(({ method, path, operation }) => `${method} ${path} ${operation.operationId}`)
  t.same(listed.toSorted(), rows.map(({ method, path, id }) => `${method} ${path} ${id}`).toSorted())
  for (const row of rows) {
    if (DESCRIPTIONS[row.id] !== undefined) continue
    t.fail(
      `${row.method} ${row.path}: describe ${row.id} in src/api/openapi/ (tag, parameters, body, answers with ` +
        'schemas and examples; see OperationDescription in description.ts), and call it in test/contract/openapi.test.ts',
    )
  }
  const ids = new Set(rows.map(({ id }) => id))
  for (const id of Object.keys(DESCRIPTIONS)) t.ok(ids.has(id), `${id} is an operation`)
})

t.test('operations say what their rows say', async t => {
  for (const row of rows) {
    const { operation } = operations.find(each => each.operation.operationId === row.id) ?? {}
    if (operation === undefined) continue
    t.equal(operation.summary, row.summary)
    t.equal(
      operation.requestBody !== undefined,
      row.accept !== 'none' && hasBody(row.id),
      `${row.id}: a body`,
    )
    t.equal(operation.security.length > 0, row.key !== 'none', `${row.id}: a key`)
    const statuses = Object.keys(operation.responses)
    t.ok(
      statuses.some(status => status.startsWith('2')),
      `${row.id}: an answer`,
    )
    t.ok(statuses.includes('400') && statuses.includes('500'), `${row.id}: errors`)
  }
})

/** The body of a cancellation is not read. */
function hasBody(id: string): boolean {
  return !['cancelBatch', 'cancelBatchOfWorkspace', 'cancelMessageBatch'].includes(id)
}

t.test('every example fits its schema, and there are many', async t => {
  let examples = 0
  for (const { label, check, examples: all } of contentsOf(document)) {
    for (const [name, { value }] of Object.entries(all)) {
      examples++
      const faults = check(value)
      if (faults.length > 0) t.fail(`${label}, example ${name}`, { faults })
    }
  }
  t.ok(examples >= 60, `${examples} examples`)
})

t.test('examples of streams are frames whose data fits the schema of their events', async t => {
  let frames = 0
  for (const { label, checkEvent, examples } of contentsOf(document)) {
    if (checkEvent === null) continue
    for (const { value } of Object.values(examples)) {
      frames++
      const data = /^data: (.*)$/m.exec(String(value))?.[1] ?? ''
      t.match(value, /\n\n$/, label)
      t.same(checkEvent(JSON.parse(data)), [], label)
    }
  }
  t.equal(frames, 7)
})

t.test('the document is small, and names no host and no key', async t => {
  const json = JSON.stringify(document)
  t.ok(json.length < 768 * 1024, `${json.length} bytes`)
  t.same(
    document.servers.map(({ url }) => url),
    ['/v1', '/api/v1'],
  )
  t.notMatch(json, /https?:|127\.0\.0\.1:|localhost/)
  t.notMatch(json, /sk-gw-(?:v1|mgmt)-[0-9a-f]{8}/)
  t.equal(JSON.stringify(createDocument(rows)), json, 'it is the same each time')
})

t.test('the events of the document are those of the stream', async t => {
  const { discriminator } = document.components.schemas['ResponseEvent'] as {
    discriminator: { propertyName: string; mapping: Record<string, string> }
  }
  t.equal(discriminator.propertyName, 'type')
  t.same(Object.keys(discriminator.mapping).toSorted(), [...STREAM_EVENT_TYPES])
})

t.test('an operation without a description is in the document all the same', async t => {
  const row = { ...rows[0], id: 'newOne', path: '/new/{thing}', method: 'PUT' } as (typeof rows)[number]
  const grown = createDocument([...rows, row]) as unknown as ApiDocument
  t.same(documentFaults(grown), [])
  t.equal(operationsIn(grown).length, rows.length + 1)
})

t.test('the checks of the document find faults', async t => {
  const broken = structuredClone(document) as ApiDocument & Record<string, unknown>
  const [first, second] = operationsIn(broken)
  if (first === undefined || second === undefined) throw new Error('no operations')
  second.operation.operationId = first.operation.operationId
  first.operation.responses['200'] = { $ref: '#/components/responses/Nowhere' }
  delete (second.operation as { summary?: string }).summary
  broken.paths['/lost/{name}'] = { get: { ...first.operation, operationId: 'lost', tags: ['No such tag'] } }
  const faults = documentFaults(broken).join('\n')
  for (const expected of [
    'used twice',
    'leads nowhere',
    'has no summary',
    'name is not declared',
    'No such tag is no tag',
  ]) {
    t.match(faults, expected)
  }
})

t.test('checks of answers find what is missing, what is wrong, and what is not in the document', async t => {
  const { schema, examples } = operations.find(each => each.operation.operationId === 'createKey')?.operation
    .responses['201']?.content?.['application/json'] ?? { schema: {} }
  const value = examples?.['answer']?.value as { data: Record<string, unknown>; key: string }
  const check = checksOf(document)(schema)
  const strict = checksOf(document, true)(schema)
  t.same(strict(value), [])
  t.not(check({ ...value, key: 5 }).length, 0)
  t.not(check({ data: value.data }).length, 0)
  const grown = { ...value, data: { ...value.data, secret: 'x' } }
  t.same(check(grown), [])
  t.match(strict(grown).join(), 'secret')
})

t.test('schemas are written as JSON Schema alone', async t => {
  const Leaf = Type.Object({ type: Type.Literal('leaf'), size: Type.Optional(nullable(Type.Integer())) })
  const Tree = variants({ leaf: Leaf, 'a:b': Type.Object({ type: Type.Literal('a:b') }) }, { noun: 'tree' })
  const Open = variants({ leaf: Leaf }, { noun: 'tree', open: true })
  const writer = createSchemaWriter([['Tree', Tree]])
  t.same(
    writer.write(
      Type.Object({
        tree: Type.Optional(Tree),
        trees: Type.Array(Tree),
        word: nullable(oneOf('a', 'b')),
        open: Open,
        any: Type.Unknown(),
      }),
    ),
    {
      type: 'object',
      properties: {
        tree: { $ref: '#/components/schemas/Tree' },
        trees: { type: 'array', items: { $ref: '#/components/schemas/Tree' } },
        word: { anyOf: [{ type: 'string', enum: ['a', 'b'] }, { type: 'null' }] },
        open: {
          anyOf: [
            { $ref: '#/components/schemas/TreeLeaf' },
            {
              type: 'object',
              properties: { type: { type: 'string', minLength: 1 } },
              required: ['type'],
              description: 'A kind that is not listed here; it is passed through unchanged.',
            },
          ],
        },
        any: {},
      },
      required: ['trees', 'word', 'open', 'any'],
    },
  )
  t.same(Object.keys(writer.components()), ['Tree', 'TreeAB', 'TreeLeaf'])
  t.same(writer.components()['TreeLeaf'], {
    type: 'object',
    properties: { type: { type: 'string', const: 'leaf' }, size: { type: ['integer', 'null'] } },
    required: ['type'],
  })
  t.same(writer.components()['Tree'], {
    anyOf: [{ $ref: '#/components/schemas/TreeLeaf' }, { $ref: '#/components/schemas/TreeAB' }],
    discriminator: {
      propertyName: 'type',
      mapping: { leaf: '#/components/schemas/TreeLeaf', 'a:b': '#/components/schemas/TreeAB' },
    },
  })
  t.throws(() =>
    createSchemaWriter([
      ['Tree', Leaf],
      ['Tree', Open],
    ]),
  )
})

t.test('the pages in docs/ name every operation, and none that does not exist', async t => {
  const folder = join(import.meta.dirname, '../../docs')
  const pages = readdirSync(folder).filter(name => name.endsWith('.md'))
  const named = new Map<string, string>()
  for (const page of pages) {
    const text = readFileSync(join(folder, page), 'utf8')
    for (const [, method = '', path = ''] of text.matchAll(
      /`(GET|HEAD|POST|PUT|PATCH|DELETE) (\/[^`\s?]*)/g,
    )) {
      named.set(`${method} ${templateOf(path)}`, page)
    }
  }
  const known = new Set(rows.map(({ method, path }) => `${method} ${templateOf(path)}`))
  const provider = new Set(['GET /models', 'POST /responses', 'GET /metrics', 'GET /healthz', 'GET /readyz'])
  for (const [operation, page] of named) {
    if (!known.has(operation) && !provider.has(operation) && !operation.includes('…'))
      t.fail(`docs/${page} names ${operation}, which is no operation`)
  }
  for (const operation of known) if (!named.has(operation)) t.fail(`no page in docs/ names ${operation}`)
})

/** A path as rows have it, with `{}` for each parameter. */
function templateOf(path: string): string {
  return path
    .replace(/^(?:\/api)?\/v1(?=\/)/, '')
    .replace(/\{\w+\}|\bID\b/g, '{}')
    .replace(/\/$/, '')
}
