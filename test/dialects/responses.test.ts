import t from 'tap'
import { frame } from '../../src/dialects/responses.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { responsesDialect } from '../support/dialects.ts'

const WORDS = [
  '',
  ' plain',
  'quo"te \\ back',
  'line\r\nend',
  '\u2028\u0000\u001f',
  '\ud83d',
  '𝒳é',
  '</script>',
]
const IDS = ['msg_1', 'rs_"2"', 'msg_1', 'fc_\n\nevent: x']

function* deltas(): Generator<StreamEvent> {
  let sequence = 0
  for (const item_id of IDS) {
    for (const delta of WORDS) {
      const at = { sequence_number: sequence++, item_id, output_index: sequence % 3 }
      yield { type: 'response.output_text.delta', ...at, content_index: 1, delta, logprobs: [] }
      yield {
        type: 'response.output_text.delta',
        ...at,
        content_index: 1,
        delta,
        logprobs: [{ token: delta, logprob: -1, bytes: null, top_logprobs: [] }],
      } as unknown as StreamEvent
      yield { type: 'response.reasoning_text.delta', ...at, content_index: 2, delta }
      yield { type: 'response.reasoning_summary_text.delta', ...at, summary_index: 0, delta }
      yield { type: 'response.function_call_arguments.delta', ...at, delta }
      yield { type: 'response.refusal.delta', ...at, content_index: 0, delta }
    }
  }
}

t.test('frames written by hand are the bytes of the whole event', async t => {
  const writer = responsesDialect.frames({ input: '' })
  let count = 0
  for (const event of deltas()) {
    count++
    t.equal(writer.write(event), frame(event))
    const [name, data, ...rest] = frame(event).split('\n')
    t.same([name, rest], [`event: ${event.type}`, ['', '']], 'one data line, whatever the text')
    t.equal(JSON.stringify(JSON.parse(data?.slice(6) ?? '')), JSON.stringify(event))
  }
  t.equal(count, IDS.length * WORDS.length * 6)
})
