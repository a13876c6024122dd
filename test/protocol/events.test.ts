import t from 'tap'
import { STREAM_EVENT_TYPES } from '../../src/protocol/events.ts'

/** The 49 kinds of the public stream, and our own, by what they belong to. */
const PUBLIC: Readonly<Record<string, readonly string[]>> = {
  '': ['error'],
  response: ['created', 'in_progress', 'completed', 'incomplete', 'failed', 'debug'],
  'response.gateway': ['continued'],
  'response.output_item': ['added', 'done'],
  'response.content_part': ['added', 'done'],
  'response.output_text': ['delta', 'done', 'annotation.added'],
  'response.refusal': ['delta', 'done'],
  'response.reasoning_text': ['delta', 'done'],
  'response.reasoning_summary_part': ['added', 'done'],
  'response.reasoning_summary_text': ['delta', 'done'],
  'response.function_call_arguments': ['delta', 'done'],
  'response.custom_tool_call_input': ['delta', 'done'],
  'response.web_search_call': ['in_progress', 'searching', 'completed'],
  'response.code_interpreter_call': ['in_progress', 'interpreting', 'completed'],
  'response.code_interpreter_call_code': ['delta', 'done'],
  'response.image_generation_call': ['in_progress', 'generating', 'completed', 'partial_image'],
  'response.apply_patch_call_operation_diff': ['delta', 'done'],
  'response.fusion_call': [
    'in_progress',
    'completed',
    'panel.added',
    'panel.delta',
    'panel.reasoning.delta',
    'panel.completed',
    'panel.failed',
    'analysis.in_progress',
    'analysis.completed',
  ],
}

t.test('the list of event names is the public one and our own, sorted and without doubles', t => {
  const expected = Object.entries(PUBLIC).flatMap(([prefix, names]) =>
    names.map(name => (prefix === '' ? name : `${prefix}.${name}`)),
  )
  t.equal(expected.length, 50)
  t.same([...STREAM_EVENT_TYPES], expected.sort())
  t.equal(new Set(STREAM_EVENT_TYPES).size, 50)
  t.end()
})
