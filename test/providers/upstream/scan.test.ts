/** What a frame pattern matches is a proper frame that differs from its model in number, text and padding only. */
import { isUtf8 } from 'node:buffer'
import t from 'tap'
import { FramePattern, type FrameSlot, type JsonSpan, spansIn } from '../../../src/providers/upstream/scan.ts'

const EVENT = 'response.output_text.delta'

interface Fields {
  readonly number?: number | string
  /** As it stands between the quotes. */
  readonly delta?: string
  readonly padding?: string
}

const data = ({ number = 7, delta = 'Hi', padding = 'x1' }: Fields = {}): string =>
  `{"type":"${EVENT}","content_index":0,"delta":"${delta}","item_id":"msg_1","logprobs":[],"obfuscation":"${padding}","output_index":0,"sequence_number":${number}}`
const frame = (fields: Fields = {}): string => `event: ${EVENT}\ndata: ${data(fields)}\n\n`

const SLOTS: ReadonlyMap<string, FrameSlot> = new Map([
  ['delta', 'delta'],
  ['obfuscation', 'padding'],
  ['sequence_number', 'number'],
])

function learned(text = data(), takesEmpty = true): FramePattern {
  return new FramePattern(EVENT, text, slotted(text, SLOTS), takesEmpty)
}

function slotted(
  json: string,
  slots: ReadonlyMap<string, FrameSlot>,
): readonly (JsonSpan & { readonly slot: FrameSlot })[] {
  const places = spansIn(json)
  if (places === null) throw new Error('there are no places')
  return [...places].flatMap(([path, place]) => {
    const slot = slots.get(path)
    return slot === undefined ? [] : [{ ...place, slot }]
  })
}

t.test('frames that differ in number, text and padding match, and their text is found', async t => {
  const pattern = learned()
  const texts = [
    '',
    'a',
    'longer text',
    'é 𝒳 日本',
    '\\"\\\\\\/\\b\\f\\n\\r\\t',
    '\\u00e9\\uD83D',
    '</script>',
    '\x7f',
  ]
  for (const [index, delta] of texts.entries()) {
    const text = frame({ number: 41 + index, delta, padding: 'p'.repeat(index) })
    const bytes = Buffer.from(`before${text}after`)
    const end = pattern.match(bytes, 6, 41 + index)
    t.equal(bytes.subarray(6, end).toString(), text, JSON.stringify(delta))
    t.equal(bytes.subarray(pattern.deltaStart, pattern.deltaEnd).toString(), delta)
  }
})

t.test('a frame that is cut anywhere does not match', async t => {
  const pattern = learned()
  const bytes = Buffer.from(frame({ delta: '\\u00e9é' }))
  for (let length = 0; length < bytes.length; length++) {
    if (pattern.match(bytes.subarray(0, length), 0, 7) !== -1) t.fail(`the first ${length} bytes match`)
  }
  t.equal(pattern.match(bytes, 0, 7), bytes.length)
})

t.test('a frame with any byte changed matches only when it still is what it has to be', async t => {
  const pattern = learned()
  const original = Buffer.from(frame({ delta: 'ab\\n', padding: 'cd' }))
  const model = JSON.parse(data()) as Record<string, unknown>
  let matched = 0
  for (let at = 0; at < original.length; at++) {
    for (let byte = 0; byte < 256; byte++) {
      const bytes = Buffer.from(original)
      bytes[at] = byte
      if (pattern.match(bytes, 0, 7) === -1) continue
      matched++
      // The proof is another parser's: two lines, the same event, the same fields but for the three.
      const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
      const lines = text.split(/\r\n|\r|\n/)
      const event = JSON.parse((lines[1] ?? '').slice('data: '.length)) as Record<string, unknown>
      const same =
        lines.length === 4 &&
        lines[0] === `event: ${EVENT}` &&
        lines[2] === '' &&
        lines[3] === '' &&
        JSON.stringify({ ...event, delta: 'Hi', obfuscation: 'x1' }) === JSON.stringify(model)
      if (!same) t.fail(`byte ${at} as ${byte} matches: ${text}`)
    }
  }
  t.ok(matched > 300, `${matched} changes within text and padding still match`)
})

