import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { bedrockConverse } from '../../../src/formats/bedrock-converse.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { decodeStream } from '../../support/decode-reply.ts'
import { endpointOf } from '../../support/endpoint.ts'
import { goldens } from '../../support/goldens.ts'
import { arrivals } from '../../support/recordings.ts'
import { collect } from '../delta-items.ts'

const GOLDENS = goldens('bedrock-converse')
const CLAUDE = endpointOf('bedrock-converse', {
  upstreamModel: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0',
})

function outcome(decode: () => readonly Delta[]): unknown {
  try {
    const { start, items, usage, finish, progress } = collect(decode())
    return plain({ start, items, usage, finish, progress })
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    const { code: failure, message, metadata } = thrown
    return plain({ failure, message, metadata })
  }
}

function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value))
}

function body(text: string): readonly Delta[] {
  const deltas: Delta[] = []
  const decoder = bedrockConverse.decoder(delta => deltas.push(delta), CLAUDE)
  decoder.frame('', text)
  decoder.end()
  return deltas
}

t.test('every golden reply decodes to its expected outcome, however it arrives', async t => {
  for (const { file, bytes, streamed, expected } of GOLDENS) {
    if (!streamed) {
      t.strictSame(
        outcome(() => body(bytes.toString('utf8'))),
        expected,
        file,
      )
      continue
    }
    for (const { name, chunks } of arrivals(bytes)) {
      const decoded = outcome(() => decodeStream(bedrockConverse, chunks, CLAUDE))
      t.strictSame(decoded, expected, `${file} arriving ${name}`)
    }
  }
  t.equal(GOLDENS.length, 10)
})

t.test('a stream that is cut before its stop is a failure, wherever the cut is', async t => {
  let cuts = 0
  for (const { file, bytes, streamed, expected } of GOLDENS) {
    if (!streamed || (expected as { failure?: string }).failure !== undefined) continue
    // An event is told once its last byte is there.
    const stop = bytes.indexOf('messageStop')
    for (let end = 0; end < bytes.length; end += 7) {
      const result = outcome(() => decodeStream(bedrockConverse, [bytes.subarray(0, end)], CLAUDE))
      if (end < stop) t.match(result, { failure: 'provider_unavailable' }, `${file} cut at ${end}`)
      cuts++
    }
  }
  t.ok(cuts > 200)
})

t.test("a thought is Claude's own only where the model is Claude", async t => {
  const bytes = GOLDENS.find(({ name }) => name === 'thought-and-calls')?.bytes ?? Buffer.alloc(0)
  const formats = (upstreamModel: string) =>
    collect(
      decodeStream(bedrockConverse, [bytes], endpointOf('bedrock-converse', { upstreamModel })),
    ).items.flatMap(item => (item['type'] === 'reasoning' ? [item['format']] : []))
  t.same(formats('deepseek.r1-v1:0'), [null, null])
  t.same(formats('eu.anthropic.claude-opus-4-8'), ['anthropic-claude-v1', 'anthropic-claude-v1'])
})

t.test('a reply of endless blocks is ended', async t => {
  const start = '{"contentBlockIndex":N,"start":{"toolUse":{"toolUseId":"t","name":"f"}}}'
  const decoder = bedrockConverse.decoder(() => undefined)
  t.throws(
    () => {
      for (let n = 0; n < 10_000; n++) decoder.frame('contentBlockStart', start.replace('N', String(n)))
    },
    { code: 'reply_too_large', message: /more than/ },
  )
})

t.test('frames of a wrong shape are failures of the provider, and odd fields are passed over', async t => {
  for (const data of ['[]', '"x"', '{', 'null']) {
    t.throws(() => bedrockConverse.decoder(() => undefined).frame('messageStart', data), {
      code: 'provider_unavailable',
    })
  }
  const odd = [
    ['contentBlockDelta', '{"contentBlockIndex":"0","delta":7}'],
    ['contentBlockDelta', '{"delta":{"text":5}}'],
    ['contentBlockDelta', '{"contentBlockIndex":9,"delta":{"toolUse":{"input":"{}"}}}'],
    ['contentBlockStop', '{"contentBlockIndex":99}'],
    ['messageStop', '{"stopReason":""}'],
    ['metadata', '{"usage":{"inputTokens":-3,"outputTokens":"12"}}'],
    ['messageStop', '{"stopReason":"a_new_reason"}'],
  ]
  const deltas: Delta[] = []
  const decoder = bedrockConverse.decoder(delta => deltas.push(delta))
  for (const [type = '', data = ''] of odd) decoder.frame(type, data)
  decoder.end()
  t.match(collect(deltas), {
    items: [],
    usage: { inputTokens: 0, outputTokens: 12 },
    finish: { reason: 'other', native: 'a_new_reason' },
  })
})
