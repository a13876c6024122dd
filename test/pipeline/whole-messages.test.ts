/** Messages of whole replies that are told as one: their clients get the same bytes as by the general way. */
import t, { type Test } from 'tap'
import { toGatewayError } from '../../src/base/errors.ts'
import type { Delta } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { jsonOf } from '../../src/formats/whole-message.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import { FinalSink } from '../../src/pipeline/answer/sink.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { chatCompletions, messages, parseResponsesRequest, responsesDialect } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'
import { goldens } from '../support/goldens.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'

const WHOLE = ['openai-responses', 'openai-chat', 'anthropic-messages'] as const
const DIALECTS = [responsesDialect, chatCompletions, messages]
const LONG = 'a "long" text\nof two lines \\ and ümlauts, '.repeat(12)
/** Ids of ours are random, also where they are packed together with a signature. */
const IDS = /"(?:msg|rs|fc|ctc|st|call)_[0-9A-Za-z]{20,}"|(?<=gateway-reasoning-v1\.\w+\.\w+\.)\w+/g

/** Bodies of a whole reply in all dialects, and what else a decoder tells. `told`: how many messages came as one. */
function bodiesOf(format: FormatName, document: string, wholes: boolean) {
  const request = parseResponsesRequest({ model: 'acme/recorded', input: 'hi' })
  const sink = new FinalSink({ keepsText: true })
  const answer = new Answer(sink, echoRequest(request, { id: 'gen-1-x', createdAt: 1, model: '' }))
  answer.openTurn(false)
  answer.begin('acme/recorded', 'Acme', [])
  const others: Delta[] = []
  let told = 0
  let said = ''
  const decoder = FORMATS[format].decoder(
    delta => {
      if ('text' in delta) said += delta.text
      if (delta.kind === 'start' || delta.kind === 'usage') others.push(delta)
      else if (delta.kind === 'finish') {
        others.push(delta)
        answer.finish(delta.reason, {
          completedAt: 2,
          usage: null,
          serviceTier: delta.serviceTier,
          metadata: null,
          nativeFinish: delta.native,
          stopSequence: delta.stopSequence ?? null,
        })
      } else answer.receive(delta)
    },
    endpointOf(format),
    wholes
      ? message => {
          told++
          said += message.text
          answer.message(message)
        }
      : null,
  )
  let failure: unknown = null
  try {
    decoder.frame('', document)
    decoder.end()
  } catch (thrown) {
    const { code, message } = toGatewayError(thrown)
    failure = { code, message }
  }
  const { response } = sink
  const bodies =
    response === null
      ? []
      : DIALECTS.map(dialect => sink.json(dialect.body(response, request)).replaceAll(IDS, '"id"'))
  return { told, compared: { others, failure, bodies, said: failure === null ? said : null } }
}

/** True if messages came as one; the result is compared. */
function isTold(t: Test, format: FormatName, document: string, name: string): boolean {
  const { told, compared } = bodiesOf(format, document, true)
  const general = bodiesOf(format, document, false).compared
  if (JSON.stringify(compared) !== JSON.stringify(general)) t.same(compared, general, name)
  return told > 0
}

for (const format of WHOLE) {
  t.test(`recorded ${format} replies come out the same`, { skip: withoutRecordings }, async t => {
    const all = recordings(format).filter(({ streamed }) => !streamed)
    const told = all.filter(one => isTold(t, format, one.bytes().toString(), one.file))
    t.ok(told.length > 15, `${told.length} of ${all.length} have a message that is told as one`)
  })

  t.test(`our own whole ${format} replies come out the same`, async t => {
    for (const { file, bytes } of goldens(format).filter(({ streamed }) => !streamed)) {
      isTold(t, format, bytes.toString(), file)
    }
  })
}

const REPLIES: Readonly<Record<(typeof WHOLE)[number], object>> = {
  'openai-responses': {
    id: 'resp_1',
    object: 'response',
    status: 'completed',
    model: 'm',
    output: [
      {
        id: 'msg_1',
        type: 'message',
        status: 'completed',
        role: 'assistant',
        content: [{ type: 'output_text', annotations: [], logprobs: [], text: LONG }],
      },
    ],
    text: { format: { type: 'text' } },
    usage: { input_tokens: 1, output_tokens: 2, total_tokens: 3 },
    incomplete_details: null,
  },
  'openai-chat': {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    model: 'm',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: LONG, refusal: null, annotations: [] },
        logprobs: null,
        finish_reason: 'stop',
      },
    ],
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  },
  'anthropic-messages': {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content: [{ type: 'text', text: LONG }],
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 2 },
  },
}