t.test('what is no frame of this kind does not match', async t => {
  const pattern = learned()
  const wrong: Record<string, string> = {
    'another number': frame({ number: 8 }),
    'a number with a leading zero': frame({ number: '07' }),
    'a number with a fraction': frame({ number: '7.0' }),
    'a number with an exponent': frame({ number: '7e0' }),
    'no number': frame({ number: '' }),
    'an unknown escape': frame({ delta: '\\x41' }),
    'half an escape': frame({ delta: '\\u12' }),
    'an escape without hexadecimal digits': frame({ delta: '\\u12g4' }),
    'a control character': frame({ delta: 'a\tb' }),
    'a line end in the text': frame({ delta: 'a\nb' }),
    'a NUL': frame({ delta: '\0' }),
    'text that ends early and goes on as JSON': frame({ delta: 'a","delta":"b' }),
    'a bare word where the text stands': frame().replace('"Hi"', 'null'),
    'another item': frame().replace('msg_1', 'msg_2'),
    'another event line': frame().replace('event: response', 'event: response.'),
    'no event line': frame().slice(frame().indexOf('data')),
    'CRLF lines': frame().replaceAll('\n', '\r\n'),
    'CR lines': frame().replaceAll('\n', '\r'),
    'no space after the colon': frame().replace('data: ', 'data:'),
    'a second data line': frame().replace('}\n\n', '}\ndata: \n\n'),
    'an id line': frame().replace('\ndata', '\nid: 1\ndata'),
    'a comment within': frame().replace('\ndata', '\n: hi\ndata'),
    'a byte order mark before it': `\ufeff${frame()}`,
    'one blank after the object': frame().replace('}\n\n', '} \n\n'),
    'no blank line': frame().slice(0, -1),
  }
  for (const [name, text] of Object.entries(wrong)) t.equal(pattern.match(Buffer.from(text), 0, 7), -1, name)
  const invalid = Buffer.from(frame({ delta: 'aXb' }))
  invalid[invalid.indexOf('X')] = 0xc3
  t.equal(pattern.match(invalid, 0, 7), -1, 'invalid UTF-8')
  const end = frame({ number: 0 })
  t.equal(pattern.match(Buffer.from(end), 0, 0), end.length, 'zero is a number')
})

t.test('places are found by path, whatever stands around them', async t => {
  const json =
    '{ "a":"x\\"y" ,\t"b" : [ {"c":-1.5e3}, [], {}, "d", null ], "e":{"f":{"g":"\\u00e9"}},"h":true}'
  const found = [...(spansIn(json) ?? [])].map(([path, { start, end, isString }]) => [
    path,
    json.slice(start, end),
    isString,
  ])
  t.same(found, [
    ['a', 'x\\"y', true],
    ['b.0.c', '-1.5e3', false],
    ['b.3', 'd', true],
    ['b.4', 'null', false],
    ['e.f.g', '\\u00e9', true],
    ['h', 'true', false],
  ])
  t.same([...(spansIn('{}') ?? [['no', 'places']])], [])
})

t.test('texts without clear places have none', async t => {
  const not: Record<string, string> = {
    'the same key twice': data().replace('[]', '[],"delta":"x"'),
    'the same key twice within': '{"a":[{"b":1,"b":2}]}',
    'an escaped key': data().replace('"logprobs"', '"log\\u0070robs"'),
    'a key with a dot': '{"a.b":1}',
    'a line end between members': data().replace(',"logprobs"', ',\n"logprobs"'),
    'something after the object': `${data()} `,
    'a list': `[${data()}]`,
    'a string': '"delta"',
    nothing: '',
    'a long frame': data({ delta: 'x'.repeat(5000) }),
    'no JSON': '{"delta":"x"',
    'hostile quotes': `{${'"'.repeat(4000)}`,
    'hostile escapes': `{"delta":"${'\\'.repeat(4000)}`,
    'hostile depth': `{"a":${'['.repeat(4000)}`,
  }
  for (const [name, text] of Object.entries(not)) t.equal(spansIn(text), null, name)
  const deep = `{"a":${'['.repeat(2000)}1${']'.repeat(2000)}}`
  t.equal(spansIn(deep)?.size, 1)
})

