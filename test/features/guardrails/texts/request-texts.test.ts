/** Every kind of item and of tool has its texts seen, and they are written back where they stood. */
import type { TObject } from '@sinclair/typebox'
import t from 'tap'
import {
  mapConversation,
  mapTexts,
  textsOf,
} from '../../../../src/features/guardrails/texts/request-texts.ts'
import { InputItem } from '../../../../src/protocol/items.ts'
import { Rule, type VariantsSchema } from '../../../../src/protocol/json/schema.ts'
import type { ResponsesRequest } from '../../../../src/protocol/request.ts'
import { Tool } from '../../../../src/protocol/tools.ts'
import {
  ANNOTATIONS,
  type Fields,
  ITEMS,
  PARTS,
  SCHEMA,
  T,
  TOOLS,
  UNKNOWN,
  X,
} from '../../../support/request-items.ts'

const kindsOf = (schema: unknown) => (schema as VariantsSchema)[Rule].table
const publicOf = (type: string) => type.replace('gateway:', 'openrouter:')
const requestOf = (fields: Fields): ResponsesRequest =>
  ({ model: 'a/b', ...fields, input: fields['input'] ?? '' }) as ResponsesRequest

/** Texts of the value by the marks above. */
function marked(value: unknown): string[] {
  if (typeof value === 'string') return value.startsWith(T) ? [value] : []
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(marked) : []
}

/** The value with other texts in the places of those that are marked. */
function rewritten(value: unknown): unknown {
  if (typeof value === 'string') return value.startsWith(T) ? `new ${value}` : value
  if (Array.isArray(value)) return value.map(rewritten)
  if (typeof value !== 'object' || value === null) return value
  // A pattern with another text in it would be another pattern.
  const kept = Object.entries(value).filter(([key]) => key !== 'pattern')
  return Object.fromEntries(kept.map(([key, inner]) => [key, rewritten(inner)]))
}

function seen(request: ResponsesRequest): string[] {
  const texts: string[] = []
  mapTexts(request, text => {
    texts.push(text)
    return text
  })
  return texts
}

function seesAll(t: Tap, fields: Fields, name: string): void {
  const request = requestOf(fields)
  const before = structuredClone(request)
  t.same(seen(request), marked(fields), name)
  t.equal(
    mapTexts(request, text => text),
    request,
    'what does not change is not copied',
  )
  t.same(
    mapTexts(request, text => `new ${text}`),
    rewritten(request),
    'each is written back to its place',
  )
  t.same(request, before, 'the request itself stays')
}
type Tap = Pick<typeof t, 'same' | 'equal'>

t.test('the example at the head of request-texts.ts', async t => {
  const request = requestOf({
    user: 'u-7',
    input: [
      { role: 'user', content: 'Call Ann' },
      { type: 'function_call', call_id: 'c1', name: 'dial', arguments: '{"to":"Ann"}', mood: 'calm' },
    ],
    tools: [
      {
        type: 'function',
        name: 'dial',
        parameters: { type: 'object', properties: { to: { type: 'string', description: 'A name' } } },
      },
    ],
  })
  t.same(textsOf(request), [
    { text: 'Call Ann', who: 'user', order: 'later' },
    { text: '{"to":"Ann"}', who: 'other', order: 'later', isJson: true },
    { text: 'calm', who: 'other', order: 'later' },
    { text: 'A name', who: 'other' },
  ])
  const said: string[] = []
  mapConversation(request, text => {
    said.push(text)
    return text
  })
  t.same(said, ['Call Ann', '{"to":"Ann"}', 'calm'])
})

t.test('every kind of item that the interface has is told apart', async t => {
  const kinds = [...kindsOf(InputItem).keys()].sort()
  const named = Object.keys(ITEMS).flatMap(type => [...new Set([type, publicOf(type)])])
  t.same(named.sort(), kinds)
})

for (const [type, fields] of Object.entries(ITEMS)) {
  t.test(`the texts of an item are seen: ${type}`, async t => {
    for (const spelling of new Set([type, publicOf(type)])) {
      const item = { type: spelling, ...fields }
      const kind = kindsOf(InputItem).get(spelling)
      t.ok(kind?.check(item), 'it is one that the interface takes')
      for (const field of Object.keys((kind?.schema as TObject | undefined)?.properties ?? {}))
        if (field !== 'id' && field !== 'status') t.ok(field in item, `${field} is in this test`)
      seesAll(t, { input: [item] }, spelling)
      seesAll(t, { input: [{ ...item, ...UNKNOWN }] }, 'what nobody knows of is text')
    }
  })
}

