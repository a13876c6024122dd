/** Providers that send without end: the memory of what a reply keeps, and what it counts for that. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { INVOKE_MODEL } from '../../../src/formats/bedrock-converse/invoke.ts'
import type { Format } from '../../../src/formats/format.ts'
import { FORMATS } from '../../../src/formats/table.ts'
import type { Sink } from '../../../src/pipeline/answer/sink.ts'
import type { FormatName } from '../../../src/protocol/provider.ts'
import { awsMessage } from '../../support/aws-events.ts'
import { scriptedEndpoint, scriptedExchange, startScripted } from '../../support/scripted-attempt.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** Of a read buffer and of what a runtime keeps for itself. */
const SLACK_BYTES = 384 * 1024
const READ_BYTES = 65_536

/** A client that keeps nothing. */
const FORGETFUL: Sink = {
  live: true,
  relays: null,
  lastFrames: '',
  write: () => true,
  relay: () => true,
  cork: () => undefined,
  flush: () => true,
  onDrain: () => undefined,
  end: () => undefined,
}

interface Attack {
  readonly name: string
  /** Sent once, before it is measured. */
  readonly first?: string | Buffer
  readonly next: (at: number) => string | Buffer
  readonly count?: number
}

const COUNT = 100
/** Another one each time. */
const long = (at: number, chars = 20_000) => `${at}-${'x'.repeat(chars)}`
/** Three characters for an object, which takes twenty times as much. */
const dense = (objects = 6_000) => `[${'{},'.repeat(objects)}{}]`
/** Nearly as large as a frame may be. */
const HUGE = 900_000
const sse = (frame: unknown) => `data: ${typeof frame === 'string' ? frame : JSON.stringify(frame)}\n\n`

const created = sse({ type: 'response.created', response: { id: 'r', status: 'in_progress', output: [] } })
const added = (at: number, item: object) =>
  sse({ type: 'response.output_item.added', output_index: at, item })
const RESPONSES: readonly Attack[] = [
  { name: 'ids of items', first: created, next: at => added(at, { type: 'message', id: long(at) }) },
  {
    name: 'unknown items',
    first: created,
    next: at => added(at, { type: 'odd', id: `${at}`, odd: long(at) }),
  },
  {
    name: 'unknown items of many objects',
    first: created,
    next: at =>
      sse(`{"type":"response.output_item.done","output_index":${at},"item":{"type":"odd","odd":${dense()}}}`),
  },
  {
    name: 'unknown items of many objects in short frames',
    first: created,
    next: at =>
      sse(
        `{"type":"response.output_item.done","output_index":${at},"item":{"type":"odd","odd":${dense(600)}}}`,
      ),
    count: 1_000,
  },
  { name: 'unknown events', next: at => sse({ type: 'response.odd', odd: long(at) }) },
  {
    name: 'annotations',
    first: created + added(0, { type: 'message', id: 'm' }),
    next: at =>
      sse({
        type: 'response.output_text.annotation.added',
        output_index: 0,
        annotation: { type: 'url_citation', url: long(at), title: '', start_index: 0, end_index: 0 },
      }),
  },
  {
    name: 'log probabilities',
    first: created + added(0, { type: 'message', id: 'm' }),
    next: () =>
      sse(
        `{"type":"response.output_text.delta","output_index":0,"delta":"x","logprobs":[{"token":"x","logprob":-1,"bytes":[${'1,'.repeat(8_000)}1]}]}`,
      ),
  },
  {
    name: 'parts of a text',
    first: created + added(0, { type: 'message', id: 'm' }),
    next: at => sse({ type: 'response.output_text.delta', output_index: 0, content_index: at, delta: 'x' }),
    count: 4_000,
  },
  {
    name: 'parts of a summary',
    first: created,
    next: at =>
      sse({ type: 'response.reasoning_summary_text.delta', summary_index: at, delta: long(at, 500) }),
    count: 4_000,
  },
  {
    name: 'arguments of unknown calls',
    first: created,
    next: at => sse({ type: 'response.function_call_arguments.delta', item_id: `f${at}`, delta: long(at) }),
  },
  {
    name: 'the response again and again',
    next: at => sse({ object: 'response', status: 'in_progress', id: long(at, HUGE) }),
    count: 4,
  },
]

const choice = (delta: object, more: object = {}) =>
  sse({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta }], ...more })