/** What may stand in place of any member or element. */
const ODD: readonly unknown[] = [
  null,
  '',
  'text',
  'x'.repeat(300),
  `"${'\u00e9"\\/\n\u0000'.repeat(60)}`,
  0,
  -1,
  true,
  [],
  {},
  [null],
  ['text'],
  [{ type: 'text', text: 'other' }],
  'length',
  'incomplete',
  'content_filter',
  'max_tokens',
  'refusal',
  'in_progress',
  'commentary',
  undefined,
]
const ADDED = [
  'phase',
  'citations',
  'annotations',
  'logprobs',
  'error',
  'extra',
  'refusal',
  'tool_calls',
  'reasoning_content',
  'output_text',
  'search_results',
]

/** The document with each of its values replaced, doubled or joined by another. */
function* damaged(value: unknown): Generator<unknown> {
  yield* ODD
  if (Array.isArray(value)) {
    yield [...value, ...value]
    for (const [at, one] of value.entries()) for (const odd of damaged(one)) yield value.with(at, odd)
  } else if (typeof value === 'object' && value !== null) {
    for (const [name, one] of Object.entries(value)) {
      for (const odd of damaged(one)) yield { ...value, [name]: odd }
    }
    for (const name of ADDED) for (const odd of ODD) yield { ...value, [name]: odd }
  }
}

for (const format of WHOLE) {
  t.test(`a ${format} reply with any value damaged comes out the same`, async t => {
    t.ok(isTold(t, format, JSON.stringify(REPLIES[format]), 'as it is'))
    let count = 0
    for (const one of damaged(REPLIES[format])) {
      count++
      isTold(t, format, JSON.stringify(one) ?? '', JSON.stringify(one)?.slice(0, 2_000) ?? '')
    }
    t.ok(count > 900, `${count} replies`)
  })
}

t.test('the text leaves as the provider wrote it, in any of its spellings', async t => {
  const reply = JSON.stringify(REPLIES['openai-responses'])
  for (const document of [
    reply,
    JSON.stringify(REPLIES['openai-responses'], null, 2),
    // Escapes that we would not write: the text is written again.
    reply.replaceAll('ü', '\\u00fc'),
    reply.replace('long', 'lo\\/ng'),
    // A name that ends like the one that is looked for, and the same name twice.
    reply.replace('{', `{"a\\"text":${JSON.stringify(LONG)},`),
    reply.replace('"text":"', `"text":${JSON.stringify(LONG.toUpperCase())},"text":"`),
    reply.replace('"text":"', '"te\\u0078t":"'),
  ]) {
    t.ok(isTold(t, 'openai-responses', document, document))
  }
})

t.test('a text is found only where the document has it as it would be written', async t => {
  const json = JSON.stringify(LONG)
  t.equal(jsonOf(LONG, `{"text":${json}}`, 'text'), json)
  t.equal(jsonOf(LONG, `{"text" : ${json}}`, 'text'), null)
  t.equal(jsonOf(LONG, `{"text": \n\t${json}}`, 'text'), json)
  t.equal(jsonOf(LONG, `{"text":{"text":""},"b":[{"text":${json}}]}`, 'text'), json)
  t.equal(jsonOf(LONG, `{"content":${json}}`, 'text'), null)
  t.equal(jsonOf(LONG, `{"a\\"text":${json}}`, 'text'), null)
  t.equal(jsonOf(LONG, `{"text":"${'\\\\'.repeat(200)}","b":1}`, 'text'), null)
  t.equal(jsonOf('short', '{"text":"short"}', 'text'), null)
  const slashes = '\\'.repeat(300)
  t.equal(jsonOf(slashes, JSON.stringify({ text: slashes }), 'text'), JSON.stringify(slashes))
})

t.test('a document that somebody reads before it leaves has its text', async t => {
  const sink = new FinalSink()
  t.equal(sink.keep('"x"'), null)
  t.equal(sink.json({ text: 'x' }), '{"text":"x"}')
})
