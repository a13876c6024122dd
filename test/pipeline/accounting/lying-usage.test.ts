/** What a provider may charge with the counts that it reports, in every format, streamed and whole. */
import fc from 'fast-check'
import t from 'tap'
import type { Usage } from '../../../src/formats/format.ts'
import { settle } from '../../../src/pipeline/accounting/charge.ts'
import { EMBEDDING_ESTIMATES } from '../../../src/pipeline/accounting/embeddings.ts'
import { plausibleUsage } from '../../../src/pipeline/accounting/usage-check.ts'
import { FinalSink, type Sink } from '../../../src/pipeline/answer/sink.ts'
import { type Endpoint, FORMAT_NAMES, type FormatName } from '../../../src/protocol/provider.ts'
import { awsMessage } from '../../support/aws-events.ts'
import { search } from '../../support/property.ts'
import {
  scriptedEndpoint,
  scriptedExchange,
  scriptedRecord,
  startScripted,
} from '../../support/scripted-attempt.ts'

const CONTEXT = 128_000
const OUTPUT = 4_000
/** Each kind of token has a price of its own, so that a shift between kinds shows. */
const PRICING = {
  prompt: 1_000,
  completion: 3_000,
  request: 0,
  inputCacheRead: 100,
  inputCacheWrite: 1_250,
  inputCacheWrite1h: 2_000,
  audio: 9_000,
}

function endpointOf(format: FormatName): Endpoint {
  return {
    ...scriptedEndpoint(format),
    contextLength: CONTEXT,
    maxOutputTokens: OUTPUT,
    pricing: PRICING,
    drawsImages: false,
  }
}

/** The counts that a provider tells. */
interface Told {
  readonly input: number
  readonly output: number
  readonly cached: number
  readonly written: number
  readonly hour: number
  readonly audio: number
  readonly thought: number
  readonly searches: number
}

const HONEST: Told = {
  input: 5,
  output: 2,
  cached: 0,
  written: 0,
  hour: 0,
  audio: 0,
  thought: 0,
  searches: 0,
}

const sse = (...frames: readonly object[]) =>
  Buffer.from(
    frames
      .map(
        frame =>
          `event: ${(frame as { type?: string }).type ?? 'message'}\ndata: ${JSON.stringify(frame)}\n\n`,
      )
      .join(''),
  )
const json = (value: object) => Buffer.from(JSON.stringify(value))

interface Wire {
  whole(told: Told): Buffer
  stream(told: Told): Buffer
}

const chatUsage = (told: Told) => ({
  prompt_tokens: told.input,
  completion_tokens: told.output,
  prompt_tokens_details: {
    cached_tokens: told.cached,
    cache_write_tokens: told.written,
    cache_write_1h_tokens: told.hour,
    audio_tokens: told.audio,
  },
  completion_tokens_details: { reasoning_tokens: told.thought },
  server_tool_use: { web_search_requests: told.searches },
})

const responsesUsage = (told: Told) => ({
  input_tokens: told.input,
  output_tokens: told.output,
  input_tokens_details: {
    cached_tokens: told.cached,
    cache_write_tokens: told.written,
    cache_write_1h_tokens: told.hour,
    audio_tokens: told.audio,
  },
  output_tokens_details: { reasoning_tokens: told.thought },
  server_tool_use_details: { web_search_requests: told.searches },
})

const MESSAGE = {
  type: 'message',
  id: 'msg_1',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'output_text', text: 'Hello', annotations: [] }],
}
const responseOf = (told: Told) => ({
  id: 'resp_1',
  object: 'response',
  status: 'completed',
  output: [MESSAGE],
  usage: responsesUsage(told),
})

const messagesUsage = (told: Told) => ({
  input_tokens: told.input,
  output_tokens: told.output,
  cache_read_input_tokens: told.cached,
  cache_creation_input_tokens: told.written,
  cache_creation: { ephemeral_1h_input_tokens: told.hour },
  output_tokens_details: { thinking_tokens: told.thought },
  server_tool_use: { web_search_requests: told.searches },
})

const geminiReply = (told: Told) => ({
  candidates: [
    {
      content: { role: 'model', parts: [{ text: 'Hello' }] },
      finishReason: 'STOP',
      groundingMetadata: told.searches > 0 ? { webSearchQueries: ['a'] } : undefined,
    },
  ],
  usageMetadata: {
    promptTokenCount: told.input,
    candidatesTokenCount: told.output,
    cachedContentTokenCount: told.cached,
    thoughtsTokenCount: told.thought,
    toolUsePromptTokenCount: told.written,
    promptTokensDetails: [{ modality: 'AUDIO', tokenCount: told.audio }],
  },
})

const bedrockUsage = (told: Told) => ({
  inputTokens: told.input,
  outputTokens: told.output,
  totalTokens: told.input + told.output,
  cacheReadInputTokens: told.cached,
  cacheWriteInputTokens: told.written,
  cacheDetails: [{ ttl: '1h', inputTokens: told.hour }],
})