const cited = (at: number) => [{ type: 'url_citation', url_citation: { url: long(at) } }]
const CHAT: readonly Attack[] = [
  { name: 'annotations before their text', next: at => choice({ annotations: cited(at) }) },
  {
    name: 'annotations of a refusal',
    first: choice({ refusal: 'x' }),
    next: at => choice({ annotations: cited(at) }),
  },
  {
    name: 'annotations with many objects',
    first: choice({ content: 'x' }),
    next: () =>
      sse(
        `{"choices":[{"index":0,"delta":{"annotations":[{"type":"file","file":{"hash":"x","content":${dense()}}}]}}]}`,
      ),
  },
  {
    name: 'log probabilities before their text',
    next: at =>
      sse({
        choices: [{ index: 0, delta: {}, logprobs: { content: [{ token: long(at), logprob: -1 }] } }],
      }),
  },
  {
    name: 'arguments before the name of their call',
    next: at => choice({ tool_calls: [{ index: 0, id: 'c', function: { arguments: long(at) } }] }),
  },
  {
    name: 'ids of calls that have begun',
    first: Array.from({ length: COUNT }, (_, index) =>
      choice({ tool_calls: [{ index, function: { name: 'f' } }] }),
    ).join(''),
    next: index => choice({ tool_calls: [{ index, id: long(index) }] }),
  },
  {
    name: 'signatures of calls that have begun',
    first: Array.from({ length: COUNT }, (_, index) =>
      choice({ tool_calls: [{ index, id: `${index}`, function: { name: 'f' } }] }),
    ).join(''),
    next: index =>
      choice({ tool_calls: [{ index, id: `${index}`, thought_signature: long(index), function: {} }] }),
  },
  {
    name: 'encrypted reasoning',
    next: at =>
      choice({
        reasoning_details: [
          { type: 'reasoning.text', text: 'x' },
          { type: 'reasoning.encrypted', data: `${at}`, id: long(at), format: long(at) },
        ],
      }),
  },
  {
    name: 'an index that is none',
    next: at =>
      choice({ reasoning_details: [{ type: 'reasoning.text', text: 'x', index: [long(at, HUGE)] }] }),
    count: 4,
  },
  { name: 'citations', next: at => choice({ content: 'x' }, { citations: [long(at, HUGE)] }), count: 4 },
  {
    name: 'search results of many objects',
    next: () => sse(`{"choices":[{"index":0,"delta":{"content":"x"}}],"search_results":${dense(190_000)}}`),
    count: 4,
  },
  { name: 'a long id', next: at => choice({ content: 'x' }, { id: long(at, HUGE) }), count: 4 },
  { name: 'a long tier', next: at => choice({}, { service_tier: long(at, HUGE) }), count: 4 },
  {
    name: 'a long reason',
    next: at => sse({ choices: [{ index: 0, delta: {}, finish_reason: long(at, HUGE) }] }),
    count: 4,
  },
  {
    name: 'tools',
    next: at => choice({ executed_tools: [{ index: at, type: 'search', arguments: long(at) }] }),
  },
  { name: 'usage', next: at => choice({}, { usage: { prompt_tokens: 1, [long(at)]: long(at) } }) },
  { name: 'half a frame of many lines', next: () => 'data:x\n'.repeat(1_000), count: 140 },
  { name: 'half a frame of empty lines', next: () => 'data:\n'.repeat(1_000), count: 160 },
]

const MESSAGES: readonly object[] = [
  { type: 'message_start', message: { id: 'm', model: 'm', usage: { input_tokens: 1 } } },
]
const block = (index: number, content_block: object) => ({
  type: 'content_block_start',
  index,
  content_block,
})
const piece = (delta: object) => ({ type: 'content_block_delta', index: 0, delta })
const ended = (delta: object, more: object = {}) => ({ type: 'message_delta', delta, ...more })
/** Those of the Messages API, in frames of one of its forms. */
const messages = (frame: (event: object) => string | Buffer): readonly Attack[] => {
  const begun = (...more: readonly object[]) =>
    Buffer.concat([...MESSAGES, ...more].map(event => Buffer.from(frame(event))))
  return [
    {
      name: 'usage under other names',
      first: begun(),
      next: at => frame(ended({}, { usage: { [`n${at}`]: long(at) } })),
    },
    {
      name: 'usage of many iterations',
      first: begun(),
      next: at => frame(ended({}, { usage: { iterations: [long(at, HUGE / 2)] } })),
      count: 4,
    },
    {
      name: 'edits with many counts',
      first: begun(),
      next: at => {
        const counts = Array.from({ length: 20_000 }, (_, index) => [`a${index}_${at}`, 1])
        const edit = { type: 'x', ...Object.fromEntries(counts) }
        return frame(ended({}, { context_management: { applied_edits: [edit] } }))
      },
      count: 4,
    },
    ...['stop_reason', 'stop_sequence'].map(name => ({
      name: `a long ${name}`,
      first: begun(),
      next: (at: number) => frame(ended({ [name]: long(at, HUGE / 2) })),
      count: 4,
    })),
    {
      name: 'long details of the stop',
      first: begun(),
      next: at =>
        frame(ended({ stop_details: { explanation: long(at, HUGE / 4), odd: long(at, HUGE / 4) } })),
      count: 4,
    },
    {
      name: 'a long id of a container',
      first: begun(),
      next: at => frame(ended({ container: { id: long(at, HUGE / 2) } })),
      count: 4,
    },
    {
      name: 'citations before the end of their block',
      first: begun(block(0, { type: 'text', text: '' })),
      next: at =>
        frame(
          piece({
            type: 'citations_delta',
            citation: { type: 'web_search_result_location', url: long(at), odd: Array(2_000).fill({}) },
          }),
        ),
    },
    {
      name: 'signatures',
      first: begun(block(0, { type: 'thinking', thinking: '' })),
      next: at => frame(piece({ type: 'signature_delta', signature: long(at) })),
    },
    {
      name: 'input of a tool that the provider runs',
      first: begun(block(0, { type: 'server_tool_use', id: 't', name: 'web_search', input: {} })),
      next: at => frame(piece({ type: 'input_json_delta', partial_json: long(at) })),
    },
    {
      name: 'a summary',
      first: begun(block(0, { type: 'compaction', content: '' })),
      next: at => frame(piece({ type: 'compaction_delta', [`n${at}`]: long(at) })),
    },
    {
      name: 'calls with input of many objects',
      first: begun(),
      next: at =>
        frame(block(at, { type: 'tool_use', id: `${at}`, name: 'f', input: { x: Array(5_000).fill({}) } })),
    },
    { name: 'unknown blocks', first: begun(), next: at => frame(block(at, { type: 'odd', odd: long(at) })) },
    {
      name: 'many blocks',
      first: begun(),
      next: at => frame(block(at, { type: 'text', text: 'a' })),
      count: 4_000,
    },
  ]
}

