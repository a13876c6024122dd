import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { googleGemini } from '../../../src/formats/google-gemini.ts'
import { decodeReply } from '../../support/decode-reply.ts'
import { goldens } from '../../support/goldens.ts'
import { arrivals } from '../../support/recordings.ts'
import { collect } from '../delta-items.ts'

interface Outcome {
  readonly failure?: string
  readonly [field: string]: unknown
}

const GOLDENS = goldens('google-gemini').map(golden => ({ ...golden, expected: golden.expected as Outcome }))

function golden(file: string): Buffer {
  const found = GOLDENS.find(one => one.file === file)
  if (found === undefined) throw new Error(`there is no golden ${file}`)
  return found.bytes
}

function decode(chunks: readonly Buffer[], file: string): Delta[] {
  return decodeReply(googleGemini, !file.endsWith('.json'), chunks)
}

/** The outcome of a reply in the form the golden files have. */
function outcome(chunks: readonly Buffer[], file: string): Outcome {
  try {
    const whole = collect(decode(chunks, file))
    const progress = whole.progress.map(({ item, name }) => `${item} ${name}`)
    return plain({
      start: whole.start,
      items: whole.items,
      usage: whole.usage,
      finish: whole.finish,
      progress,
    })
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    const { code: failure, message, metadata, retryAfterSeconds } = thrown
    return plain({ failure, message, metadata, retryAfterSeconds })
  }
}

function plain(value: Outcome): Outcome {
  return JSON.parse(JSON.stringify(value)) as Outcome
}

function chunk(...parts: readonly unknown[]): string {
  return JSON.stringify({ candidates: [{ content: { parts, role: 'model' }, index: 0 }] })
}

const STOP = JSON.stringify({ candidates: [{ finishReason: 'STOP', index: 0 }] })

function deltasOf(...frames: readonly string[]): Delta[] {
  const deltas: Delta[] = []
  const decoder = googleGemini.decoder(delta => deltas.push(delta))
  for (const frame of frames) decoder.frame('', frame)
  decoder.end()
  return deltas
}

t.test('every golden reply decodes to its expected outcome, however it arrives', async t => {
  for (const { file, bytes, expected } of GOLDENS) {
    for (const { name, chunks } of arrivals(bytes)) {
      t.strictSame(outcome(chunks, file), expected, `${file} arriving ${name}`)
    }
  }
  t.comment(`${GOLDENS.length} golden replies`)
  t.ok(GOLDENS.length >= 39)
})

t.test('a golden stream that is cut before its last frame with content is a failure', async t => {
  let cuts = 0
  for (const { file, bytes, expected } of GOLDENS) {
    if (!file.endsWith('.sse') || expected.failure !== undefined) continue
    const frames = bytes.toString().split(/(?<=\r?\n\r?\n)/)
    const last = frames.findLastIndex(frame =>
      /"finishReason": "(?!FINISH_REASON_UNSPECIFIED)|"blockReason"/.test(frame),
    )
    const mid = file === 'stop-in-mid-stream.sse' ? 2 : 0
    for (let kept = mid + (mid > 0 ? 1 : 0); kept < last + 1; kept++) {
      const result = outcome(
        frames.slice(0, kept).map(frame => Buffer.from(frame)),
        file,
      )
      t.equal(result.failure, 'provider_unavailable', `${file} cut after ${kept}`)
      cuts++
    }
  }
  t.ok(cuts >= 20, `${cuts} cuts`)
})

t.test('what a stream shows and when', async t => {
  t.test('the start comes first and once, the finish last and once', async t => {
    for (const { file, bytes, expected } of GOLDENS) {
      if (expected.failure !== undefined) continue
      const kinds = decode([bytes], file).map(delta => delta.kind)
      t.equal(kinds[0], 'start', file)
      t.equal(kinds.at(-1), 'finish', file)
      t.equal(kinds.filter(kind => kind === 'start').length, 1, file)
      t.equal(kinds.filter(kind => kind === 'finish').length, 1, file)
    }
  })

  t.test('a failure before any output shows nothing, so that another provider can be tried', async t => {
    for (const file of [
      'fail-prompt-blocked.json',
      'fail-error-under-200.json',
      'fail-error-in-array.json',
    ]) {
      const deltas: Delta[] = []
      const decoder = googleGemini.decoder(delta => deltas.push(delta))
      t.throws(() => decoder.frame('', golden(file).toString()), { name: 'GatewayError' })
      t.same(deltas, [], file)
    }
  })

  t.test('text goes out as it comes, before its message is complete', async t => {
    const deltas: Delta[] = []
    const decoder = googleGemini.decoder(delta => deltas.push(delta))
    decoder.frame('', chunk({ text: 'Hel' }))
    t.match(deltas.at(-1), { kind: 'text', item: 0, part: 0, text: 'Hel' })
    decoder.frame('', chunk({ text: 'lo' }))
    t.match(deltas.at(-1), { kind: 'text', item: 0, part: 0, text: 'lo' })
  })

  t.test('a message is closed when a call begins', async t => {
    const kinds = deltasOf(chunk({ text: 'Hm.' }), chunk({ functionCall: { name: 'f' } }), STOP).map(
      delta => delta.kind,
    )
    t.same(kinds, ['start', 'open', 'text', 'close', 'open', 'arguments', 'close', 'finish'])
  })

  t.test('a message that may still be cited waits for the end', async t => {
    const deltas = decode([golden('grounded-text-around-a-call.json')], '.json')
    const kinds = deltas.map(delta => ('item' in delta ? `${delta.kind} ${delta.item}` : delta.kind))
    t.same(kinds, [
      'start',
      'open 0',
      'text 0',
      'open 1',
      'arguments 1',
      'close 1',
      'open 2',
      'text 2',
      'annotation 0',
      'annotation 2',
      'close 0',
      'close 2',
      'finish',
    ])
  })

  t.test(
    'a reply cut by its limit or by a filter leaves its message open, for its status to say so',
    async t => {
      for (const file of ['finish-max-tokens.json', 'finish-safety.json', 'finish-prohibited.json']) {
        const kinds = decode([golden(file)], file).map(delta => delta.kind)
        t.same(kinds, ['start', 'open', 'text', 'finish'], file)
      }
    },
  )

  t.test('only the message that was cut is left open', async t => {
    const frame = JSON.stringify({
      candidates: [
        {
          content: { parts: [{ text: 'a' }, { functionCall: { name: 'f' } }, { text: 'b' }] },
          finishReason: 'MAX_TOKENS',
          groundingMetadata: {},
        },
      ],
    })
    const closed = deltasOf(frame).flatMap(delta => (delta.kind === 'close' ? delta.item : []))
    t.same(closed, [1, 0])
  })

  t.test('every count of tokens replaces the one before', async t => {
    const usages = decode([golden('usage-in-every-chunk.sse')], '.sse').filter(
      delta => delta.kind === 'usage',
    )
    t.match(
      usages.map(delta => delta.usage.outputTokens),
      [0, 1, 5],
    )
  })
})

