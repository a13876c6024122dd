/** The relay of chat completions writes what the general way writes, whatever the provider sends between texts. */
import t from 'tap'
import { type Outcome, sameAtAllDoors } from './relayed-play.ts'
import { buffers, TEXTS, testProperStream } from './relayed-stream.ts'

const FORMAT = 'openai-chat'

const BASE = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'm-1' }
const chunk = (fields: object): string => `data: ${JSON.stringify({ ...BASE, ...fields })}\n\n`
const delta = (fields: object, more: object = {}): string =>
  chunk({ choices: [{ index: 0, delta: fields, logprobs: null, finish_reason: null }], ...more })
const call = (fields: object): object => ({ tool_calls: [{ index: 0, ...fields }] })

/** A proper stream: thinking, text with a citation within, a call, more text, the finish and the usage. */
function properStream(): string[] {
  const citation = {
    type: 'url_citation',
    url_citation: { url: 'https://e.com', title: 'E', start_index: 0, end_index: 3 },
  }
  const args = ['{"', 'a', '":', '[1,', '2,', '3]', '}']
  return [
    delta({ role: 'assistant', content: '' }),
    ...TEXTS.map(reasoning_content => delta({ content: null, reasoning_content })),
    ...TEXTS.map(content => delta({ content }, { obfuscation: 'x'.repeat(content.length) })),
    delta({ content: 'cited', annotations: [citation] }),
    ...TEXTS.map(content => delta({ content })),
    delta({ annotations: [citation] }),
    ...TEXTS.map(content => delta({ content })),
    delta(call({ id: 'call_1', type: 'function', function: { name: 'f', arguments: '' } })),
    ...args.map(text => delta(call({ function: { arguments: text } }))),
    chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] }),
    chunk({ choices: [], usage: { prompt_tokens: 5, completion_tokens: 9, total_tokens: 14 } }),
    'data: [DONE]\n\n',
  ]
}

t.test(
  'the role goes once, and a later thought begins with its break, whatever was relayed before',
  async t => {
    const thought = TEXTS.map(reasoning => delta({ reasoning }))
    const said = TEXTS.map(content => delta({ content }))
    const stop = chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })
    const frames = [...said, ...thought, ...said, ...thought, stop, 'data: [DONE]\n\n']
    const outcome = await sameAtAllDoors(t, 'alternating', buffers(frames), { format: FORMAT })
    t.ok(outcome.sink.relayed > 20)
    t.equal(outcome.sink.text.split('"role"').length, 2)
  },
)

t.test('the same text under two names, under an id of its own, and in a list, is relayed', async t => {
  const kinds: Readonly<Record<string, (text: string, n: number) => string>> = {
    'two names': text => delta({ reasoning: text, reasoning_content: text }),
    'with details': text =>
      delta({
        reasoning: text,
        reasoning_details: [{ type: 'reasoning.text', text, format: 'unknown', index: 0 }],
      }),
    'ids of frames': (content, n) => delta({ content }, { id: `chatcmpl-${n}` }),
    'thinking in a list': text =>
      delta({ content: [{ type: 'thinking', thinking: [{ type: 'text', text }], closed: true }] }),
  }
  const stop = chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })
  for (const [name, kind] of Object.entries(kinds)) {
    const frames = [...TEXTS.map(kind), stop, 'data: [DONE]\n\n']
    t.equal(
      (await sameAtAllDoors(t, name, buffers(frames), { format: FORMAT })).sink.relayed,
      TEXTS.length - 3,
      name,
    )
  }
})

t.test('where the client excludes thinking, only the text is relayed', async t => {
  const fields = { reasoning: { exclude: true } }
  const outcome = await sameAtAllDoors(t, 'excluded', buffers(properStream()), { format: FORMAT, fields })
  t.ok(outcome.sink.relayed > 20)
  t.notOk(outcome.sink.text.includes('"reasoning"'))
})

t.test('a text that stands elsewhere in the frame as well is told in its place only', async t => {
  for (const text of [
    'assistant',
    'content',
    'm-1',
    'chat.completion.chunk',
    'Acme',
    ',',
    'acme/scripted',
    'null',
  ]) {
    const frames = [...Array.from({ length: 6 }, () => text), 'other', text].map(content =>
      delta({ content }),
    )
    const stop = chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })
    const outcome = await sameAtAllDoors(t, text, buffers([...frames, stop]), { format: FORMAT })
    t.equal(content(outcome), `${text.repeat(6)}other${text}`)
    t.ok(outcome.sink.relayed >= 4, `${text}: ${outcome.sink.relayed}`)
  }
})

const CHANGES: Readonly<Record<string, (frame: string) => string>> = {
  'CRLF lines': one => one.replaceAll('\n', '\r\n'),
  'an event line': one => `event: x\n${one}`,
  'an error event line': one => `event: error\n${one}`,
  'no space after the colon': one => one.replace('data: ', 'data:'),
  'a comment before it': one => `: ping\n\n${one}`,
  'an id line': one => `id: 5\n${one}`,
  'a second data line': one => one.replace('}\n\n', '\ndata: }\n\n'),
  'itself twice': one => one + one,
  'left out': () => '',
  'no text': one => one.replace(/"(content|reasoning_content|arguments)":"[^"\\]*"/, '"$1":""'),
  'a null text': one => one.replace(/"(content|reasoning_content|arguments)":"[^"\\]*"/, '"$1":null'),
  'a text that is a number': one => one.replace(/"(content|reasoning_content)":"[^"\\]*"/, '"$1":5'),
  'another choice': one => one.replace('"index":0', '"index":1'),
  'another choice beside it': one =>
    one.replace('"choices":[', '"choices":[{"index":1,"delta":{"content":"no"}},'),
  'another model': one => one.replace('m-1', 'm-2'),
  'a usage': one => one.replace('"choices"', '"usage":{"prompt_tokens":1,"completion_tokens":2},"choices"'),
  'a refusal': one => one.replace('"delta":{', '"delta":{"refusal":"no",'),
  'a finish reason': one => one.replace('"finish_reason":null', '"finish_reason":"stop"'),
  'log probabilities': one =>
    one.replace(
      '"logprobs":null',
      '"logprobs":{"content":[{"token":"a","logprob":-1,"bytes":null,"top_logprobs":[]}]}',
    ),
  'a name in the fragment': one => one.replace('"function":{"arg', '"function":{"name":"f","arg'),
  'a member more': one => one.replace('"delta":{', '"delta":{"extra":[1],'),
  'the same member twice': one => one.replace('"delta":{"content"', '"delta":{"content":"x","content"'),
  'an error in its place': () => chunk({ error: { message: 'no', code: 500 } }),
  'the end in its place': () => 'data: [DONE]\n\n',
  'no JSON': one => one.replace('"choices"', 'choices'),
  'an unknown escape': one => one.replace('"content":"', '"content":"\\x'),
}

testProperStream(t, {
  format: FORMAT,
  frames: properStream(),
  text: `${TEXTS.join('')}cited${TEXTS.join('')}${TEXTS.join('')}`,
  content,
  changes: CHANGES,
  readsWithoutPause: 8,
})

/** All that the client read as the text of the answer. */
function content({ events }: Outcome): string {
  return events
    .map(
      ({ choices }) =>
        (choices as readonly { readonly delta?: { readonly content?: string } }[])[0]?.delta?.content,
    )
    .join('')
}