const gemini = (parts: readonly object[], more: object = {}, top: object = {}) =>
  sse({ candidates: [{ content: { parts }, ...more }], ...top })
const CALL = gemini([{ functionCall: { name: 'f', willContinue: true } }])
const partial = (partialArgs: readonly object[]) =>
  gemini([{ functionCall: { willContinue: true, partialArgs } }])
const RAN = gemini([{ executableCode: { code: 'x' } }, { codeExecutionResult: { output: 'x' } }])
const GEMINI: readonly Attack[] = [
  { name: 'signatures beside text', next: at => gemini([{ text: 'x', thoughtSignature: long(at) }]) },
  {
    name: 'sources of a text',
    first: gemini([{ text: 'x' }]),
    next: at => gemini([], { citationMetadata: { citations: [{ uri: long(at, 8_000), endIndex: 1 }] } }),
  },
  {
    name: 'titles of sources',
    first: gemini([{ text: 'x' }]),
    next: at =>
      gemini([], { citationMetadata: { citations: [{ uri: `${at}`, title: long(at), endIndex: 1 }] } }),
  },
  {
    name: 'quotations',
    first: gemini([{ text: 'x' }]),
    next: at =>
      gemini([], {
        groundingMetadata: {
          groundingChunks: [{ web: { uri: `${at}` } }],
          groundingSupports: [{ segment: { text: long(at) }, groundingChunkIndices: [0] }],
        },
      }),
  },
  {
    name: 'searches',
    first: gemini([{ text: 'x' }]),
    next: at => gemini([{ toolCall: { args: { queries: [long(at)] } } }]),
  },
  {
    name: 'pages',
    first: gemini([{ text: 'x' }]),
    next: at => gemini([], { urlContextMetadata: { urlMetadata: [{ retrievedUrl: long(at) }] } }),
  },
  {
    name: 'images of code',
    first: RAN,
    next: at => gemini([{ inlineData: { mimeType: 'image/png', data: long(at) } }]),
  },
  {
    name: 'results of code',
    first: RAN,
    next: at => gemini([{ codeExecutionResult: { output: long(at) } }]),
  },
  {
    name: 'arguments in pieces',
    first: CALL,
    next: at => partial([{ jsonPath: `$.x${at}`, stringValue: long(at) }]),
  },
  {
    name: 'arguments in places that are deep',
    first: CALL,
    next: at =>
      partial(
        Array.from({ length: 200 }, (_, index) => ({
          jsonPath: `$.a${at}_${index}${'.b'.repeat(50)}`,
          numberValue: 1,
        })),
      ),
    count: 40,
  },
  {
    name: 'log probabilities, whose bytes the gateway adds',
    first: gemini([{ text: 'x' }]),
    next: at =>
      gemini([{ text: 'x' }], {
        logprobsResult: { chosenCandidates: [{ token: long(at), logProbability: -1 }] },
      }),
  },
  {
    name: 'text and thoughts in turn',
    next: at => gemini([{ text: 'a', thought: at % 2 === 0 }]),
    count: 4_000,
  },
  { name: 'a long reason', next: at => gemini([], { finishReason: long(at, HUGE) }), count: 4 },
  {
    name: 'a long id',
    next: at => gemini([{ text: 'x' }], {}, { responseId: long(at, HUGE) }),
    count: 4,
  },
]

