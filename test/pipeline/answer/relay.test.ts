/**
 * The relay writes what the general way writes, event for event: on every recorded and golden stream of the formats
 * that have a relay, cut in every way; and on streams of the Responses format that are changed or cut short.
 */
import t from 'tap'
import { goldens } from '../../support/goldens.ts'
import { recordings, withoutRecordings } from '../../support/recordings.ts'
import { share } from '../../support/share.ts'
import { compare, DIALECTS, DOORS, play, type Relayed, sameAtAllDoors } from './relayed-play.ts'

for (const format of Object.keys(DIALECTS) as Relayed[]) {
  for (const door of DOORS) {
    const streams = `streams of ${format} to clients of ${door.name}`
    t.test(
      `${streams}: every recorded one reads the same relayed and decoded, however it arrives`,
      { skip: withoutRecordings },
      async t => {
        const good = recordings(format).filter(one => one.streamed && (one.httpStatus ?? 200) === 200)
        t.ok(good.length > 50)
        const all = share(good, 4)
        let relayed = 0
        let deltas = 0
        for (const recording of all) {
          const count = await compare(t, format, door, recording.file, recording.bytes())
          relayed += count.relayed
          deltas += count.deltas
          if (process.env['VERBOSE'] !== undefined && count.relayed * 2 < count.deltas)
            t.comment(`${recording.file} ${recording.provider}: ${count.relayed} of ${count.deltas}`)
        }
        t.comment(`${all.length} recordings; ${relayed} of ${deltas} deltas relayed`)
        t.ok(relayed > deltas * 0.5, 'most deltas are relayed')
      },
    )

    t.test(`${streams}: every golden one reads the same relayed and decoded`, async t => {
      const all = goldens(format).filter(golden => golden.streamed)
      t.ok(all.length > 5)
      for (const golden of all) await compare(t, format, door, golden.file, golden.bytes)
    })
  }
}

interface Frame {
  readonly type: string
  readonly fields: Readonly<Record<string, unknown>>
}

/** A proper stream as the format's inventor writes it: reasoning, two parts of text, a refusal, calls, long text. */
function properStream(long = 'lorem'): Frame[] {
  const frames: Frame[] = []
  const say = (type: string, fields: object) => frames.push({ type, fields: fields as Frame['fields'] })
  const response = { id: 'resp_1', object: 'response', status: 'in_progress', model: 'm', output: [] }
  say('response.created', { response })
  say('response.in_progress', { response })
  const output: object[] = []
  const texts = [
    'Hel',
    'lo ',
    '"wörld" \\ ',
    '\ud83d',
    '\ude00',
    '',
    '\u2028\n\t\u0001',
    '日本語',
    '</script>',
  ]
  const item = (begun: object, done: object, inside: (at: object) => void) => {
    const output_index = output.length
    say('response.output_item.added', { output_index, item: begun })
    inside({ item_id: (begun as { id: string }).id, output_index })
    say('response.output_item.done', { output_index, item: done })
    output.push(done)
  }
  const rs = { id: 'rs_1', type: 'reasoning', summary: [], encrypted_content: 'gAAA' }
  const summary = [{ type: 'summary_text', text: texts.join('') }]
  item(rs, { ...rs, summary }, at => {
    const where = { ...at, summary_index: 0 }
    say('response.reasoning_summary_part.added', { ...where, part: { type: 'summary_text', text: '' } })
    for (const [n, delta] of texts.entries())
      say('response.reasoning_summary_text.delta', { ...where, delta, obfuscation: 'x'.repeat(n) })
    say('response.reasoning_summary_text.done', { ...where, text: texts.join('') })
    say('response.reasoning_summary_part.done', { ...where, part: summary[0] })
  })
  const msg = { id: 'msg_1', type: 'message', role: 'assistant' }
  const part = (text: string) => ({ type: 'output_text', annotations: [], logprobs: [], text })
  const content = [part(texts.join('')), part(long.repeat(6)), { type: 'refusal', refusal: 'no' }]
  item({ ...msg, status: 'in_progress', content: [] }, { ...msg, status: 'completed', content }, at => {
    for (const [content_index, pieces] of [texts, new Array<string>(6).fill(long)].entries()) {
      const where = { ...at, content_index }
      say('response.content_part.added', { ...where, part: part('') })
      for (const delta of pieces) say('response.output_text.delta', { ...where, delta, logprobs: [] })
      say('response.output_text.done', { ...where, text: pieces.join(''), logprobs: [] })
      say('response.content_part.done', { ...where, part: part(pieces.join('')) })
    }
    const where = { ...at, content_index: 2 }
    say('response.content_part.added', { ...where, part: { type: 'refusal', refusal: '' } })
    for (const delta of ['n', 'o']) say('response.refusal.delta', { ...where, delta })
    say('response.refusal.done', { ...where, refusal: 'no' })
    say('response.content_part.done', { ...where, part: content[2] })
  })
  const call = { id: 'fc_1', type: 'function_call', call_id: 'call_1', name: 'f' }
  item(
    { ...call, status: 'in_progress', arguments: '' },
    { ...call, status: 'completed', arguments: '{"a":1}' },
    at => {
      for (const delta of ['{"', 'a', '":', '1}'])
        say('response.function_call_arguments.delta', { ...at, delta })
      say('response.function_call_arguments.done', { ...at, name: 'f', arguments: '{"a":1}' })
    },
  )
  const usage = { input_tokens: 5, output_tokens: 9, total_tokens: 14 }
  say('response.completed', { response: { ...response, status: 'completed', output, usage } })
  return frames
}

