import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Delta } from '../../../src/formats/format.ts'
import type { Content } from '../../../src/pipeline/answer/answer.ts'
import { Answer } from '../../../src/pipeline/answer/answer.ts'
import { type Ending, echoRequest } from '../../../src/pipeline/answer/response-object.ts'
import type { StreamEvent } from '../../../src/protocol/events.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { EventCollector } from '../../support/event-collector.ts'
import { grammarViolations } from '../../support/event-grammar.ts'

const ENDING: Ending = { completedAt: 1_700_000_001, usage: null, serviceTier: null, metadata: null }

function assemble(deltas: readonly Content[], end: (answer: Answer) => void): StreamEvent[] {
  const sink = new EventCollector()
  const request = parseResponsesRequest({ model: 'acme/fast-1', input: 'hi' })
  const response = echoRequest(request, { id: 'gen-1-x', createdAt: 1_700_000_000, model: '' })
  const answer = new Answer(sink, response)
  answer.openTurn(false)
  answer.begin('acme/fast-1', null, [])
  for (const delta of deltas) answer.receive(delta)
  end(answer)
  return sink.events
}

const finish = (reason: Parameters<Answer['finish']>[0]) => (answer: Answer) => answer.finish(reason, ENDING)
const types = (events: readonly StreamEvent[]) => events.map(event => event.type)
const open = (item: number, start: Extract<Delta, { kind: 'open' }>['start']): Content => ({
  kind: 'open',
  item,
  start,
})
const message = open(0, { type: 'message', id: null, phase: null })
const text = (item: number, piece: string, part = 0): Content => ({
  kind: 'text',
  item,
  part,
  text: piece,
  logprobs: null,
})

t.test('a text reply has the documented events in order', async t => {
  const events = assemble([message, text(0, 'Hel'), text(0, 'lo')], finish('stop'))
  t.same(types(events), [
    'response.created',
    'response.in_progress',
    'response.output_item.added',
    'response.content_part.added',
    'response.output_text.delta',
    'response.output_text.delta',
    'response.output_text.done',
    'response.content_part.done',
    'response.output_item.done',
    'response.completed',
  ])
  t.same(grammarViolations(events), [])
  const last = events.at(-1)
  t.ok(last?.type === 'response.completed' && last.response.status === 'completed')
  t.match(last, {
    response: { completed_at: 1_700_000_001, output: [{ type: 'message', status: 'completed' }] },
  })
})

t.test('parallel calls interleave and keep their places', async t => {
  const call = (item: number, name: string) =>
    open(item, { type: 'function_call', id: null, callId: `call_${item}`, name, extra: null })
  const events = assemble(
    [
      call(0, 'a'),
      call(1, 'b'),
      { kind: 'arguments', item: 1, text: '{"y"' },
      { kind: 'arguments', item: 0, text: '{"x":1}' },
      { kind: 'arguments', item: 1, text: ':2}' },
    ],
    finish('tool_calls'),
  )
  t.same(grammarViolations(events), [])
  t.match(events.at(-1), {
    response: {
      output: [
        { type: 'function_call', call_id: 'call_0', name: 'a', arguments: '{"x":1}' },
        { type: 'function_call', call_id: 'call_1', name: 'b', arguments: '{"y":2}' },
      ],
    },
  })
})

t.test('items that stay open through the end of later ones are ended in their order', async t => {
  const call = (item: number) =>
    open(item, { type: 'function_call', id: null, callId: `call_${item}`, name: 'f', extra: null })
  const args = (item: number, piece: string): Content => ({ kind: 'arguments', item, text: piece })
  const close = (item: number): Content => ({ kind: 'close', item, fields: null })
  const events = assemble(
    [
      ...[call(0), call(1), args(1, '{"b":1}'), close(1), args(0, '{"a"')],
      ...[call(2), args(0, ':0}'), call(3), args(2, '{"c":2}'), close(2), args(3, '{}')],
    ],
    finish('length'),
  )
  t.same(grammarViolations(events), [])
  const done = events.flatMap(event =>
    event.type === 'response.output_item.done' ? [event.output_index] : [],
  )
  t.same(done, [1, 2, 0, 3])
  t.match(events.at(-1), {
    response: {
      output: [
        { arguments: '{"a":0}', status: 'completed' },
        { arguments: '{"b":1}', status: 'completed' },
        { arguments: '{"c":2}', status: 'completed' },
        { arguments: '{}', status: 'incomplete' },
      ],
    },
  })
  t.throws(() => assemble([call(0), close(0), args(0, '1')], finish('stop')), /not open/)
  t.throws(() => assemble([call(0), call(1), close(0), args(0, '1')], finish('stop')), /not open/)
})