t.test('a text that has to stand twice matches only where both are the same', async t => {
  const model = '{"choices":[{"delta":{"reasoning":"ab","again":"ab"}}]}'
  const slots: ReadonlyMap<string, FrameSlot> = new Map([
    ['choices.0.delta.reasoning', 'delta'],
    ['choices.0.delta.again', 'copy'],
  ])
  const pattern = new FramePattern('', model, slotted(model, slots), false)
  const match = (first: string, second: string) => {
    const bytes = Buffer.from(
      `data: ${model.replace('"ab"', `"${first}"`).replace('"ab"', `"${second}"`)}\n\n`,
    )
    return pattern.match(bytes, 0, 0) === bytes.length
  }
  t.ok(match('xyz', 'xyz'))
  t.notOk(match('xyz', 'xy'))
  t.notOk(match('xy', 'xyz'))
  t.notOk(match('xyz', 'xyw'))
  t.notOk(match('', ''), 'an empty text does not match here')
  t.equal(pattern.deltaOf('', model, 0), 'ab')
  t.equal(pattern.deltaOf('x', model, 0), null)
  t.equal(pattern.frameWith('q'), model.replaceAll('"ab"', '"q"'))
})

t.test('blanks in their place match, however many there are, and nothing else does', async t => {
  const model = '{"type":"a","text":"ab"   }'
  const [place] = slotted(model, new Map([['text', 'delta' as const]]))
  if (place === undefined) throw new Error('there is no text')
  const end = model.length - 1
  const blank = { start: end - 3, end, isString: false, slot: 'blank' as const }
  const pattern = new FramePattern('', model, [place, blank], false)
  const match = (data: string) => {
    const bytes = Buffer.from(`data: ${data}\n\n`)
    return pattern.match(bytes, 0, 0) === bytes.length
  }
  for (const blanks of ['', ' ', ' '.repeat(500)]) t.ok(match(`{"type":"a","text":"xyz"${blanks}}`))
  for (const other of ['\t', ' \t', 'x', ',"b":1', ' ,', '}'])
    t.notOk(match(`{"type":"a","text":"xyz"${other}}`))
  t.notOk(match('{"type":"a", "text":"xyz"}'), 'elsewhere they do not')
  const cut = Buffer.from('data: {"type":"a","text":"xyz"    ')
  t.equal(pattern.match(cut, 0, 0), -1, 'a frame that is cut within them is not complete')
  t.equal(pattern.frameWith('q'), '{"type":"a","text":"q"}')
})

t.test('the pattern tells several texts as one frame', async t => {
  const pattern = learned()
  const told = JSON.parse(pattern.frameWith('a\\n"'.replace('"', '\\"'))) as Record<string, unknown>
  t.same(told, { ...(JSON.parse(data()) as object), delta: 'a\n"', obfuscation: '', sequence_number: 0 })
  t.equal(pattern.event, EVENT)
})

t.test('a text matches exactly when it is UTF-8', t => {
  const pattern = learned()
  const EDGES = [0x20, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff]
  const [before = '', after = ''] = frame({ delta: 'XXXX' }).split('XXXX')
  const bytes = Buffer.from(`${before}XXXX${after}`)
  const at = Buffer.byteLength(before)
  let checked = 0
  let differ = 0
  for (let first = 0x80; first < 0x100; first++) {
    for (let second = 0x20; second < 0x100; second++) {
      if (second === 0x22 || second === 0x5c) continue
      for (const third of EDGES) {
        for (const fourth of EDGES) {
          const text = [first, second, third, fourth]
          bytes.set(text, at)
          const matches = pattern.match(bytes, 0, 7) === bytes.length
          checked++
          if (matches !== isUtf8(Buffer.from(text))) differ++
        }
      }
    }
  }
  t.equal(differ, 0, `of ${checked} texts`)
  t.end()
})
