/** Limits of fields that one receiver has and another has not: what goes out fits, and what was changed is told. */
import t from 'tap'
import type { Json } from '../../src/base/json.ts'
import { outgoingRequest } from '../../src/formats/outgoing.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { FormatName, Quirk } from '../../src/protocol/provider.ts'
import { responsesDialect } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'

interface Sent {
  readonly body: Json
  /** Fields that were changed or moved. */
  readonly told: readonly string[]
}

/** The body that goes out for these fields of a Responses request, from a client of another API than the provider's. */
function sent(format: FormatName, fields: object, quirks: readonly Quirk[] = []): Sent {
  const { stop, ...others } = fields as { readonly stop?: readonly string[] }
  const parsed = responsesDialect.parse({ model: 'acme/m', input: 'Hi', ...others })
  // Messages and Gemini take more stop sequences than the Responses door.
  const asked = stop === undefined ? parsed : { ...parsed, stop: [...stop] }
  const request = outgoingRequest(asked, FORMATS[format], 'responses')
  const wire = FORMATS[format].encode(
    { request, stream: false, endUser: null },
    endpointOf(format, { quirks }),
  )
  return { body: wire.body as Json, told: (wire.changes ?? []).map(({ field }) => field) }
}

const tool = (parameters: object): object => ({ tools: [{ type: 'function', name: 'f', parameters }] })
const UNION = {
  anyOf: [
    { type: 'object', properties: { a: {} } },
    { type: 'object', properties: { b: {} } },
  ],
}

t.test('no more stop sequences go out than the provider takes; the gateway looks for the others', async t => {
  const stop = ['a', 'b', 'c', 'd', 'e', 'f']
  t.same(sent('openai-chat', { stop }).body['stop'], stop, 'a local server takes any number')
  t.match(sent('openai-chat', { stop }, ['openai-limits']), {
    body: { stop: stop.slice(0, 4) },
    told: [],
  })
  t.match(sent('google-gemini', { stop }), {
    body: { generationConfig: { stopSequences: stop.slice(0, 5) } },
    told: [],
  })
  t.match(sent('anthropic-messages', { stop: ['\n', 'x'] }).body, { stop_sequences: ['x'] }, 'no blank one')
})

t.test('a limit of output is at least what the provider takes', async t => {
  t.match(sent('openai-responses', { max_output_tokens: 1 }), {
    body: { max_output_tokens: 16 },
    told: ['max_output_tokens'],
  })
  t.match(sent('openai-responses', { max_output_tokens: 16 }), { body: { max_output_tokens: 16 }, told: [] })
  t.match(sent('openai-chat', { max_output_tokens: 1 }), { body: { max_completion_tokens: 1 }, told: [] })
})

