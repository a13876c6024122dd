/** What guardrails look at in a request beside messages, what they tell who is refused, and what may not be relayed. */
import t from 'tap'
import type { FilterAction } from '../../src/protocol/management/guardrails.ts'
import { messages } from '../support/dialect-clients.ts'
import { writePdf } from '../support/pdf.ts'
import { FORMATS, PADDING, speaking } from '../support/provider.ts'
import { type Reply, saidIn, stagesIn, startGuarded } from '../support/world.ts'

const EMAIL = 'jane.doe@example.com'
const email = (action: FilterAction) => ({ slug: 'email', action, scanScope: 'all_messages' }) as const
const MODERATOR = 'parrot/anthropic-messages'
const MODEL = 'parrot/openai-chat'
const RESPONSES = 'parrot/openai-responses'

const { gateway, parrot, guard, ask } = await startGuarded(t, { moderation: { model: MODERATOR } })

const metadataOf = ({ document }: Reply) => {
  const { timings_ms, ...metadata } = document['gateway_metadata'] as Record<string, unknown>
  t.type(timings_ms, 'object')
  return metadata
}
const errorOf = ({ document }: Reply) =>
  document['error'] as { readonly message: string; readonly metadata: Record<string, unknown> }
/** What the provider of the last request was sent. */
const sent = () => parrot.bodies.at(-1) ?? ''
const refusedUnasked = (t: Tap, reply: Reply, asked: number) => {
  t.equal(reply.status, 403, reply.text)
  t.notMatch(reply.text, EMAIL)
  t.equal(parrot.bodies.length, asked, 'no provider was called')
}
type Tap = Pick<typeof t, 'equal' | 'match' | 'notMatch' | 'same'>

for (const stream of [false, true]) {
  t.test(`a blocked request is told who could have served it (${stream ? 'streamed' : 'whole'})`, async t => {
    const { id } = await guard({ contentFilterBuiltins: [email('block')] })
    const asked = parrot.bodies.length
    const reply = await ask({ model: MODEL, stream, input: `Mail ${EMAIL}` })
    refusedUnasked(t, reply, asked)
    t.same(Object.keys(reply.document).sort(), ['error', 'gateway_metadata', 'user_id'])
    t.same(metadataOf(reply), {
      requested: MODEL,
      strategy: 'direct',
      region: 'local',
      summary: 'available=1',
      attempt: 0,
      attempts: [],
      is_byok: false,
      endpoints: { total: 1, available: [{ model: MODEL, provider: 'parrot', selected: false }] },
      pipeline: [
        {
          type: 'guardrail',
          name: 'content-filter',
          guardrail_id: id,
          guardrail_scope: 'api-key',
          summary: 'Blocked in the request: email',
          data: { action: 'blocked', detected: true, engines: ['regex'], patterns: ['email'] },
        },
      ],
    })
    t.same(errorOf(reply).metadata['patterns'], ['email'])
  })
}

t.test('of several models each that could have served a blocked request counts, and no other', async t => {
  await guard({ contentFilterBuiltins: [email('block')], ignoredModels: [RESPONSES] })
  const reply = await ask({ models: [MODEL, RESPONSES, MODERATOR], input: EMAIL })
  t.match(metadataOf(reply), {
    strategy: 'fallback',
    summary: 'available=2',
    endpoints: { total: 2, available: [{ model: MODEL }, { model: MODERATOR }] },
  })
})

t.test('a blocked request that nobody could have served is told so, and why it was blocked', async t => {
  await guard({ contentFilterBuiltins: [email('block')], ignoredModels: [MODEL] })
  const reply = await ask({ model: MODEL, input: EMAIL })
  t.equal(errorOf(reply).message, 'Request blocked by content filter: [EMAIL]')
  t.match(metadataOf(reply), { summary: 'available=0', endpoints: { total: 0, available: [] } })
})

const REPLAYED = [
  { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: EMAIL } },
  { type: 'file_search_call', id: 'fs_1', queries: ['q'], status: 'completed', results: [{ text: EMAIL }] },
  {
    type: 'code_interpreter_call',
    id: 'ci_1',
    status: 'completed',
    container_id: 'c',
    code: `print("${EMAIL}")`,
    outputs: [{ type: 'logs', logs: EMAIL }],
  },
  { type: 'mcp_call', id: 'mcp_1', name: 'n', server_label: 's', arguments: '{}', output: EMAIL },
  { type: 'image_generation_call', id: 'ig_1', status: 'completed', result: 'aGk=', prompt: EMAIL },
  { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: EMAIL }] },
  {
    type: 'message',
    role: 'assistant',
    content: [
      {
        type: 'output_text',
        text: 'hi',
        annotations: [
          { type: 'url_citation', url: 'https://x.org', title: EMAIL, start_index: 0, end_index: 1 },
        ],
      },
    ],
  },
]
const TOOL = {
  type: 'function',
  name: 'mail',
  description: `Writes to ${EMAIL}`,
  parameters: {
    type: 'object',
    properties: { name: { type: 'string', description: `as ${EMAIL}`, default: EMAIL } },
    required: ['name'],
  },
}