const text = ({ type, fields }: Frame, number: number): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields, sequence_number: number })}\n\n`

const written = (frames: readonly Frame[], first = 0): string[] =>
  frames.map((one, index) => text(one, first + index))

t.test('of a proper stream all deltas are relayed but the first of each part', async t => {
  const frames = properStream('lorem ipsum '.repeat(300))
  const outcome = await sameAtAllDoors(
    t,
    'proper',
    written(frames).map(one => Buffer.from(one)),
  )
  const kinds = outcome.events.map(event => String(event['type']))
  const deltas = kinds.filter(kind => kind.endsWith('.delta')).length
  const parts = kinds.filter(kind => kind.endsWith('part.added')).length + 1
  t.ok(deltas > 20)
  t.equal(outcome.sink.relayed, deltas - parts)
  t.equal(kinds.at(-1), 'response.completed')
  t.same(
    outcome.events.map(event => event['sequence_number']),
    outcome.events.map((_, index) => index),
  )
})

t.test('a stream that ends at any byte ends the same', async t => {
  const bytes = Buffer.from(written(properStream()).join(''))
  let relayed = 0
  for (let end = 1; end <= bytes.length; end += 7) {
    const outcome = await sameAtAllDoors(t, `${end} bytes`, [bytes.subarray(0, end)])
    relayed += outcome.sink.relayed
  }
  t.ok(relayed > 1000)
})

t.test('numbers that are not ours are replaced', async t => {
  const frames = properStream()
  for (const first of [1, 998, 999_999]) {
    const outcome = await sameAtAllDoors(
      t,
      `from ${first}`,
      written(frames, first).map(one => Buffer.from(one)),
    )
    t.ok(outcome.sink.relayed > 15, `from ${first}: ${outcome.sink.relayed} relayed`)
  }
  const whole = await sameAtAllDoors(t, 'in one read', [Buffer.from(written(frames, 95).join(''))])
  t.ok(whole.sink.relayed > 15)
  const debug = { debug: { echo_upstream_body: true } }
  const echoed = await sameAtAllDoors(
    t,
    'behind a debug event',
    written(frames).map(one => Buffer.from(one)),
    { fields: debug },
  )
  t.equal(echoed.events[0]?.['type'], 'response.debug')
  t.ok(echoed.sink.relayed > 15)
  t.same(
    echoed.events.map(event => event['sequence_number']),
    echoed.events.map((_, index) => index),
  )
})

const CHANGES: Readonly<Record<string, (frame: string, n: number) => string>> = {
  'CRLF lines': one => one.replaceAll('\n', '\r\n'),
  'CR lines': one => one.replaceAll('\n', '\r'),
  'no event line': one => one.slice(one.indexOf('\n') + 1),
  'no space after the colons': one => one.replaceAll(/^(event|data): /gm, '$1:'),
  'an id line': one => `id: 5\n${one}`,
  'a retry line': one => `retry: 5\n${one}`,
  'a comment before it': one => `: ping\n\n${one}`,
  'a comment within': one => one.replace('\ndata', '\n: x\ndata'),
  'another event line': one => one.replace('event: response', 'event: x.response'),
  'another event line before it': one => `event: x\n${one}`,
  'an empty line more': one => `${one}\n`,
  'a byte order mark': one => `\ufeff${one}`,
  'NUL in the event line': one => one.replace('\ndata', '\0\ndata'),
  'a second data line': one => one.replace('}\n\n', '\ndata: }\n\n'),
  'an undocumented event before it': (one, n) => text({ type: 'response.keepalive', fields: {} }, n) + one,
  'a queued event before it': (one, n) =>
    text({ type: 'response.queued', fields: { response: {} } }, n) + one,
  'itself twice': one => one + one,
  'left out': () => '',
  'another number': one => one.replace(/"sequence_number":\d+/, '"sequence_number":7777'),
  'a number that is text': one => one.replace(/"sequence_number":(\d+)/, '"sequence_number":"$1"'),
  'no number': one => one.replace(/,"sequence_number":\d+/, ''),
  'another item': one => one.replace(/"item_id":"\w+"/, '"item_id":"msg_other"'),
  'no item': one => one.replace(/"item_id":"\w+",/, ''),
  'another index': one => one.replace(/"output_index":\d/, '"output_index":5'),
  'another part': one => one.replace(/"(content|summary)_index":\d/, '"$1_index":3'),
  'a member more': one => one.replace('"sequence', '"extra":{"a":[1]},"sequence'),
  'token probabilities': one => one.replace('"logprobs":[]', '"logprobs":[{"token":"a","logprob":-1}]'),
  'text that is none': one => one.replace(/"delta":"[^"\\]*"/, '"delta":5'),
  'no JSON': one => one.replace('"sequence', 'sequence'),
  'an unknown escape': one => one.replace('"delta":"', '"delta":"\\x'),
  'an error in its place': (_, n) =>
    text({ type: 'error', fields: { code: 'server_error', message: 'no' } }, n),
  'the end in its place': (_, n) =>
    text({ type: 'response.completed', fields: { response: { status: 'completed', output: [] } } }, n),
  'a large event': one => one.replace('"sequence', `"pad":"${'x'.repeat(1100 * 1024)}","sequence`),
}

