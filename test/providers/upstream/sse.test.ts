import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { FRAME_MAX_BYTES, SseParser } from '../../../src/providers/upstream/sse.ts'
import { arrivals, recordings, withoutRecordings } from '../../support/recordings.ts'

type Frame = readonly [event: string, data: string]

function parse(chunks: Iterable<Buffer>, maxBytes?: number): Frame[] {
  const frames: Frame[] = []
  const parser = new SseParser((event, data) => frames.push([event, data]), maxBytes)
  for (const chunk of chunks) {
    parser.push(chunk)
    // The socket's memory is reused after the call; what the parser kept must not change with it.
    chunk.fill(0x21)
  }
  parser.end()
  return frames
}

/** Every byte in memory of its own, so that `parse` may overwrite it. */
function cut(bytes: Buffer, size: number): Buffer[] {
  const chunks: Buffer[] = []
  for (let at = 0; at < bytes.length; at += size) chunks.push(Buffer.from(bytes.subarray(at, at + size)))
  return chunks
}

/**
 * The HTML standard, read out plainly: decode everything, drop one BOM, split into lines, interpret the fields.
 * The one difference is that a last event without its blank line counts.
 */
function reference(bytes: Buffer): Frame[] {
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes).replace(/^\uFEFF/, '')
  const frames: Frame[] = []
  let event = ''
  let data = ''
  const dispatch = () => {
    if (data !== '') frames.push([event, data.slice(0, -1)])
    event = ''
    data = ''
  }
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (line === '') {
      dispatch()
      continue
    }
    const colon = line.indexOf(':')
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '')
    if (field === 'data') data += `${value}\n`
    else if (field === 'event') event = value
    else if (field === 'error') {
      event = 'error'
      data = `${value}\n`
    }
  }
  dispatch()
  return frames
}

