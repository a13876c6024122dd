/** Items and their fields in a guarded reply: what the client is to run, what another one ran, notes. */
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import type { Content } from '../../src/pipeline/answer/answer.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { EventCollector } from '../support/event-collector.ts'
import { kinds, MAIL, open, outputOf, start, text, token } from './guard/output-guard.ts'

const hosted = (item: number, fields: Readonly<Record<string, unknown>> & { type: string }): Content => ({
  kind: 'open',
  item,
  start: { type: 'hosted', item: { id: `i${item}`, status: 'in_progress', ...fields } },
})
const closing = (item: number, fields: Readonly<Record<string, unknown>> | null): Content => ({
  kind: 'close',
  item,
  fields,
})

/** What the client is to run, or another one said: how it begins, how it ends, and where a secret was. */
const CALLS: readonly (readonly [type: string, begun: object, done: object, clean: object])[] = [
  [
    'apply_patch_call',
    { call_id: 'c', operation: { type: 'update_file', path: 'a', diff: 'Mail anna@' } },
    { call_id: 'c', operation: { type: 'update_file', path: 'a', diff: `Mail ${MAIL}` } },
    { call_id: 'c', operation: { type: 'update_file', path: 'a', diff: 'Mail [EMAIL]' } },
  ],
  [
    'shell_call',
    { call_id: 'c', action: { commands: [] } },
    { call_id: 'c', action: { commands: ['ls', `mail ${MAIL}`], timeout_ms: 5 } },
    { call_id: 'c', action: { commands: ['ls', 'mail [EMAIL]'], timeout_ms: 5 } },
  ],
  [
    'local_shell_call',
    { action: { type: 'exec', command: [], env: {} } },
    { action: { type: 'exec', command: ['mail', MAIL], env: { id: MAIL, type: 'x' } } },
    { action: { type: 'exec', command: ['mail', '[EMAIL]'], env: { id: '[EMAIL]', type: 'x' } } },
  ],
  [
    'computer_call',
    { pending_safety_checks: [] },
    { action: { type: 'type', text: MAIL }, pending_safety_checks: [{ id: 's', message: MAIL }] },
    { action: { type: 'type', text: '[EMAIL]' }, pending_safety_checks: [{ id: 's', message: '[EMAIL]' }] },
  ],
  [
    'mcp_approval_request',
    { name: 'send', server_label: 's', arguments: '' },
    { name: 'send', server_label: 's', arguments: `{"to":"${MAIL}"}` },
    { name: 'send', server_label: 's', arguments: '{"to":"[EMAIL]"}' },
  ],
  ['tool_search_call', { arguments: {} }, { arguments: { id: MAIL } }, { arguments: { id: '[EMAIL]' } }],
  [
    'message',
    { role: 'user', content: [] },
    { role: 'user', content: [{ type: 'output_text', text: MAIL, logprobs: [token(MAIL)] }] },
    { role: 'user', content: [{ type: 'output_text', text: '[EMAIL]' }] },
  ],
  ['kind_of_tomorrow', {}, { wish: { of: [MAIL] } }, { wish: { of: ['[EMAIL]'] } }],
]

for (const [type, begun, done, clean] of CALLS) {
  t.test(`a ${type} is looked at whole before the client hears of it`, async t => {
    const whole = [
      hosted(0, { type, ...done, status: 'completed' }),
      closing(0, { ...done, status: 'completed' }),
    ]
    const streamed = [
      hosted(0, { type, ...begun }),
      { kind: 'progress', item: 0, name: 'x.delta', fields: { delta: MAIL } } as const,
      closing(0, { ...done, status: 'completed' }),
    ]
    for (const deltas of [streamed, whole]) {
      const run = start({ output: outputOf('redact') })
      for (const delta of deltas) {
        t.same(run.delivered, [])
        run.guard.receive(delta)
      }
      await run.end()
      t.equal(kinds(run.delivered), '<open 0><close 0>')
      const [first, last] = run.delivered
      t.match(first, { start: { item: { type, id: 'i0', ...clean } } })
      t.match(last, { fields: { ...clean, status: 'completed' } })
      t.notMatch(JSON.stringify(run.delivered), 'anna')
      t.match(run.exchange.pipeline, [{ data: { action: 'redacted' } }])
    }
    const run = start({ output: outputOf('block') })
    for (const delta of streamed) run.guard.receive(delta)
    await run.end()
    t.same(run.delivered, [])
    t.equal(run.state.error?.code, 'permission_denied')
  })
}

