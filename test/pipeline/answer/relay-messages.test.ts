/** The relay of messages writes what the general way writes, whatever the provider sends between texts. */
import t from 'tap'
import { type Outcome, sameAtAllDoors } from './relayed-play.ts'
import { buffers, TEXTS, testProperStream } from './relayed-stream.ts'

const FORMAT = 'anthropic-messages'

type Json = Record<string, unknown>

const event = (type: string, fields: Json = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
const open = (index: number, content_block: Json): string =>
  event('content_block_start', { index, content_block })
const close = (index: number): string => event('content_block_stop', { index })
/** The provider hides the length of a text by blanks. */
const delta = (index: number, type: string, fields: Json, blanks = 0): string =>
  event('content_block_delta', { index, delta: { type, ...fields } }).replace(
    /\}\n\n$/,
    `${' '.repeat(blanks)}}\n\n`,
  )
const text = (index: number, text: string, blanks = 0): string => delta(index, 'text_delta', { text }, blanks)
const think = (index: number, thinking: string): string => delta(index, 'thinking_delta', { thinking })
const input = (index: number, partial_json: string): string =>
  delta(index, 'input_json_delta', { partial_json })

const BEGIN = event('message_start', {
  message: {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'claude-m',
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: 5, output_tokens: 1 },
  },
})
const end = (stop_reason: string): string =>
  event('message_delta', { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 9 } }) +
  event('message_stop')
const CITATION = {
  type: 'char_location',
  cited_text: 'q',
  document_index: 0,
  document_title: 'D',
  start_char_index: 0,
  end_char_index: 1,
  file_id: null,
}

/** A proper stream: a signed thought, text with a cited block between, a call, and the end. */
function properStream(): string[] {
  const args = ['', '{"', 'a', '":', '[1,', '2,', '3]', '}']
  return [
    BEGIN,
    open(0, { type: 'thinking', thinking: '', signature: '' }),
    event('ping'),
    ...TEXTS.map(each => think(0, each)),
    delta(0, 'signature_delta', { signature: 'sealed' }),
    close(0),
    open(1, { type: 'text', text: '' }),
    ...TEXTS.map((each, at) => text(1, each, at)),
    close(1),
    open(2, { type: 'text', text: '', citations: [] }),
    delta(2, 'citations_delta', { citation: CITATION }),
    ...TEXTS.map((each, at) => text(2, each, (at * 7) % 5)),
    close(2),
    open(3, { type: 'text', text: '' }),
    event('ping'),
    ...TEXTS.map(each => text(3, each)),
    close(3),
    open(4, { type: 'tool_use', id: 'toolu_1', name: 'f', input: {} }),
    ...args.map(each => input(4, each)),
    close(4),
    end('tool_use'),
  ]
}

t.test('blocks that the client gets under other numbers are relayed under these', async t => {
  const frames = [
    BEGIN,
    open(0, { type: 'text', text: '' }),
    close(0),
    open(7, { type: 'text', text: '' }),
    ...TEXTS.map((each, at) => text(7, each, at)),
    close(7),
    end('end_turn'),
  ]
  const outcome = await sameAtAllDoors(t, 'other numbers', buffers(frames), { format: FORMAT })
  t.ok(outcome.sink.relayed > 5, `${outcome.sink.relayed} relayed`)
  t.equal(content(outcome), TEXTS.join(''))
  const numbers = outcome.events.flatMap(each => (each['index'] === undefined ? [] : [each['index']]))
  t.same(new Set(numbers), new Set([0]))
})

t.test('a text that stands elsewhere in the frame as well is told in its place only', async t => {
  for (const said of ['text', 'text_delta', 'content_block_delta', 'delta', 'index', '0', ',', '}', ' }']) {
    const texts = [...Array.from({ length: 6 }, () => said), 'other', said]
    const frames = [
      BEGIN,
      open(0, { type: 'text', text: '' }),
      ...texts.map((each, at) => text(0, each, at)),
      close(0),
      end('end_turn'),
    ]
    const outcome = await sameAtAllDoors(t, said, buffers(frames), { format: FORMAT })
    t.equal(content(outcome), texts.join(''))
    t.ok(outcome.sink.relayed >= 6, `${said}: ${outcome.sink.relayed}`)
  }
})

const CHANGES: Readonly<Record<string, (frame: string) => string>> = {
  'CRLF lines': one => one.replaceAll('\n', '\r\n'),
  'no event line': one => one.replace(/^event: \w+\n/, ''),
  'another event line': one => one.replace(/^event: \w+\n/, 'event: message_stop\n'),
  'an error event line': one => one.replace(/^event: \w+\n/, 'event: error\n'),
  'no space after the colon': one => one.replace('data: ', 'data:'),
  'a comment before it': one => `: ping\n\n${one}`,
  'an id line': one => `id: 5\n${one}`,
  'a second data line': one => one.replace(/\}\n\n$/, '\ndata: }\n\n'),
  'itself twice': one => one + one,
  'left out': () => '',
  'blanks before the last brace': one => one.replace(/\}\n\n$/, `${' '.repeat(40)}}\n\n`),
  'a tab before the last brace': one => one.replace(/\}\n\n$/, '\t}\n\n'),
  'another sign before the last brace': one => one.replace(/\}\n\n$/, ' x}\n\n'),
  'a member before the last brace': one => one.replace(/\}\n\n$/, ',"usage":{"output_tokens":3}}\n\n'),
  'no text': one => one.replace(/"(text|thinking|partial_json)":"[^"\\]*"/, '"$1":""'),
  'a null text': one => one.replace(/"(text|thinking|partial_json)":"[^"\\]*"/, '"$1":null'),
  'a text that is a number': one => one.replace(/"(text|thinking|partial_json)":"[^"\\]*"/, '"$1":5'),
  'another number': one => one.replace(/"index":\d/, '"index":9'),
  'no number': one => one.replace(/"index":\d,/, ''),
  'a longer number': one => one.replace(/"index":(\d)/, '"index":$1e0'),
  'another type of delta': one => one.replace(/"(text|thinking)_delta"/, '"other_delta"'),
  'a delta of another block': one => one.replace(/"thinking_delta","thinking"/, '"text_delta","text"'),
  'a citation': one =>
    one.replace('"type":"text_delta"', `"type":"citations_delta","citation":${JSON.stringify(CITATION)}`),
  'a member more': one => one.replace('"delta":{', '"delta":{"extra":[1],'),
  'the same member twice': one => one.replace('"delta":{', '"delta":{"text":"x",'),
  'an error in its place': () =>
    event('error', { error: { type: 'overloaded_error', message: 'Overloaded' } }),
  'the end in its place': () => end('end_turn'),
  'no JSON': one => one.replace('"delta"', 'delta'),
  'an unknown escape': one => one.replace('"text":"', '"text":"\\x'),
}

testProperStream(t, {
  format: FORMAT,
  frames: properStream(),
  text: TEXTS.join('').repeat(3),
  content,
  changes: CHANGES,
  readsWithoutPause: 20,
})

/** All that the client read as the text of the answer. */
function content({ events }: Outcome): string {
  return events.map(({ delta }) => (delta as { readonly text?: string } | undefined)?.text ?? '').join('')
}