const CASES: readonly { name: string; input: string | Buffer; frames: readonly Frame[] }[] = [
  { name: 'one event', input: 'data: one\n\n', frames: [['', 'one']] },
  {
    name: 'a failure as a field of its own',
    input: 'data: 1\n\nerror: {"code":400}\n\n',
    frames: [
      ['', '1'],
      ['error', '{"code":400}'],
    ],
  },
  {
    name: 'event names do not last',
    input: 'event: a\ndata: 1\n\ndata: 2\n\n',
    frames: [
      ['a', '1'],
      ['', '2'],
    ],
  },
  { name: 'a name without data is no event', input: 'event: a\n\ndata: 1\n\n', frames: [['', '1']] },
  { name: 'the last name wins', input: 'event: a\nevent: b\ndata: 1\n\n', frames: [['b', '1']] },
  { name: 'an empty name is none', input: 'event: a\nevent\ndata: 1\n\n', frames: [['', '1']] },
  {
    name: 'data lines are joined',
    input: 'data: 1\ndata: 2\ndata\ndata: 4\n\n',
    frames: [['', '1\n2\n\n4']],
  },
  {
    name: 'empty data is an event',
    input: 'data:\n\ndata\ndata\n\ndata:test',
    frames: [
      ['', ''],
      ['', '\n'],
      ['', 'test'],
    ],
  },
  {
    name: 'only one space is taken',
    input: 'data:  two\n\ndata:none\n\ndata: \n\n',
    frames: [
      ['', ' two'],
      ['', 'none'],
      ['', ''],
    ],
  },
  { name: 'a tab is not taken', input: 'data:\ttab\n\n', frames: [['', '\ttab']] },
  { name: 'colons in the value stay', input: 'data: a:b::c\n\n', frames: [['', 'a:b::c']] },
  { name: 'comments are skipped', input: ': hello\n:\n:data: no\ndata: 1\n: x\n\n', frames: [['', '1']] },
  { name: 'comments inside an event', input: 'data: 1\n:x\ndata: 2\n\n', frames: [['', '1\n2']] },
  {
    name: 'unknown fields',
    input: 'data:1\nfoo: x\nid: 7\nretry: 1\ndatab: x\ndat: x\n data: x\n\n',
    frames: [['', '1']],
  },
  { name: 'names are case-sensitive', input: 'Data: 1\nDATA: 2\nEvent: x\ndata: 3\n\n', frames: [['', '3']] },
  {
    name: 'eventual and even are unknown',
    input: 'eventual: x\neven: y\nevent : z\ndata: 1\n\n',
    frames: [['', '1']],
  },
  {
    name: 'CR ends lines',
    input: 'event: a\rdata: 1\r\rdata: 2\r\r',
    frames: [
      ['a', '1'],
      ['', '2'],
    ],
  },
  {
    name: 'CRLF ends lines',
    input: 'event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n',
    frames: [
      ['a', '1'],
      ['', '2'],
    ],
  },
  {
    name: 'mixed line ends',
    input: 'data: 1\r\ndata: 2\rdata: 3\n\r\ndata: 4\n\r',
    frames: [
      ['', '1\n2\n3'],
      ['', '4'],
    ],
  },
  {
    name: 'LF CR is two ends',
    input: 'data: 1\n\rdata: 2\n\r',
    frames: [
      ['', '1'],
      ['', '2'],
    ],
  },
  { name: 'many blank lines', input: '\n\n\r\r\r\n\r\ndata: 1\n\n\n\n', frames: [['', '1']] },
  { name: 'a byte order mark', input: '\uFEFFdata: 1\n\n', frames: [['', '1']] },
  { name: 'only one byte order mark', input: '\uFEFF\uFEFFdata: 1\n\ndata: 2\n\n', frames: [['', '2']] },
  { name: 'a late byte order mark', input: 'data: 1\n\n\uFEFFdata: 2\n\n', frames: [['', '1']] },
  {
    name: 'half a byte order mark is a line',
    input: Buffer.from([0xef, 0xbb, 10, 10, 100, 97, 116, 97, 58, 49, 10]),
    frames: [['', '1']],
  },
  {
    name: 'half a mark before a field spoils it',
    input: Buffer.concat([Buffer.from([0xef]), Buffer.from('data: 1\ndata: 2\n\n')]),
    frames: [['', '2']],
  },
  { name: 'NUL is a character', input: 'data: a\0b\n\n\0data: x\n\ndata\0: y\n\n', frames: [['', 'a\0b']] },
  {
    name: 'U+2028 and VT end nothing',
    input: 'data: a\u2028b\u000bc\u0085d\n\n',
    frames: [['', 'a\u2028b\u000bc\u0085d']],
  },
  { name: 'multi-byte text', input: 'event: für\ndata: 漢字 😀 é\n\n', frames: [['für', '漢字 😀 é']] },
  {
    name: 'invalid UTF-8 is replaced',
    input: Buffer.from([100, 97, 116, 97, 58, 0xe6, 0xbc, 10, 10]),
    frames: [['', '\uFFFD']],
  },
  {
    name: 'no blank line at the end',
    input: 'data: 1\n\nevent: end\ndata: 2\n',
    frames: [
      ['', '1'],
      ['end', '2'],
    ],
  },
  {
    name: 'no line end at the end',
    input: 'data: 1\n\ndata: 2',
    frames: [
      ['', '1'],
      ['', '2'],
    ],
  },
  { name: 'only a comment at the end', input: 'data: 1\n\n: bye', frames: [['', '1']] },
  { name: 'nothing', input: '', frames: [] },
  {
    name: 'prototype names',
    input: 'event: __proto__\ndata: constructor\n\n',
    frames: [['__proto__', 'constructor']],
  },
]

t.test('the event-stream format is read as the standard says', t => {
  for (const { name, input, frames } of CASES) {
    const bytes = Buffer.from(input)
    t.same(reference(bytes), frames, `${name}: the reference parser of this test agrees`)
    t.same(parse([Buffer.from(bytes)]), frames, `${name}: whole`)
    for (let size = 1; size <= 5; size++)
      t.same(parse(cut(bytes, size)), frames, `${name}: chunks of ${size}`)
  }
  t.end()
})