t.test('what began after an item that is withheld keeps its place behind it', async t => {
  for (const closed of [true, false]) {
    const run = start({ output: outputOf('redact') })
    const { guard } = run
    guard.receive(open(0))
    guard.receive(text('before '))
    guard.receive(hosted(1, { type: 'shell_call', action: { commands: [MAIL] } }))
    guard.receive(open(2))
    guard.receive(text(`behind ${MAIL} `, 2))
    guard.receive(hosted(3, { type: 'apply_patch_call', operation: { diff: MAIL } }))
    guard.receive(text('more', 0))
    guard.receive(closing(0, null))
    guard.receive(text('end', 2))
    guard.receive(closing(2, null))
    guard.receive(closing(3, { operation: { diff: MAIL }, status: 'completed' }))
    if (closed) guard.receive(closing(1, { action: { commands: [MAIL] }, status: 'completed' }))
    await run.end()
    const close = closed ? '<close 1>' : ''
    t.equal(
      kinds(run.delivered),
      `<open 0>before more<close 0><open 1>${close}<open 2>behind [EMAIL] end<close 2><open 3><close 3>`,
    )
    t.notMatch(JSON.stringify(run.delivered), 'anna')
    t.equal(run.state.error, null)
  }
})

t.test('items that are still open at the end leave in their order, looked at', async t => {
  const run = start({ output: outputOf('redact') })
  for (const item of [0, 1])
    run.guard.receive(hosted(item, { type: 'shell_call', action: { commands: [MAIL] } }))
  await run.end()
  t.equal(kinds(run.delivered), '<open 0><open 1>')
  t.match(run.delivered, [
    { start: { item: { id: 'i0', status: 'in_progress', action: { commands: ['[EMAIL]'] } } } },
    { start: { item: { id: 'i1', status: 'in_progress', action: { commands: ['[EMAIL]'] } } } },
  ])
})

t.test('what a provider ran itself goes on as it comes', async t => {
  for (const type of ['web_search_call', 'mcp_call', 'gateway:fusion', 'openrouter:fusion']) {
    const run = start({ output: outputOf('block') })
    const deltas: Content[] = [
      hosted(0, { type, query: MAIL }),
      { kind: 'progress', item: 0, name: 'web_search_call.searching', fields: {} },
      closing(0, { query: MAIL }),
    ]
    for (const delta of deltas) run.guard.receive(delta)
    t.same(run.delivered, deltas)
    await run.end()
    t.equal(run.state.error, null)
  }
})

t.test('fields of items and annotations are looked at, and ids and signatures left alone', async t => {
  const run = start({ output: outputOf('redact') })
  const { guard } = run
  const start0 = { type: 'function_call', id: null, callId: MAIL, name: 'f' } as const
  guard.receive({ kind: 'open', item: 0, start: { ...start0, extra: { caller: MAIL, signature: MAIL } } })
  guard.receive({ kind: 'arguments', item: 0, text: '{}' })
  guard.receive(
    closing(0, { parsed_arguments: { name: MAIL }, status: 'completed', logprobs: [token(MAIL)] }),
  )
  guard.receive(open(1))
  guard.receive(text('see here', 1))
  const note = {
    type: 'url_citation',
    url: `https://x/?to=${MAIL}`,
    title: MAIL,
    start_index: 0,
    end_index: 3,
  }
  guard.receive({ kind: 'annotation', item: 1, part: 0, annotation: note as never })
  guard.receive({ kind: 'close', item: 1, fields: { encrypted_content: MAIL, phase: 'x' } })
  await run.end()
  t.equal(kinds(run.delivered), '<open 0>{}<close 0><open 1>see here<annotation 1><close 1>')
  const [first, , closed] = run.delivered
  t.match(first, { start: { callId: MAIL, extra: { caller: '[EMAIL]', signature: MAIL } } })
  t.same(closed, closing(0, { parsed_arguments: { name: '[EMAIL]' }, status: 'completed' }))
  t.match(run.delivered[5], { annotation: { ...note, url: 'https://x/?to=[EMAIL]', title: '[EMAIL]' } })
  t.same(run.delivered[6], closing(1, { encrypted_content: MAIL, phase: 'x' }))
})