t.test('messages of every role and form are seen', async t => {
  for (const role of ['system', 'developer', 'assistant', 'user']) {
    for (const content of [`${T}said`, PARTS]) {
      seesAll(t, { input: [{ role, content }] }, role)
      seesAll(t, { input: [{ type: 'message', role, content }] }, role)
    }
  }
  const said = [
    { type: 'output_text', text: `${T}said`, annotations: ANNOTATIONS, logprobs: [{ token: X, logprob: 0 }] },
    { type: 'refusal', refusal: `${T}refused` },
  ]
  seesAll(t, { input: [{ role: 'assistant', content: said }] }, 'annotations')
})

t.test('what stands outside of the input is seen', async t => {
  seesAll(t, { instructions: `${T}instructions`, input: `${T}input` }, 'texts')
  const variables = {
    plain: `${T}plain`,
    name: `${T}name`,
    id: `${T}id`,
    type: { type: 'input_text', text: `${T}part` },
    file: { type: 'input_file', file_id: X },
  }
  seesAll(t, { prompt: { id: X, variables } }, 'variables, whatever they are called')
  const format = { type: 'json_schema', name: X, description: `${T}description`, schema: SCHEMA }
  seesAll(t, { text: { format } }, 'the form of the answer')
  seesAll(t, { text: { verbosity: 'low' }, tools: [] }, 'nothing')
})

t.test('declarations of tools are seen', async t => {
  const tools = TOOLS
  for (const each of tools) t.ok(kindsOf(Tool).get(String(each['type']))?.check(each), String(each['type']))
  seesAll(t, { tools }, 'all')
  const said: string[] = []
  mapConversation(requestOf({ tools, input: `${T}input` }), text => {
    said.push(text)
    return text
  })
  t.same(said, [`${T}input`], 'they are not what somebody said')
})

