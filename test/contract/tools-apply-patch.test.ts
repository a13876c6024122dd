/** The server tool apply_patch over HTTP: what is right goes to the client, what is wrong back to the model. */
import t from 'tap'
import { type Fields, MODEL, resultsOf, startFileTools } from '../support/world.ts'

const NATIVE = { type: 'apply_patch' }
const OURS = { type: 'gateway:apply_patch' }
const UPDATE = {
  type: 'update_file',
  path: 'src/a.ts',
  diff: '@@ function a() {\n-  return 1\n+  return 2\n }\n',
}
const WRONG = { type: 'create_file', path: 'a', diff: 'no plus' }

for (const stream of [false, true]) {
  for (const tool of [NATIVE, OURS]) {
    t.test(`a patch ends the turn as ${tool.type}, ${stream ? 'streamed' : 'whole'}`, async t => {
      const { play, provider } = await startFileTools(t)
      const { response, events } = await play(tool, 'apply_patch', [WRONG, UPDATE], { stream })
      t.equal(provider.asked.length, 2, 'the model is not asked again')
      t.equal(response.status, 'completed')
      t.equal(response.output.length, 2)
      const [wrong, right] = response.output
      t.match(wrong, { type: 'gateway:apply_patch', status: 'incomplete' })
      t.notOk(Object.hasOwn(wrong ?? {}, 'operation'), 'nothing that a client could apply')
      const type = tool === NATIVE ? 'apply_patch_call' : tool.type
      t.match(right, { type, status: 'in_progress', call_id: 'call_1', operation: UPDATE })
      if (!stream) return
      t.same(
        events.filter(({ type }) => type.includes('_operation_diff')).map(({ type }) => type),
        ['response.apply_patch_call_operation_diff.delta', 'response.apply_patch_call_operation_diff.done'],
      )
      t.match(
        events.find(({ type }) => type.endsWith('diff.done')),
        { diff: UPDATE.diff, output_index: 1 },
      )
    })
  }
}

t.test('the client tells how it went, and the model goes on', async t => {
  const { gateway, play, provider } = await startFileTools(t)
  for (const tool of [NATIVE, OURS]) {
    const { response } = await play(tool, 'apply_patch', [UPDATE])
    const [call] = response.output as unknown as readonly { readonly call_id: string }[]
    provider.asked.length = 0
    provider.script('model', [{ text: 'Good.' }])
    const output = {
      type: 'apply_patch_call_output',
      call_id: call?.call_id,
      status: 'failed',
      output: 'no such file',
    }
    const input = [{ role: 'user', content: 'Work.' }, call, output]
    const reply = await gateway.respond({ model: MODEL, input, tools: [tool] })
    t.equal(reply.status, 200, await reply.text())
    const messages = provider.asked[0]?.body['messages'] as readonly Fields[]
    t.match(messages[1], {
      role: 'assistant',
      tool_calls: [
        { id: call?.call_id, function: { name: 'apply_patch', arguments: JSON.stringify(UPDATE) } },
      ],
    })
    t.match(messages[2], { role: 'tool', tool_call_id: call?.call_id, content: 'no such file' })
  }
})

t.test('it works with Responses only, once, and says what a model lacks', async t => {
  const { gateway } = await startFileTools(t)
  const headers = { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' }
  const messages = [{ role: 'user', content: 'x' }]
  for (const [path, body] of [
    ['/chat/completions', { model: MODEL, messages, tools: [OURS] }],
    ['/chat/completions', { model: MODEL, messages, tools: [NATIVE] }],
    ['/messages', { model: MODEL, messages, max_tokens: 9, tools: [OURS] }],
    ['/responses', { model: MODEL, input: 'x', tools: [OURS, NATIVE] }],
    ['/responses', { model: MODEL, input: 'x', tools: [{ ...OURS, parameters: { engine: 'native' } }] }],
  ] as const) {
    const reply = await fetch(gateway.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    const text = await reply.text()
    t.equal(reply.status, 400, text)
    t.match(text, /tools\[[01]\]/)
  }
})

t.test('what is wrong with a patch is told to the model', async t => {
  const { play } = await startFileTools(t)
  const update = (diff: unknown, path: unknown = 'a.ts') => ({ type: 'update_file', path, diff })
  const cases: readonly (readonly [Fields, RegExp])[] = [
    [{}, /^type: /],
    [{ type: 'move_file', path: 'a' }, /^type: /],
    [{ type: 'delete_file' }, /^path: is required/],
    [{ type: 'delete_file', path: 'a', diff: '-x' }, /^diff: must be left out for delete_file/],
    [{ type: 'create_file', path: 'a' }, /^diff: is required/],
    [{ type: 'create_file', path: 'a', diff: '+a\n b' }, /^diff: line 2 must begin with \+/],
    [update(''), /^diff: has no line/],
    [update(' a\n b'), /changes nothing/],
    [update('@@ a\n@@ b'), /^diff: has no line/],
    [update('@@a\n+b'), /^diff: line 1 must be @@/],
    [update('+a\n@@\n b'), /section at line 2 changes nothing/],
    [update('+a\n@@ b'), /section at line 2 has no lines/],
    [update('+a\nb'), /^diff: line 2 must begin with a blank/],
    [update('+a\n*** End of File\n+b'), /line 3 follows \*\*\* End of File/],
    [update('*** End of File'), /ends a section without lines/],
    [update('*** Begin Patch\n*** Update File: a\n+b\n*** End Patch'), /without \*\*\* Begin Patch/],
    [update('+a\0'), /NUL/],
    ...[
      '/etc/passwd',
      '../a',
      'a/../../b',
      'a//b',
      './a',
      'C:\\a',
      '..\\a',
      '~/a',
      '',
      'a/ ../b',
      'a\n',
      '\u202ea',
      'a\0b',
    ].map(path => [update('+a', path), /^path: /] as const),
    [update('+a', 'x'.repeat(1_025)), /^path: /],
    [update(1), /^diff: is required/],
  ]
  for (let from = 0; from < cases.length; from += 25) {
    const part = cases.slice(from, from + 25)
    const { response, results } = await play(
      NATIVE,
      'apply_patch',
      part.map(([args]) => args),
    )
    for (const [at, [args, problem]] of part.entries())
      t.match(resultsOf(results)[at]?.['error'], problem, JSON.stringify(args).slice(0, 90))
    t.equal(response.output.at(-1)?.type, 'message')
  }
})

t.test('patches of every kind that clients can apply', async t => {
  const { play } = await startFileTools(t)
  for (const operation of [
    { type: 'create_file', path: 'a/b.txt', diff: '+one\n+\n+two' },
    { type: 'create_file', path: 'empty', diff: '' },
    { type: 'delete_file', path: 'a.b/c-d_e f.txt' },
    { type: 'update_file', path: 'a', diff: '@@\n-a\n+b' },
    { type: 'update_file', path: 'a', diff: ' a\n-b\n+c\n\n@@ class X\n@@ def y\n-d\n*** End of File\n' },
    { type: 'update_file', path: 'a', diff: ' a\r\n-b\r\n' },
    { type: 'update_file', path: '日本.txt', diff: '+x' },
  ]) {
    const { response } = await play(NATIVE, 'apply_patch', [operation])
    t.match(response.output, [{ type: 'apply_patch_call', status: 'in_progress', operation }])
  }
  const { response } = await play(NATIVE, 'apply_patch', [{ operation: UPDATE }])
  t.match(response.output, [{ type: 'apply_patch_call', operation: UPDATE }], 'nested, as the item has it')
})