/** What the client sees of a reply of the Responses format, by the real decoder and answer. */
async function told(frames: readonly object[]): Promise<readonly StreamEvent[]> {
  const run = start({ output: outputOf('redact') })
  const decoder = FORMATS['openai-responses'].decoder(delta => {
    if (delta.kind !== 'start' && delta.kind !== 'usage' && delta.kind !== 'finish') run.guard.receive(delta)
  })
  for (const frame of frames) decoder.frame('', JSON.stringify(frame))
  decoder.end()
  await run.end()
  const sink = new EventCollector()
  const { id, request, createdAt } = run.exchange
  const response = echoRequest(request, { id, createdAt, model: 'm' })
  const answer = new Answer(sink, response)
  answer.openTurn(false)
  answer.begin('m', null, [])
  for (const delta of run.delivered) answer.receive(delta)
  answer.finish('stop', { completedAt: 2, usage: null, serviceTier: null, metadata: null })
  return sink.events
}

const outputIn = (events: readonly StreamEvent[]): unknown => {
  const last = events.at(-1)
  return last !== undefined && 'response' in last ? last.response.output : null
}

t.test('a patch of a Responses provider is the same, streamed and whole, without its secret', async t => {
  const operation = { type: 'create_file', path: 'a', diff: `Mail ${MAIL}` }
  const patch = { id: 'p', type: 'apply_patch_call', call_id: 'c' }
  const done = { ...patch, status: 'completed', operation }
  const said = { type: 'output_text', text: 'done', annotations: [] }
  const message = { id: 'm', type: 'message', role: 'assistant', status: 'completed', content: [said] }
  const response = { object: 'response', id: 'r', status: 'completed', output: [done, message] }
  const begun = { ...patch, status: 'in_progress', operation: { ...operation, diff: '' } }
  const streamed = await told([
    { type: 'response.output_item.added', output_index: 0, item: begun },
    { type: 'response.apply_patch_call_operation_diff.delta', output_index: 0, item_id: 'p', delta: MAIL },
    { type: 'response.apply_patch_call_operation_diff.done', output_index: 0, item_id: 'p', diff: MAIL },
    { type: 'response.output_item.done', output_index: 0, item: done },
    { type: 'response.output_item.added', output_index: 1, item: { ...message, content: [] } },
    { type: 'response.output_text.delta', output_index: 1, content_index: 0, delta: 'done' },
    { type: 'response.completed', response },
  ])
  const whole = await told([response])
  for (const events of [streamed, whole]) t.notMatch(JSON.stringify(events), 'anna')
  t.same(outputIn(streamed), outputIn(whole))
  t.match(outputIn(whole), [
    { type: 'apply_patch_call', status: 'completed', operation: { diff: 'Mail [EMAIL]' } },
    { type: 'message' },
  ])
})

t.test('log probabilities that come with the end of a text are left out with what it lost', async t => {
  const at = { output_index: 0, content_index: 0, item_id: 'm' }
  const logprobs = ['Mail ', MAIL].map(token)
  const events = await told([
    {
      type: 'response.output_item.added',
      output_index: 0,
      item: { id: 'm', type: 'message', role: 'assistant' },
    },
    { type: 'response.output_text.delta', ...at, delta: `Mail ${MAIL}` },
    { type: 'response.output_text.done', ...at, text: `Mail ${MAIL}`, logprobs },
    { type: 'response.completed', response: { id: 'r', status: 'completed', output: [] } },
  ])
  t.match(outputIn(events), [{ content: [{ text: 'Mail [EMAIL]' }] }])
  t.notMatch(JSON.stringify(events), 'anna')
})