const WIRES: Readonly<Record<FormatName, Wire>> = {
  'openai-chat': {
    whole: told =>
      json({
        id: 'c',
        object: 'chat.completion',
        choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Hello' } }],
        usage: chatUsage(told),
      }),
    stream: told =>
      Buffer.concat([
        sse(
          { id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta: { content: 'Hello' } }] },
          {
            id: 'c',
            object: 'chat.completion.chunk',
            choices: [{ index: 0, delta: {}, finish_reason: 'stop' }],
            usage: chatUsage(told),
          },
        ),
        Buffer.from('data: [DONE]\n\n'),
      ]),
  },
  'openai-responses': {
    whole: told => json(responseOf(told)),
    stream: told => sse({ type: 'response.completed', response: responseOf(told) }),
  },
  'anthropic-messages': {
    whole: told =>
      json({
        id: 'm',
        type: 'message',
        role: 'assistant',
        content: [{ type: 'text', text: 'Hello' }],
        stop_reason: 'end_turn',
        usage: messagesUsage(told),
      }),
    stream: told =>
      sse(
        {
          type: 'message_start',
          message: { id: 'm', type: 'message', role: 'assistant', content: [], usage: messagesUsage(told) },
        },
        { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
        { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } },
        { type: 'content_block_stop', index: 0 },
        { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: messagesUsage(told) },
        { type: 'message_stop' },
      ),
  },
  'google-gemini': {
    whole: told => json(geminiReply(told)),
    stream: told => sse(geminiReply(told)),
  },
  'bedrock-converse': {
    whole: told =>
      json({
        output: { message: { role: 'assistant', content: [{ text: 'Hello' }] } },
        stopReason: 'end_turn',
        usage: bedrockUsage(told),
      }),
    stream: told =>
      Buffer.concat([
        awsMessage('messageStart', '{"role":"assistant"}'),
        awsMessage('contentBlockDelta', '{"contentBlockIndex":0,"delta":{"text":"Hello"}}'),
        awsMessage('contentBlockStop', '{"contentBlockIndex":0}'),
        awsMessage('messageStop', '{"stopReason":"end_turn"}'),
        awsMessage('metadata', JSON.stringify({ usage: bedrockUsage(told) })),
      ]),
  },
}

/** The charge for a reply with these counts. */
async function chargedFor(
  format: FormatName,
  told: Told,
  { stream, ...fields }: { readonly stream: boolean } & Record<string, unknown>,
) {
  const exchange = scriptedExchange({ stream, ...fields })
  const { run, handler, record, over } = startScripted(endpointOf(format), new FinalSink() as Sink, exchange)
  handler.onData(stream ? WIRES[format].stream(told) : WIRES[format].whole(told))
  handler.onEnd()
  await over
  settle(exchange, record, run.figures)
  const { total } = exchange.bill
  if (total === null) throw new Error('nothing was charged')
  return { ...total, sentBytes: run.figures.sentBytes }
}

const count = fc.oneof(
  { weight: 2, arbitrary: fc.constant(0) },
  fc.constantFrom(1, 5, 2 ** 31, 1e12, 1e15, Number.MAX_SAFE_INTEGER),
  fc.nat(200_000),
)
const lies = fc.record({
  input: count,
  output: count,
  cached: count,
  written: count,
  hour: count,
  audio: count,
  thought: count,
  searches: count,
})
/** Output: at most four tokens for each of five letters, and what the model may hide. */
const OUTPUT_MOST = 5 * 4 + OUTPUT

for (const format of FORMAT_NAMES) {
  for (const stream of [false, true]) {
    const way = stream ? 'a stream' : 'a whole reply'
    t.test(`${format}: honest counts of ${way} are charged as they are`, async t => {
      const { cost, isExact: exact, usage } = await chargedFor(format, HONEST, { stream })
      t.match(usage, { inputTokens: 5, outputTokens: 2 })
      t.equal(cost, 5 * PRICING.prompt + 2 * PRICING.completion)
      t.equal(exact, true)
    })

    t.test(`${format}: no counts of ${way} charge a plain prompt for more than its bytes`, async () => {
      await fc.assert(
        fc.asyncProperty(lies, async told => {
          const { cost, usage, sentBytes } = await chargedFor(format, told, { stream })
          const inputMost = sentBytes + 4_096 + 100
          if (usage.inputTokens > inputMost || usage.outputTokens > OUTPUT_MOST) return false
          if (usage.webSearchRequests !== 0 || (usage.audioTokens ?? 0) !== 0) return false
          const isMarked = format === 'anthropic-messages' || format === 'bedrock-converse'
          if (isMarked && usage.cacheWriteTokens !== 0) return false
          return cost <= inputMost * PRICING.inputCacheWrite + OUTPUT_MOST * PRICING.completion
        }),
        search(60),
      )
    })

    t.test(`${format}: with a search, no counts of ${way} charge more than one context`, async () => {
      const fields = { tools: [{ type: 'web_search' }] }
      await fc.assert(
        fc.asyncProperty(lies, async told => {
          const endpoint = format === 'bedrock-converse' || format === 'openai-chat' ? {} : fields
          const { usage } = await chargedFor(format, told, { stream, ...endpoint })
          return usage.inputTokens <= CONTEXT && usage.outputTokens <= OUTPUT_MOST
        }),
        search(60),
      )
    })
  }
}