const aws = (type: string, fields: object) => awsMessage(type, JSON.stringify(fields))
const reasoning = (fields: object) =>
  aws('contentBlockDelta', { contentBlockIndex: 0, delta: { reasoningContent: fields } })
const CONVERSE: readonly Attack[] = [
  { name: 'a signature in pieces', next: at => reasoning({ signature: long(at) }) },
  { name: 'sealed reasoning in pieces', next: at => reasoning({ redactedContent: long(at) }) },
  {
    name: 'names of calls',
    next: at =>
      aws('contentBlockStart', {
        contentBlockIndex: at,
        start: { toolUse: { toolUseId: `${at}`, name: long(at) } },
      }),
  },
  { name: 'a long reason', next: at => aws('messageStop', { stopReason: long(at, HUGE) }), count: 4 },
  {
    name: 'a long tier',
    next: at => aws('metadata', { serviceTier: { type: long(at, HUGE) } }),
    count: 4,
  },
]

const chunk = (event: object) =>
  aws('chunk', { bytes: Buffer.from(JSON.stringify(event)).toString('base64'), p: 'abcd' })

/** Memory of the process after what nobody needs is gone. */
function memory(): number {
  collect()
  collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

async function attack(
  name: FormatName,
  { first = '', next, count = COUNT }: Attack,
  format: Format = FORMATS[name],
) {
  const held = {
    bytes: 0,
    count(more: number) {
      this.bytes += more
      return true
    },
  }
  const endpoint = { ...scriptedEndpoint(name), drawsImages: false }
  const exchange = scriptedExchange({}, held)
  const { handler, run, over, client } = startScripted(endpoint, FORGETFUL, exchange, null, format)
  const failed = over.catch((thrown: unknown) => thrown)
  const send = (frames: string | Buffer) => {
    // A socket reuses its memory.
    const bytes = Buffer.from(typeof frames === 'string' ? frames : Buffer.from(frames))
    for (let at = 0; at < bytes.length; at += READ_BYTES)
      handler.onData(Buffer.from(bytes.subarray(at, at + READ_BYTES)))
  }
  if (first.length > 0) send(first)
  const before = { memory: memory(), held: held.bytes }
  for (let at = 0; at < count && !client.aborted; at++) send(next(at))
  await new Promise(setImmediate)
  const kept = memory() - before.memory
  const counted = held.bytes - before.held
  const isOpen = !client.aborted
  run.fail(new GatewayError('client_closed', 'over'))
  return { kept, counted, isOpen, error: await failed }
}

const FORMS: readonly (readonly [name: FormatName, attacks: readonly Attack[], format?: Format])[] = [
  ['openai-responses', RESPONSES],
  ['openai-chat', CHAT],
  ['anthropic-messages', messages(sse)],
  ['google-gemini', GEMINI],
  ['bedrock-converse', CONVERSE],
  ['bedrock-converse', messages(chunk), { name: 'bedrock-converse', ...INVOKE_MODEL }],
]

for (const [name, attacks, format] of FORMS) {
  t.test(`what a reply keeps, it counts: ${name}${format === undefined ? '' : ', other form'}`, async t => {
    for (const each of attacks) {
      const { kept, counted, isOpen } = await attack(name, each, format)
      const told = `${each.name}: keeps ${kept} and counts ${counted} bytes`
      t.ok(kept < counted + SLACK_BYTES, told)
      t.ok(isOpen, `${each.name}: the reply goes on`)
    }
  })
}

t.test('an event inside of a message is nested no deeper than any other', async t => {
  const deep = `{"type":"ping","x":${'['.repeat(300_000)}`
  const bytes = Buffer.from(deep).toString('base64')
  const { isOpen, error } = await attack(
    'bedrock-converse',
    { name: 'depth', next: () => aws('chunk', { bytes }), count: 1 },
    { name: 'bedrock-converse', ...INVOKE_MODEL },
  )
  t.notOk(isOpen)
  t.match(error, {
    code: 'reply_too_large',
    message: 'The provider sent a value that is nested too deeply',
  })
})

t.test('each format is attacked', async t => {
  t.strictSame([...new Set(FORMS.map(([name]) => name))].toSorted(), Object.keys(FORMATS).toSorted())
})

t.test('a usual reply counts little', async t => {
  const text = (at: number) => choice({ content: `word${at} ` }, { citations: ['https://a.example'] })
  const { counted } = await attack('openai-chat', { name: 'text', next: text, count: 2_000 })
  t.ok(counted < 128 * 1024, `${counted} bytes`)
})