t.test('every tool with a field for people to write in has it seen', async t => {
  for (const [type, { schema }] of kindsOf(Tool)) {
    const written = [...JSON.stringify(schema).matchAll(/"(\w*(?:description|instructions|prompt))":\{/g)]
    for (const [, field = ''] of written) {
      const place = JSON.stringify((schema as TObject).properties['parameters'] ?? {}).includes(`"${field}"`)
      const fields = { [field]: `${T}text` }
      seesAll(t, { tools: [{ type, ...(place ? { parameters: fields } : fields) }] }, `${type} ${field}`)
    }
  }
})

t.test('who said it is told', async t => {
  const who: string[] = []
  const input = [
    { role: 'user', content: 'u' },
    { role: 'assistant', content: 'a' },
    { type: 'function_call_output', call_id: 'c', output: 'o' },
  ]
  const request = requestOf({ instructions: 'i', input, prompt: { id: 'p', variables: { v: 'v' } } })
  mapTexts(request, (text, author) => {
    who.push(`${text} ${author}`)
    return text
  })
  t.same(who, ['i other', 'u user', 'a other', 'o other', 'v user'])
})

const said = (request: ResponsesRequest): string[] => {
  const texts: string[] = []
  mapConversation(request, text => {
    texts.push(text)
    return text
  })
  return texts
}

t.test("fields that the interface does not know are somebody's words, whatever they are called", async t => {
  const fields = {
    prediction: { type: 'content', content: `${T}predicted` },
    documents: [{ text: `${T}document`, id: `${T}id`, image_url: `${T}url`, hash: `${T}hash` }],
    chat_template: `${T}template`,
    stop: [`${T}stop`],
    image_config: { style: `${T}style` },
  }
  seesAll(t, fields, 'all')
  t.same(said(requestOf(fields)), marked(fields), 'they are moderated')
})

t.test("settings are seen where they are free to say something, and are nobody's words", async t => {
  const fields = {
    text: { verbosity: 'low', note: `${T}note` },
    reasoning: { effort: 'low', summary: 'auto', note: `${T}why` },
    metadata: { who: `${T}value` },
    prompt_cache_key: `${T}key`,
    tool_choice: { type: 'function', name: X, note: `${T}choice` },
  }
  seesAll(t, fields, 'all')
  t.same(said(requestOf(fields)), [])
  const ours = {
    user: `${T}u`,
    session_id: `${T}s`,
    trace: { trace_name: `${T}t` },
    provider: { order: [`${T}p`] },
  }
  t.same(seen(requestOf(ours)), [], 'what stays here is not looked at')
})

t.test('names of fields that nobody knows are seen unless programs have such names', async t => {
  const documents = [{ plainName: 'a', 'x-y.z': 'b', '078-05-1120': 'c', 'a name': 'd', ssn078051120: 'e' }]
  const request = requestOf({ documents, '078-05-1121': 1, metadata: { 'a key': 'v' } })
  t.same(
    seen(request).filter(text => text.length > 1),
    ['078-05-1120', 'a name', 'ssn078051120', 'a key', '078-05-1121'],
  )
  const changed = mapTexts(request, text => (text.length > 1 ? '[GONE]' : text)) as Fields
  t.same(changed['documents'], [{ plainName: 'a', 'x-y.z': 'b', '[GONE]': 'e' }])
  t.equal(changed['[GONE]'], 1)
  const taken = mapTexts(request, text => (text === '078-05-1121' ? 'model' : text)) as Fields
  t.equal(taken['model'], 'a/b', 'no field of the interface is written over')
})

t.test(
  "what only the client's own API has words for is seen, except its names and what is sealed",
  async t => {
    const document = {
      type: 'document',
      source: { type: 'text', media_type: 'text/plain', data: `${T}data` },
      title: `${T}title`,
      context: `${T}context`,
      citations: { enabled: true },
    }
    const citation = {
      type: 'web_search_result_location',
      url: `${T}url`,
      encrypted_index: X,
      cited_text: `${T}cited`,
    }
    const blocks = [
      { type: 'server_tool_use', id: X, name: X, input: { query: `${T}query` } },
      {
        type: 'web_search_tool_result',
        tool_use_id: X,
        content: [{ type: 'web_search_result', encrypted_content: X, title: `${T}found` }],
      },
    ]
    seesAll(
      t,
      {
        input: [
          {
            role: 'user',
            content: [
              { type: 'input_text', text: `${T}text`, native: document },
              { type: 'output_text', text: `${T}said`, annotations: [], native: { citations: [citation] } },
            ],
          },
          { type: 'web_search_call', id: X, status: 'completed', native: { blocks } },
          { type: 'function_call_output', call_id: X, output: `${T}output`, native: { is_error: true } },
        ],
        tools: [
          { type: 'function', name: X, parameters: SCHEMA, native: { input_examples: [{ to: `${T}to` }] } },
          { type: `${T}type`, native: { type: 'bash_20250124', name: 'bash' } },
        ],
      },
      'all',
    )
    const hidden = { type: 'a secret', id: 'b secret', '078-05-1120': 1 }
    const input = [{ role: 'user', content: [{ type: 'input_text', text: 'x', native: hidden }] }]
    t.same(
      seen(requestOf({ input })).filter(text => text.length > 1),
      ['a secret', 'b secret', '078-05-1120'],
      'what has not the form of a name is a text',
    )
  },
)

t.test('a schema stays one that a tool can work by', async t => {
  const parameters = {
    type: 'object',
    properties: {
      who: { type: 'string', enum: ['a secret', 'b secret', 'c'], pattern: '^secret$', 'x-note': 'secret' },
    },
    required: ['who'],
    anyOf: [{ $ref: '#/$defs/secret' }],
    $defs: { secret: { type: 'integer', format: 'int32' } },
    additionalProperties: { type: ['secret', 'null'], format: 'secret' },
  }
  const request = requestOf({ tools: [{ type: 'function', name: 'secret', parameters }] })
  const changed = mapTexts(request, text => (text.includes('secret') ? '[GONE]' : text))
  t.same(changed.tools, [
    {
      type: 'function',
      name: 'secret',
      parameters: {
        ...parameters,
        properties: { who: { type: 'string', enum: ['[GONE]', 'c'], 'x-note': '[GONE]' } },
        additionalProperties: { type: ['[GONE]', 'null'], format: '[GONE]' },
      },
    },
  ])
})

t.test('a large schema has hardly more texts than it has descriptions', async t => {
  const property = { type: 'string', description: 'd', format: 'email', minLength: 1, $ref: '#/$defs/a' }
  const names = Array.from({ length: 5_000 }, (_, at) => `p${at}`)
  const parameters = {
    type: 'object',
    properties: Object.fromEntries(names.map(name => [name, property])),
    required: names,
    additionalProperties: false,
  }
  const texts = seen(requestOf({ tools: [{ type: 'function', name: 'f', parameters }] }))
  t.equal(texts.length, names.length)
})