t.test('a split at any byte changes nothing', t => {
  const corpus = Buffer.concat(
    CASES.map(({ input }) => Buffer.concat([Buffer.from(input), Buffer.from('\r\n\r\n')])),
  )
  const whole = parse([Buffer.from(corpus)])
  t.same(whole, reference(corpus))
  let wrong = 0
  for (let at = 0; at <= corpus.length; at++) {
    const frames = parse([Buffer.from(corpus.subarray(0, at)), Buffer.from(corpus.subarray(at))])
    if (JSON.stringify(frames) !== JSON.stringify(whole)) wrong++
  }
  t.equal(wrong, 0, `${corpus.length + 1} splits`)
  t.end()
})

t.test('a CR at the end of a chunk does not wait for its LF', t => {
  const frames: string[] = []
  const parser = new SseParser((_event, data) => frames.push(data))
  parser.push(Buffer.from('data: 1\r\n\r'))
  t.same(frames, ['1'], 'delivered at the CR')
  parser.push(Buffer.from(''))
  parser.push(Buffer.from('\n'))
  parser.push(Buffer.from('data: 2\r'))
  parser.push(Buffer.from('\rdata: 3\n\n'))
  t.same(frames, ['1', '2', '3'])
  t.end()
})

t.test('any bytes in any chunks give what the reference parser gives', t => {
  const piece = fc.oneof(
    fc.constantFrom(
      'data',
      'event',
      'id',
      ':',
      ' ',
      ': ',
      'data: ',
      'event: ',
      'data:',
      '\r',
      '\n',
      '\r\n',
      '\n\n',
      '\0',
      '\uFEFF',
      '漢',
      '😀',
      'x',
    ),
    fc.string({ maxLength: 5 }),
  )
  const bytes = fc
    .array(
      fc.oneof(
        { weight: 9, arbitrary: piece.map(text => Buffer.from(text)) },
        { weight: 1, arbitrary: fc.uint8Array({ maxLength: 3 }).map(raw => Buffer.from(raw)) },
      ),
      { maxLength: 40 },
    )
    .map(parts => Buffer.concat(parts))
  const failure = fc.check(
    fc.property(
      bytes,
      fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 30 }),
      (input, sizes) => {
        const chunks: Buffer[] = []
        for (let at = 0, turn = 0; at < input.length; turn++) {
          const size = sizes[turn % sizes.length] ?? 1
          chunks.push(Buffer.from(input.subarray(at, at + size)))
          at += size
        }
        return JSON.stringify(parse(chunks)) === JSON.stringify(reference(input))
      },
    ),
    { numRuns: 20_000, seed: 42 },
  )
  t.equal(failure.failed, false, failure.failed ? JSON.stringify(failure.counterexample) : '20000 runs')
  t.end()
})

t.test('a frame may have the limit and not a byte more', t => {
  const line = (bytes: number) => `data: ${'x'.repeat(bytes - 6)}`
  t.test('in one line', t => {
    t.equal(
      parse(cut(Buffer.from(`${line(FRAME_MAX_BYTES)}\n\n`), 65_536))[0]?.[1].length,
      FRAME_MAX_BYTES - 6,
    )
    for (const size of [1000, 65_536, FRAME_MAX_BYTES * 2]) {
      t.throws(
        () => parse(cut(Buffer.from(`${line(FRAME_MAX_BYTES + 1)}\n\n`), size)),
        { code: 'reply_too_large' },
        `chunks of ${size}`,
      )
    }
    t.end()
  })
  t.test('over many lines', t => {
    const lines = (count: number) => Buffer.from(`${`${line(1024)}\n`.repeat(count)}\n`)
    for (const size of [777, 65_536, FRAME_MAX_BYTES * 2]) {
      t.equal(parse(cut(lines(4096), size)).length, 1, `the limit in chunks of ${size}`)
      t.throws(() => parse(cut(lines(4097), size)), { code: 'reply_too_large' }, `more in chunks of ${size}`)
    }
    t.end()
  })
  t.test('in an event name', t => {
    t.throws(() => parse([Buffer.from(`event: ${'x'.repeat(100)}\n\n`)], 64), GatewayError)
    t.end()
  })
  t.test('while the line is still open, before more of it is kept', t => {
    const parser = new SseParser(() => undefined)
    parser.push(Buffer.from('data: '))
    const block = Buffer.alloc(64 * 1024, 0x78)
    let pushed = 0
    t.throws(() => {
      for (; pushed < 100; pushed++) parser.push(block)
    }, GatewayError)
    t.equal(pushed, 63, 'the sixty-fourth block would pass 4 MiB')
    t.end()
  })
  t.test('frames do not add up', t => {
    t.equal(parse(cut(Buffer.from(`${line(1000)}\n\n`.repeat(50)), 333), 1000).length, 50)
    t.end()
  })
  t.end()
})