for (const [name, change] of Object.entries(CHANGES)) {
  t.test(`a frame with ${name}: the stream reads the same, relayed and decoded`, async t => {
    const frames = written(properStream())
    let relayed = 0
    let changed = 0
    for (let at = 0; at < frames.length; at += name === 'a large event' ? 11 : 1) {
      const one = frames[at] ?? ''
      const other = change(one, at)
      if (other === one) continue
      changed++
      const chunks = frames.toSpliced(at, 1, other).map(part => Buffer.from(part))
      relayed += (await sameAtAllDoors(t, `${name}, frame ${at}`, chunks)).sink.relayed
      relayed += (await sameAtAllDoors(t, `${name}, frame ${at}, in one read`, [Buffer.concat(chunks)])).sink
        .relayed
    }
    const all = Buffer.from(frames.map(change).join(''))
    await sameAtAllDoors(t, `${name}, every frame`, [all])
    t.ok(changed > 3)
    t.ok(relayed > 0)
  })
}

t.test('invalid UTF-8 is replaced, wherever it stands', async t => {
  const bytes = Buffer.from(written(properStream()).join(''))
  for (let at = bytes.indexOf('lo '); at < bytes.indexOf('lo ') + 900; at += 7) {
    const broken = Buffer.from(bytes)
    broken[at] = 0xe2
    await sameAtAllDoors(t, `byte ${at}`, [broken])
  }
  t.pass('read the same')
})

t.test('items whose deltas alternate read the same', async t => {
  const open = (output_index: number) => ({
    type: 'response.output_item.added',
    fields: {
      output_index,
      item: {
        id: `fc_${output_index}`,
        type: 'function_call',
        call_id: `c${output_index}`,
        name: 'f',
        arguments: '',
      },
    },
  })
  const delta = (output_index: number) => ({
    type: 'response.function_call_arguments.delta',
    fields: { item_id: `fc_${output_index}`, output_index, delta: '1' },
  })
  const created = { type: 'response.created', fields: { response: { id: 'r', status: 'in_progress' } } }
  const frames: Frame[] = [created, { ...created, type: 'response.in_progress' }, open(0), open(1)]
  for (let n = 0; n < 60; n++) frames.push(delta(n < 20 ? n % 2 : n % 6 < 3 ? 0 : 1))
  const cut = await sameAtAllDoors(
    t,
    'alternating, cut',
    written(frames).map(one => Buffer.from(one)),
  )
  t.equal(cut.events.at(-1)?.['type'], 'response.failed')
  t.ok(cut.sink.relayed > 20)
})

t.test('a slow reader pauses the provider, whatever way an event went', async t => {
  const chunks = written(properStream()).map(one => Buffer.from(one))
  const outcome = await play(chunks, { slow: true })
  t.ok(outcome.sink.relayed > 15)
  t.ok(outcome.paused >= chunks.length - 6, `${outcome.paused} pauses in ${chunks.length} reads`)
})