for (const item of REPLAYED) {
  t.test(`what a provider ran is looked at when it is sent back: ${item.type}`, async t => {
    await guard({ contentFilterBuiltins: [email('block')] })
    const asked = parrot.bodies.length
    const body = { model: RESPONSES, input: [{ role: 'user', content: 'go on' }, item] }
    refusedUnasked(t, await ask(body), asked)
    await guard({ contentFilterBuiltins: [email('redact')] })
    const reply = await ask(body)
    t.equal(reply.status, 200, reply.text)
    t.notMatch(sent(), EMAIL)
    t.match(stagesIn(reply.document), [{ data: { action: 'redacted' } }])
  })
}

for (const format of FORMATS) {
  t.test(`declarations of tools are looked at (${format})`, async t => {
    const body = { model: `parrot/${format}`, input: 'hello', tools: [TOOL] }
    await guard({ contentFilterBuiltins: [email('block')] })
    const asked = parrot.bodies.length
    refusedUnasked(t, await ask(body), asked)
    await guard({ contentFilterBuiltins: [email('redact')] })
    const reply = await ask(body)
    t.equal(reply.status, 200, reply.text)
    t.notMatch(sent(), EMAIL)
    t.match(sent(), /Writes to \[EMAIL\]/)
    t.match(reply.document['tools'], [TOOL], 'the response echoes them as they were')
  })
}

const noted = (text: string) => `data:text/plain;base64,${Buffer.from(text).toString('base64')}`
const HIDDEN: readonly { readonly what: string; readonly model: string; readonly body: object }[] = [
  ...[MODEL, RESPONSES].flatMap(model => [
    { what: 'a prediction', model, body: { prediction: { type: 'content', content: EMAIL } } },
    { what: 'documents', model, body: { documents: [{ text: EMAIL }] } },
    {
      what: 'a link with words in it',
      model,
      body: { documents: [{ url: `data:;base64,Write to ${EMAIL}` }] },
    },
  ]),
  { what: 'a note beside the form of the answer', model: RESPONSES, body: { text: { note: EMAIL } } },
  {
    what: 'what a tool of ours gave',
    model: RESPONSES,
    body: { input: [{ type: 'gateway:datetime', datetime: EMAIL, timezone: 'UTC', detail: EMAIL }] },
  },
  {
    what: 'a patch',
    model: MODERATOR,
    body: {
      input: [
        { role: 'user', content: 'go on' },
        {
          type: 'apply_patch_call',
          call_id: 'c',
          status: 'completed',
          operation: { type: 'delete_file', path: 'a', detail: EMAIL },
        },
        { type: 'apply_patch_call_output', call_id: 'c', status: 'completed' },
      ],
    },
  },
  ...FORMATS.map(format => ({
    what: 'a note in a schema',
    model: `parrot/${format}`,
    body: { tools: [{ type: 'function', name: 'f', parameters: { type: 'object', 'x-note': EMAIL } }] },
  })),
  ...FORMATS.map(format => ({
    what: 'a file of text',
    model: `parrot/${format}`,
    body: { input: [{ role: 'user', content: [{ type: 'input_file', file_data: noted(`Mail ${EMAIL}`) }] }] },
  })),
]

for (const { what, model, body } of HIDDEN) {
  t.test(`nothing hides from guardrails in ${what} (${model})`, async t => {
    await guard({ contentFilterBuiltins: [email('block')] })
    const asked = parrot.bodies.length
    refusedUnasked(t, await ask({ model, input: 'hello', ...body }), asked)
    await guard({ contentFilterBuiltins: [email('redact')] })
    const reply = await ask({ model, input: 'hello', ...body })
    t.equal(reply.status, 200, reply.text)
    t.notMatch(sent(), EMAIL)
    t.notMatch(sent(), Buffer.from(`Mail ${EMAIL}`).toString('base64'))
    t.match(stagesIn(reply.document), [{ data: { action: 'redacted' } }])
  })
}

const pdf = (text: string) => ({
  type: 'input_file',
  file_data: `data:application/pdf;base64,${Buffer.from(writePdf({ pages: [text] })).toString('base64')}`,
})
const withFile = (more: object = {}) => ({
  model: MODEL,
  input: [{ role: 'user', content: [pdf(`Mail ${EMAIL}`), { type: 'input_text', text: 'hello' }] }],
  plugins: [{ id: 'file-parser', pdf: { engine: 'pdf-text' } }],
  ...more,
})