t.test('comments and unknown lines of any length cost nothing and are no fault', t => {
  const frames: string[] = []
  const parser = new SseParser((_event, data) => frames.push(data), 1000)
  const block = Buffer.alloc(64 * 1024, 0x78)
  const before = process.memoryUsage().arrayBuffers
  for (const start of [': ', 'id: ']) {
    parser.push(Buffer.from(start))
    for (let round = 0; round < 400; round++) parser.push(block)
    parser.push(Buffer.from('\n'))
  }
  t.ok(process.memoryUsage().arrayBuffers - before < 1024 * 1024, '50 MiB of them are not kept')
  for (let round = 0; round < 1000; round++) parser.push(Buffer.from(': keep-alive\n'))
  parser.push(Buffer.from('data: 1\n\n'))
  t.same(frames, ['1'])
  t.end()
})

t.test('a chunk of nothing but line ends takes linear time', t => {
  const started = process.cpuUsage()
  for (const end of ['\r', '\n', '\r\n']) {
    t.same(parse([Buffer.from(end.repeat(2_000_000))]), [])
    t.equal(parse([Buffer.from(`data: 1${end}${end}`.repeat(500_000))]).length, 500_000)
  }
  const { user, system } = process.cpuUsage(started)
  t.ok(
    user + system < 5_000_000,
    `${Math.round((user + system) / 1000)} ms of CPU; a quadratic scan takes twice the limit`,
  )
  t.end()
})

t.test('the memory of one big frame is given back after it', t => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const parsers = Array.from({ length: 40 }, () => new SseParser(() => undefined))
  const half = Buffer.from(`data: ${'x'.repeat(500_000)}`)
  collect()
  const before = process.memoryUsage().arrayBuffers
  for (const parser of parsers) {
    parser.push(half)
    parser.push(half)
    parser.push(Buffer.from('\n\ndata: 1'))
  }
  collect()
  collect()
  const grown = process.memoryUsage().arrayBuffers - before
  // Kept, it would be 40 MB; the collector frees buffers in the background, so some may still be counted.
  t.ok(grown < 20 * 1024 * 1024, `${Math.round(grown / 1024)} KiB for ${parsers.length} parsers`)
  t.end()
})

t.test('what the handler throws comes out of push', t => {
  const parser = new SseParser(() => {
    throw new GatewayError('upstream_overloaded', 'told in the stream')
  })
  t.throws(() => parser.push(Buffer.from('data: 1\n\n')), { code: 'upstream_overloaded' })
  t.end()
})

t.test('recorded streams give the same frames in any chunks', { skip: withoutRecordings }, t => {
  let streams = 0
  for (const format of ['openai-chat', 'openai-responses', 'anthropic-messages', 'google-gemini']) {
    for (const recording of recordings(format)) {
      if (!recording.streamed) continue
      const bytes = recording.bytes()
      const expected = JSON.stringify(reference(bytes))
      streams++
      for (const { name, chunks } of arrivals(bytes)) {
        const got = JSON.stringify(parse(chunks.map(chunk => Buffer.from(chunk))))
        if (got !== expected) t.fail(`${recording.file}, ${name}`)
      }
    }
  }
  t.ok(streams > 10, `${streams} recorded streams`)
  t.end()
})