const usageOf = (more: Partial<Usage>): Usage => ({
  inputTokens: 5,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 2,
  reasoningTokens: 0,
  webSearchRequests: 0,
  ...more,
})
const callOf = (
  format: FormatName,
  fields: Record<string, unknown>,
  more: Partial<Endpoint> = {},
  isRemembered = false,
) => ({
  request: scriptedExchange(fields).request,
  endpoint: { ...endpointOf(format), ...more },
  figures: { outputQuarters: 5, sentBytes: 100 },
  isRemembered,
})

t.test('a search counts where the request or the row of the endpoint has one', async t => {
  const searched = usageOf({ inputTokens: 100_000, webSearchRequests: 1 })
  const counted = (call: ReturnType<typeof callOf>) => {
    const { inputTokens, webSearchRequests } = plausibleUsage(searched, call, 1)
    return { inputTokens, webSearchRequests }
  }
  const all = { inputTokens: 100_000, webSearchRequests: 1 }
  t.match(counted(callOf('openai-chat', {})), { inputTokens: 4_197, webSearchRequests: 0 })
  t.match(counted(callOf('openai-chat', { web_search_options: {} })), all)
  t.match(counted(callOf('openai-responses', { tools: [{ type: 'web_search' }] })), all)
  t.match(counted(callOf('openai-chat', {}, { supportedParameters: new Set(['web_search_options']) })), all)
  const fn = { type: 'function', name: 'web_search', parameters: {} }
  t.match(counted(callOf('openai-chat', { tools: [fn] })), { webSearchRequests: 0 })
  const ours = { tools: [{ type: 'gateway:datetime' }] }
  t.match(counted(callOf('openai-chat', ours)), { webSearchRequests: 0 })
})

t.test('writes to a cache of marked prompts count where somebody set a mark', async t => {
  const written = usageOf({ inputTokens: 100, cacheWriteTokens: 90, cacheWrite1hTokens: 90 })
  const counted = (call: ReturnType<typeof callOf>) => {
    const { cacheWriteTokens, cacheWrite1hTokens = 0 } = plausibleUsage(written, call, 1)
    return [cacheWriteTokens, cacheWrite1hTokens]
  }
  const format = 'anthropic-messages'
  t.same(counted(callOf(format, {})), [0, 0])
  t.same(counted(callOf(format, { cache_control: { type: 'ephemeral' } })), [90, 0])
  t.same(counted(callOf(format, { cache_control: { type: 'ephemeral', ttl: '1h' } })), [90, 90])
  t.same(counted(callOf(format, {}, {}, true)), [90, 0], 'the gateway may have marked it')
  const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' }
  const output = { type: 'function_call_output', call_id: 'c', output: 'x' }
  t.same(counted(callOf(format, { input: [{ role: 'user', content: 'x' }, call, output] })), [90, 0])
  t.same(counted(callOf('openai-responses', {})), [90, 0], 'its provider writes by itself')
})

t.test('counts that a provider told before its reply was cut are bounded too', async t => {
  const exchange = scriptedExchange({ stream: true })
  const usage = usageOf({ inputTokens: 1e15, outputTokens: 1e15 })
  const endpoint = endpointOf('anthropic-messages')
  settle(exchange, scriptedRecord({ endpoint }), {
    usage,
    finish: { reason: 'length', native: null, serviceTier: null },
    outputQuarters: 40,
    isThoughtSeen: false,
    sentBytes: 100,
    isCut: true,
    isStalled: false,
    wasPaused: false,
    pieceQuarters: 40,
  })
  const charged = exchange.bill.total?.usage
  t.match(charged, { inputTokens: 4_197, outputTokens: 40 * 4 + OUTPUT })
})

t.test('a provider that tells no output is bounded in its input', async t => {
  const { usage } = await chargedFor('openai-chat', { ...HONEST, input: 1e15, output: 0 }, { stream: true })
  t.ok(usage.inputTokens < 5_000)
  t.equal(usage.outputTokens, 2, 'the output is estimated')
})

t.test('an embeddings model reads its context once for each input', async t => {
  const request = { model: 'm', input: [{ content: 'a' }, { content: 'b' }, { content: 'c' }] }
  const endpoint = { ...endpointOf('openai-chat'), contextLength: 100 }
  const observed = { outputQuarters: 0, sentBytes: 60 }
  await fc.assert(
    fc.property(lies, told => {
      const usage = usageOf({ inputTokens: told.input, outputTokens: 0, webSearchRequests: told.searches })
      const bounded = EMBEDDING_ESTIMATES.plausible(usage, {
        request: request as never,
        endpoint,
        figures: observed,
        isRemembered: false,
      })
      return bounded.inputTokens <= 300 && bounded.webSearchRequests === 0
    }),
    search(),
  )
  t.end()
})