t.test('content of any kind after a finish takes it back', async t => {
  const later = [
    { text: 'more' },
    { text: 'a thought', thought: true },
    { functionCall: { name: 'f', args: {} } },
    { executableCode: { language: 'PYTHON', code: 'x' } },
    { codeExecutionResult: { outcome: 'OUTCOME_OK', output: 'x' } },
    { inlineData: { mimeType: 'image/png', data: 'QUJD' } },
  ]
  for (const part of later) {
    const cut = [chunk({ text: 'a' }), STOP, chunk(part)]
    const name = JSON.stringify(part)
    t.throws(() => deltasOf(...cut), { name: 'GatewayError', code: 'provider_unavailable' }, name)
    t.match(collect(deltasOf(...cut, STOP)).finish, { native: 'STOP' }, `${name} and a finish`)
  }
  for (const part of [
    { text: '' },
    { text: '', thoughtSignature: 'c2ln' },
    { thoughtSignature: 'c2ln' },
    {},
    { tomorrow: 1 },
  ]) {
    const whole = deltasOf(chunk({ text: 'a' }), STOP, chunk(part))
    t.match(collect(whole).finish, { reason: 'stop' }, `${JSON.stringify(part)} says nothing`)
  }
})

t.test('hostile replies', async t => {
  t.test('arguments nested deeper than the stack are a failure of the provider', async t => {
    const depth = 200_000
    const deep = `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":${'['.repeat(depth)}${']'.repeat(depth)}}}}]}}]}`
    const decoder = googleGemini.decoder(() => undefined)
    t.throws(() => decoder.frame('', deep), { name: 'GatewayError', code: 'provider_unavailable' })
  })

  t.test('own keys named like the prototype change nothing', async t => {
    const frame =
      '{"__proto__":{"candidates":[]},"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"__proto__":{"x":1}}}}]},"finishReason":"STOP"}]}'
    const { calls } = collect(deltasOf(frame))
    t.same(calls, [{ callId: null, name: 'f', arguments: '{"__proto__":{"x":1}}' }])
    t.equal(({} as Record<string, unknown>)['x'], undefined)
  })

  t.test('wrong types everywhere are no fault of ours', async t => {
    const junk = [null, 0, -1, 0.5, '', 'x', true, [], [[]], {}, { index: 0 }]
    const keys = ['candidates', 'usageMetadata', 'promptFeedback', 'responseId', 'modelVersion', 'createTime']
    const inside = [
      'content',
      'finishReason',
      'groundingMetadata',
      'citationMetadata',
      'urlContextMetadata',
      'logprobsResult',
    ]
    const parts = [
      'text',
      'functionCall',
      'executableCode',
      'codeExecutionResult',
      'inlineData',
      'toolCall',
      'thoughtSignature',
      'thought',
    ]
    const frames = [
      ...keys.flatMap(key => junk.map(value => ({ [key]: value }))),
      ...inside.flatMap(key => junk.map(value => ({ candidates: [{ [key]: value }] }))),
      ...parts.flatMap(key =>
        junk.map(value => ({ candidates: [{ content: { parts: [{ [key]: value }] } }] })),
      ),
      ...['groundingSupports', 'groundingChunks', 'webSearchQueries'].flatMap(key =>
        junk.map(value => ({ candidates: [{ groundingMetadata: { [key]: value } }] })),
      ),
    ]
    for (const frame of frames) {
      const text = JSON.stringify(frame)
      try {
        collect(deltasOf(chunk({ text: 'a' }), text, STOP))
      } catch (thrown) {
        t.type(thrown, GatewayError, text)
      }
    }
    t.ok(frames.length > 200)
  })

  t.test('a grounding with no end of supports costs little', async t => {
    const supports = Array.from({ length: 20_000 }, (_, index) => ({
      segment: { startIndex: index, endIndex: index + 9, text: 'not there' },
      groundingChunkIndices: [0],
    }))
    const groundingMetadata = {
      groundingChunks: [{ web: { uri: 'https://a.example/' } }],
      groundingSupports: supports,
    }
    const frame = JSON.stringify({
      candidates: [
        { content: { parts: [{ text: 'é'.repeat(100_000) }] }, finishReason: 'STOP', groundingMetadata },
      ],
    })
    const annotations = deltasOf(frame).filter(delta => delta.kind === 'annotation')
    t.equal(annotations.length, 512)
  })
})
