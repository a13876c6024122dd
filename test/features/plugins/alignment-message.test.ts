import t from 'tap'
import { extractMessage, rejectedItems } from '../../../src/features/plugins/alignment-message.ts'
import type { OutputItem } from '../../../src/protocol/items.ts'
import type { Annotation } from '../../../src/protocol/parts.ts'

const message = (...texts: string[]): OutputItem => ({
  type: 'message',
  id: 'msg_x',
  role: 'assistant',
  status: 'completed',
  content: texts.map(text => ({ type: 'output_text', text, annotations: [] })),
})
const refusal = (text: string): OutputItem => ({
  type: 'message',
  id: 'msg_x',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'refusal', refusal: text }],
})
const call = (name: string, text: string, more: object = {}): OutputItem => ({
  type: 'function_call',
  id: 'fc_x',
  call_id: 'call_1',
  name,
  arguments: text,
  status: 'completed',
  ...more,
})
const THOUGHT: OutputItem = {
  type: 'reasoning',
  id: 'rs_1',
  summary: [{ type: 'summary_text', text: 'secret' }],
  content: [{ type: 'reasoning_text', text: 'secret' }],
}
const PICTURE: OutputItem = { type: 'image_generation_call', id: 'ig_x', status: 'completed', result: 'aGk=' }
const CUSTOM: OutputItem = {
  type: 'custom_tool_call',
  id: 'ctc_x',
  call_id: 'call_2',
  name: 'shell',
  input: 'ls',
  status: 'completed',
}

t.test('a message is what the model says to the outside', async t => {
  t.same(
    extractMessage([THOUGHT, message('a', 'b'), call('f', '{}', { namespace: 'n' }), CUSTOM, message('c')]),
    {
      message: {
        role: 'assistant',
        content: 'ab\n\nc',
        tool_calls: [
          { name: 'f', arguments: '{}', namespace: 'n' },
          { name: 'shell', arguments: 'ls' },
        ],
      },
      images: [],
    },
  )
  t.same(extractMessage([THOUGHT]), { message: { role: 'assistant', content: null }, images: [] })
  t.same(extractMessage([refusal('no')]), {
    message: { role: 'assistant', content: null, refusal: 'no' },
    images: [],
  })
  t.same(extractMessage([PICTURE])?.images, ['data:image/png;base64,aGk='])
})

t.test('what a provider ran for the model counts by what the model wrote, not by what came back', async t => {
  const calls = (item: OutputItem) => extractMessage([item])?.message.tool_calls
  t.same(
    calls({ type: 'code_interpreter_call', id: 'ci', code: 'print(1)', outputs: [{ logs: 'secret' }] }),
    [{ name: 'code_interpreter_call', arguments: 'print(1)' }],
  )
  t.same(calls({ type: 'web_search_call', id: 'ws', action: { query: 'q' }, status: 'completed' }), [
    { name: 'web_search_call', arguments: '{"query":"q"}' },
  ])
  t.same(
    calls({ type: 'mcp_call', id: 'm', name: 'f', server_label: 's', arguments: '{}', output: 'secret' }),
    [{ name: 'f', arguments: '{}', namespace: 's' }],
  )
  t.same(calls({ type: 'gateway:fusion', id: 'g', status: 'completed', panel: ['p'] }), [
    { name: 'gateway:fusion', arguments: '{"panel":["p"]}' },
  ])
  t.equal(calls({ type: 'compaction', id: 'c', encrypted_content: 'x' }), undefined)
})

t.test('what other models said to the client through a tool is text of the message', async t => {
  const judged = (item: object) => extractMessage([item as OutputItem])?.message
  const responses = [
    { model: 'a/b', content: 'giraffe' },
    { model: 'a/c', content: 'zebra' },
  ]
  t.same(judged({ type: 'gateway:fusion', id: 'st', status: 'completed', responses, failed_models: [] }), {
    role: 'assistant',
    content: 'giraffe\n\nzebra',
  })
  t.same(judged({ type: 'gateway:fusion', id: 'st', analysis: { consensus: ['lion'] } }), {
    role: 'assistant',
    content: '{"consensus":["lion"]}',
  })
  t.same(judged({ type: 'openrouter:advisor', id: 'st', prompt: 'p', model: 'a/b', advice: 'giraffe' }), {
    role: 'assistant',
    content: 'p\n\ngiraffe',
  })
  t.match(judged({ type: 'gateway:subagent', id: 'st', call_id: 'c', outcome: 'giraffe' }), {
    content: 'giraffe',
  })
})