t.test('a call without arguments has an empty object, in a delta too', async t => {
  const events = assemble(
    [open(0, { type: 'function_call', id: null, callId: null, name: 'now', extra: null })],
    finish('tool_calls'),
  )
  t.same(grammarViolations(events), [])
  t.match(events.at(-1), { response: { output: [{ arguments: '{}', call_id: /^call_/ }] } })
})

t.test('reasoning has summary and raw parts with events of their own', async t => {
  const events = assemble(
    [
      open(0, { type: 'reasoning', id: 'rs_1', format: 'anthropic-claude-v1' }),
      { kind: 'reasoning', item: 0, form: 'summary', part: 0, text: 'short' },
      { kind: 'reasoning', item: 0, form: 'summary', part: 1, text: 'shorter' },
      { kind: 'reasoning', item: 0, form: 'text', part: 0, text: 'long' },
      { kind: 'close', item: 0, fields: { signature: 'sig' } },
      open(1, { type: 'message', id: null, phase: null }),
      text(1, 'ok'),
    ],
    finish('stop'),
  )
  t.same(grammarViolations(events), [])
  t.match(events.at(-1), {
    response: {
      output: [
        {
          id: 'rs_1',
          summary: [{ text: 'short' }, { text: 'shorter' }],
          content: [{ text: 'long' }],
          signature: 'sig',
          format: 'anthropic-claude-v1',
        },
        { type: 'message' },
      ],
    },
  })
})

t.test('refusals, annotations and several parts stay inside their message', async t => {
  const events = assemble(
    [
      message,
      text(0, 'one'),
      {
        kind: 'annotation',
        item: 0,
        part: 0,
        annotation: {
          type: 'url_citation',
          url: 'https://a.example',
          title: 'a',
          start_index: 0,
          end_index: 3,
        },
      },
      { kind: 'refusal', item: 0, part: 1, text: 'no' },
      text(0, 'three', 2),
    ],
    finish('content_filter'),
  )
  t.same(grammarViolations(events), [])
  t.match(events.at(-1), {
    type: 'response.incomplete',
    response: {
      incomplete_details: { reason: 'content_filter' },
      output: [
        {
          status: 'incomplete',
          content: [
            { text: 'one', annotations: [{ url: 'https://a.example' }] },
            { refusal: 'no' },
            { text: 'three' },
          ],
        },
      ],
    },
  })
})

t.test('a hosted item keeps its own fields and its progress events', async t => {
  const events = assemble(
    [
      open(0, { type: 'hosted', item: { type: 'web_search_call', id: 'ws_1', status: 'in_progress' } }),
      { kind: 'progress', item: 0, name: 'web_search_call.searching', fields: {} },
      { kind: 'close', item: 0, fields: { status: 'completed', action: { type: 'search', query: 'x' } } },
    ],
    finish('stop'),
  )
  t.same(grammarViolations(events), [])
  t.match(events.at(-1), {
    response: { output: [{ id: 'ws_1', status: 'completed', action: { query: 'x' } }] },
  })
})

t.test('only the last of several open items is incomplete when the reply was cut for length', async t => {
  const events = assemble(
    [message, text(0, 'a'), open(1, { type: 'message', id: null, phase: null }), text(1, 'b')],
    finish('length'),
  )
  t.match(events.at(-1), {
    type: 'response.incomplete',
    response: {
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ status: 'completed' }, { status: 'incomplete' }],
    },
  })
})

t.test('a failure keeps what was said and tells code, type and message', async t => {
  const events = assemble([message, text(0, 'par')], answer =>
    answer.fail(new GatewayError('rate_limit_exceeded', 'slow down'), ENDING),
  )
  t.same(grammarViolations(events), [])
  t.match(events.at(-1), {
    type: 'response.failed',
    response: {
      status: 'failed',
      completed_at: null,
      error: { code: 'rate_limit_exceeded', message: 'slow down' },
      error_type: 'rate_limit_exceeded',
      output: [{ status: 'incomplete', content: [{ text: 'par' }] }],
    },
  })
})

t.test('an internal failure is masked', async t => {
  const events = assemble([], answer =>
    answer.fail(new GatewayError('internal', 'secret detail', { metadata: { x: 'secret' } }), ENDING),
  )
  t.notMatch(JSON.stringify(events.at(-1)), 'secret')
})

t.test('a context that overflows in mid-reply ends for length', async t => {
  const events = assemble([message, text(0, 'par')], answer =>
    answer.fail(new GatewayError('context_length_exceeded', 'too long'), ENDING),
  )
  t.match(events.at(-1), { type: 'response.incomplete', response: { error: null } })
})

t.test('created shows no usage and no output, and echoes unset fields as null', async t => {
  const events = assemble([], finish('stop'))
  t.match(events[0], {
    response: {
      usage: null,
      output: [],
      temperature: null,
      tool_choice: 'auto',
      store: false,
      background: false,
    },
  })
})