t.test('the schema of a function is an object at its root where the provider wants one', async t => {
  const empty = { type: 'object', properties: {} }
  t.match(sent('openai-responses', tool({})), {
    body: { tools: [{ parameters: empty }] },
    told: ['tools[0].parameters'],
  })
  t.match(sent('openai-chat', tool({ type: 'object' }), ['openai-limits']).body, {
    tools: [{ function: { parameters: empty } }],
  })
  t.same(sent('openai-chat', tool({ type: 'object' })).told, [], 'other servers take it')
  for (const format of ['openai-responses', 'anthropic-messages', 'bedrock-converse'] as const) {
    const { body, told } = sent(format, tool(UNION))
    const text = JSON.stringify(body)
    t.match(text, /Must also satisfy: \{\\"anyOf\\"/, `${format}: the union is in the description`)
    t.notMatch(text, /[{,]"anyOf"/, `${format}: and nowhere else`)
    t.same(told, ['tools[0].parameters'])
  }
})

t.test('a request for JSON says so in words where the provider demands it', async t => {
  const json = { text: { format: { type: 'json_object' } } }
  const { body, told } = sent('openai-responses', json)
  t.match(body['input'], [
    { role: 'developer', content: /JSON/ },
    { role: 'user', content: 'Hi' },
  ])
  t.same(told, ['text.format'])
  const input = [{ role: 'user', content: 'Answer in json' }]
  t.same(sent('openai-chat', { ...json, input }, ['openai-limits']).told, [], 'it does already')
})

t.test('failed results are text alone where the provider demands it', async t => {
  const image = { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,iVBORw0KGgo=' }
  const input = [
    { role: 'user', content: 'Hi' },
    { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
    {
      type: 'function_call_output',
      call_id: 'c',
      output: [{ type: 'input_text', text: 'No' }, image],
      is_error: true,
    },
  ]
  const { body } = sent('anthropic-messages', { input, ...tool({ type: 'object', properties: {} }) })
  const blocks = (body['messages'] as readonly { content: readonly Json[] }[]).at(-1)?.content ?? []
  t.match(blocks[0], { type: 'tool_result', is_error: true, content: 'No' })
  t.ok(
    blocks.slice(1).some(({ type }) => type === 'image'),
    'the picture follows the result',
  )
})

t.test('Gemini gets pictures that it reads, seeds of 32 bits, and calls only after a user', async t => {
  const picture = (type: string): object => ({
    input: [
      {
        role: 'user',
        content: [
          { type: 'input_image', detail: 'auto', image_url: `data:image/${type};base64,iVBORw0KGgo=` },
        ],
      },
    ],
  })
  t.match(JSON.stringify(sent('google-gemini', picture('jpg')).body), /image\/jpeg/)
  t.throws(() => sent('google-gemini', picture('gif')), { code: 'unprocessable', message: /^input\[0\]/ })
  t.match(sent('google-gemini', { seed: 2 ** 31 + 5 }).body, { generationConfig: { seed: 5 } })
  const input = [
    { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c', output: 'x' },
  ]
  t.match(sent('google-gemini', { input }).body['contents'], [
    { role: 'user' },
    { role: 'model' },
    { role: 'user' },
  ])
})

t.test(
  'a conversation that ends with the turn of a Claude that takes none has a turn of the user after it',
  async t => {
    const input = [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'Well, ' },
    ]
    for (const format of ['anthropic-messages', 'bedrock-converse'] as const) {
      const end = (model: string) => {
        const parsed = responsesDialect.parse({ model: 'acme/m', input })
        const endpoint = { ...endpointOf(format, {}), upstreamModel: model }
        const { body, changes = [] } = FORMATS[format].encode(
          { request: outgoingRequest(parsed, FORMATS[format], 'responses'), stream: false, endUser: null },
          endpoint,
        )
        const last = (body['messages'] as readonly { readonly role: string }[]).at(-1)
        return { role: last?.role, told: changes.map(({ action, field }) => `${action} ${field}`) }
      }
      for (const model of ['claude-opus-4-6', 'claude-sonnet-4-6', 'claude-opus-5'])
        t.same(end(`anthropic.${model}`), { role: 'user', told: ['added input'] }, `${format} ${model}`)
      for (const model of ['claude-sonnet-4-5-20250929', 'claude-3-5-haiku'])
        t.same(end(`anthropic.${model}`), { role: 'assistant', told: [] }, `${format} ${model}`)
    }
  },
)

t.test('a file goes to OpenAI as a data URL with a name', async t => {
  const DATA = 'data:application/pdf;base64,JVBERi0xLjc='
  for (const [part, file] of [
    [{ file_data: 'JVBERi0xLjc=' }, { filename: 'document.pdf', file_data: DATA }],
    [{ file_data: DATA }, { filename: 'document.pdf', file_data: DATA }],
    [
      { file_data: DATA, filename: 'a.pdf' },
      { filename: 'a.pdf', file_data: DATA },
    ],
    [{ file_data: 'data:text/csv;base64,YQ==' }, { filename: 'document.csv' }],
  ] as const) {
    const input = [{ role: 'user', content: [{ type: 'input_file', ...part }] }]
    t.match(sent('openai-chat', { input }).body['messages'], [{ content: [{ file }] }])
    t.match(sent('openai-responses', { input }).body['input'], [{ content: [file] }])
  }
})