t.test('an item of an unknown kind is judged whole, and so is a message in an unknown form', async t => {
  const calls = (item: object) => extractMessage([item as OutputItem])?.message.tool_calls
  t.same(calls({ type: 'hologram', id: 'h', status: 'completed', scene: { of: 'giraffe' } }), [
    { name: 'hologram', arguments: '{"scene":{"of":"giraffe"}}' },
  ])
  t.same(calls({ type: 'message', id: 'm', role: 'assistant', content: 'giraffe' }), [
    { name: 'message', arguments: '{"role":"assistant","content":"giraffe"}' },
  ])
  t.same(calls({ ...PICTURE, revised_prompt: 'giraffe' }), [
    { name: 'image_generation_call', arguments: '{"revised_prompt":"giraffe"}' },
  ])
  t.equal(calls(PICTURE), undefined, 'a picture is an image')
  t.equal(calls({ type: 'shell_call_output', id: 's', output: [{ stdout: 'secret' }] }), undefined)
  t.equal(
    extractMessage([{ type: 'hologram', scene: 'x'.repeat(4_000) } as unknown as OutputItem]),
    null,
    'cut',
  )
})

t.test('annotations are judged by their texts, but for files of the caller', async t => {
  const said = message('a') as Extract<OutputItem, { type: 'message' }>
  const annotations = [
    { type: 'url_citation', url: 'https://x.example/', title: 'giraffe', start_index: 0, end_index: 1 },
    { type: 'footnote', of: { text: 'zebra' } },
    { type: 'file', file: { name: 'secret' } },
  ] as unknown as Annotation[]
  const annotated = (list: Annotation[]) => [
    { ...said, content: [{ type: 'output_text' as const, text: 'a', annotations: list }] },
  ]
  t.same(extractMessage(annotated(annotations))?.message.annotations, [
    'https://x.example/',
    'giraffe',
    '{"text":"zebra"}',
  ])
  const long = { type: 'url_citation', title: 'x'.repeat(20_001) } as unknown as Annotation
  t.equal(extractMessage(annotated([long])), null, 'cut')
})

t.test('reasoning is judged where it is withheld, up to its limit', async t => {
  t.equal(extractMessage([THOUGHT], true)?.message.reasoning, 'secret\n\nsecret')
  const long: OutputItem = {
    type: 'reasoning',
    id: 'r',
    summary: [{ type: 'summary_text', text: 'x'.repeat(40_001) }],
  }
  t.ok(extractMessage([long]))
  t.equal(extractMessage([long], true), null, 'cut')
})

t.test('each limit holds to the unit', async t => {
  const long = (length: number) => 'x'.repeat(length)
  t.ok(extractMessage([message(long(5_000), long(5_000))]))
  t.equal(extractMessage([message(long(5_000), long(5_001))]), null)
  t.ok(extractMessage([message('𝒳'.repeat(5_000))]), 'in UTF-16 units')
  t.equal(extractMessage([message(`${'𝒳'.repeat(5_000)}x`)]), null)
  t.ok(extractMessage([refusal(long(1_000))]))
  t.equal(extractMessage([refusal(long(1_001))]), null)
  t.ok(extractMessage(Array.from({ length: 16 }, () => call('f', '{}'))))
  t.equal(extractMessage(Array.from({ length: 17 }, () => call('f', '{}'))), null)
  const bare = JSON.stringify([{ name: 'f', arguments: '' }]).length
  t.ok(extractMessage([call('f', long(4_000 - bare))]))
  t.equal(extractMessage([call('f', long(4_001 - bare))]), null)
  t.equal(extractMessage([call('f', '"'.repeat(2_500))]), null, 'escapes count')
})

t.test('what was withheld comes back under ids of its own, without reasoning', async t => {
  const items = rejectedItems([THOUGHT, message('a'), call('f', '{}'), CUSTOM, PICTURE, PICTURE], 3)
  t.same(
    items.map(item => (item as { id: string }).id),
    ['msg_3', 'fc_call_1', 'ctc_call_2', 'ig_3_0', 'ig_3_1'],
  )
  t.notMatch(JSON.stringify(items), 'secret')
})