for (const stream of [false, true]) {
  const how = stream ? 'streamed' : 'whole'
  t.test(`what is read out of a file is blocked as any input (${how})`, async t => {
    const { id } = await guard({ contentFilterBuiltins: [email('block')] })
    const asked = parrot.bodies.length
    const reply = await ask(withFile({ stream }))
    refusedUnasked(t, reply, asked)
    t.equal(errorOf(reply).message, 'Request blocked by content filter: [EMAIL]')
    t.match(stagesIn(reply.document).at(-1), { guardrail_id: id, data: { action: 'blocked' } })
    t.match(metadataOf(reply), { summary: 'available=1', attempt: 0 })
  })

  t.test(`what is read out of a file is redacted as any input (${how})`, async t => {
    await guard({ contentFilterBuiltins: [email('redact')] })
    const reply = await ask(withFile({ stream }))
    t.equal(reply.status, 200, reply.text)
    t.match(sent(), /Mail \[EMAIL\]/)
    t.notMatch(sent(), EMAIL)
    t.match(stagesIn(reply.document).at(-1), { type: 'guardrail', data: { action: 'redacted' } })
  })
}

t.test('what is read out of a file is told once, what the request said is not told again', async t => {
  await guard({ contentFilterBuiltins: [email('flag')] })
  const reply = await ask(withFile({ instructions: `Answer ${EMAIL}` }))
  const flagged = stagesIn(reply.document).filter(({ type }) => type === 'guardrail')
  t.equal(flagged.length, 2, 'one for the request and one for the file')
  await guard({ contentFilterBuiltins: [email('flag')] })
  const plain = await ask({ ...withFile(), input: `Answer ${EMAIL}` })
  t.equal(stagesIn(plain.document).filter(({ type }) => type === 'guardrail').length, 1)
})

t.test('what is read out of a file is moderated, as guardrails leave it', async t => {
  await guard({ contentFilterBuiltins: [email('redact')] })
  const asked = parrot.bodies.length
  parrot.parts = speaking('{"flagged": false}')
  const passed = await ask(withFile({ plugins: [...withFile().plugins, { id: 'moderation' }] }))
  t.equal(passed.status, 200, passed.text)
  const bodies = parrot.bodies.slice(asked)
  t.equal(bodies.length, 3, 'the request, the file and the model')
  t.match(bodies[1], /Mail \[EMAIL\]/)
  parrot.parts = speaking('{"flagged": true, "categories": ["spam"]}')
  const flagged = await ask({
    ...withFile({ plugins: [...withFile().plugins, { id: 'moderation' }] }),
    input: [{ role: 'user', content: [pdf('Buy now')] }],
  })
  parrot.parts = speaking('hello')
  t.equal(flagged.status, 403, flagged.text)
  t.equal(parrot.bodies.length, asked + 4, 'the moderator alone')
  t.match(errorOf(flagged).metadata, { reasons: ['spam'], flagged_input: /Buy now/ })
})

t.test('a reply that somebody looks at never takes the relay', async t => {
  parrot.pads = true
  parrot.parts = speaking('one ', 'two ', 'three')
  t.teardown(() => {
    parrot.pads = false
    parrot.parts = speaking('hello')
  })
  const body = { model: RESPONSES, stream: true, input: 'hello' }
  const side = { contentFilters: [], windowBytes: 256, overlapBytes: 64 }
  await guard({ contentFilterBuiltins: [email('flag')] })
  const relayed = await ask(body)
  t.match(relayed.text, PADDING, 'bytes of the provider, since nobody looks at the reply')
  for (const action of ['flag', 'redact', 'block'] as const) {
    await guard({ output: { ...side, contentFilterBuiltins: [email(action)] } })
    const guarded = await ask(body)
    t.notMatch(guarded.text, PADDING, action)
    t.equal(saidIn(guarded.document), saidIn(relayed.document))
  }
  await guard({ output: { ...side, contentFilterBuiltins: [] } })
  t.match((await ask(body)).text, PADDING, 'output rules that look for nothing')
})

t.test('guardrails read what only messages have words for', async t => {
  const secret = `ask ${EMAIL}`
  const blocks: readonly Record<string, unknown>[] = [
    { type: 'document', source: { type: 'text', media_type: 'text/plain', data: secret } },
    {
      type: 'document',
      source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERg==' },
      context: secret,
    },
    {
      type: 'search_result',
      source: 'https://a.example',
      title: secret,
      content: [{ type: 'text', text: 'x' }],
    },
    {
      type: 'document',
      source: { type: 'content', content: [{ type: 'text', text: secret }] },
    },
  ]
  const model = 'parrot/anthropic-messages'
  for (const block of blocks) {
    const asking = { model, messages: [{ role: 'user', content: [block] }] }
    await guard({ contentFilterBuiltins: [email('block')] })
    t.equal((await messages.post(gateway, asking)).status, 403, JSON.stringify(block))
    await guard({ contentFilterBuiltins: [email('redact')] })
    parrot.parts = speaking('fine')
    t.equal((await messages.post(gateway, asking)).status, 200)
    t.match(parrot.bodies.at(-1), 'ask [EMAIL]')
    t.notMatch(parrot.bodies.at(-1), EMAIL)
  }
})
