/**
 * Usage objects of kinds that other gateways and trackers have priced wrongly, as reported in public: writes to a cache
 * by their time to live, cached input counted twice, thoughts left out, sums of streams. Each is decoded streamed and
 * whole, and its price is exact.
 */
import t from 'tap'
import type { Delta, Usage } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { priceUsage } from '../../src/pipeline/accounting/charge.ts'
import type { Endpoint, FormatName } from '../../src/protocol/provider.ts'

type Fields = Readonly<Record<string, unknown>>

/** In units of 1e-12 USD a token, each with a digit of its own. */
const PRICES = {
  prompt: 3_000_000,
  completion: 15_000_000,
  request: 0,
  inputCacheRead: 300_000,
  inputCacheWrite: 3_750_000,
  inputCacheWrite1h: 6_000_000,
  audio: 10_000_000,
}

/** Tokens by what is charged for them, each in one place only. */
interface Tokens {
  readonly fresh?: number
  readonly read?: number
  readonly write5m?: number
  readonly write1h?: number
  readonly audio?: number
  readonly output?: number
}

function priceOf(tokens: Tokens): number {
  const { fresh = 0, read = 0, write5m = 0, write1h = 0, audio = 0, output = 0 } = tokens
  return (
    fresh * PRICES.prompt +
    read * PRICES.inputCacheRead +
    write5m * PRICES.inputCacheWrite +
    write1h * PRICES.inputCacheWrite1h +
    audio * PRICES.audio +
    output * PRICES.completion
  )
}

type Frames = readonly (readonly [event: string, data: Fields | string])[]

interface Reply {
  readonly whole: Fields
  readonly stream: Frames
}

/** `start`: what a stream tells before its end. */
type Build = (usage: Fields, start: Fields | null) => Reply

const typed = (type: string, fields: Fields) => [type, { type, ...fields }] as const

const BUILD: Readonly<Record<FormatName, Build>> = {
  'anthropic-messages'(usage, start) {
    const head = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm' }
    const content_block = { type: 'text', text: '' }
    return {
      whole: { ...head, content: [{ type: 'text', text: 'Tea' }], stop_reason: 'end_turn', usage },
      stream: [
        typed('message_start', {
          message: {
            ...head,
            content: [],
            stop_reason: null,
            usage: start ?? { ...usage, output_tokens: 1 },
          },
        }),
        typed('content_block_start', { index: 0, content_block }),
        typed('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'Tea' } }),
        typed('content_block_stop', { index: 0 }),
        typed('message_delta', { delta: { stop_reason: 'end_turn' }, usage }),
        typed('message_stop', {}),
      ],
    }
  },
  'openai-chat'(usage, start) {
    const chunk = (fields: Fields) =>
      ['', { id: 'c', object: 'chat.completion.chunk', model: 'm', choices: [], ...fields }] as const
    const choice = (delta: Fields, finish_reason: string | null) => [{ index: 0, delta, finish_reason }]
    return {
      whole: {
        id: 'c',
        object: 'chat.completion',
        model: 'm',
        choices: [{ index: 0, message: { role: 'assistant', content: 'Tea' }, finish_reason: 'stop' }],
        usage,
      },
      stream: [
        chunk({ choices: choice({ content: 'Tea' }, null), ...(start === null ? {} : { usage: start }) }),
        chunk({ choices: choice({}, 'stop') }),
        chunk({ usage }),
        ['', '[DONE]'],
      ],
    }
  },
  'openai-responses'(usage) {
    const part = { type: 'output_text', text: 'Tea', annotations: [] }
    const item = { type: 'message', id: 'i', role: 'assistant', status: 'completed', content: [part] }
    const head = { id: 'r', object: 'response', model: 'm' }
    const whole = { ...head, status: 'completed', output: [item], usage }
    const at = { item_id: 'i', output_index: 0, content_index: 0 }
    return {
      whole,
      stream: [
        typed('response.created', { response: { ...head, status: 'in_progress', output: [], usage: null } }),
        typed('response.output_item.added', {
          output_index: 0,
          item: { ...item, status: 'in_progress', content: [] },
        }),
        typed('response.content_part.added', { ...at, part: { ...part, text: '' } }),
        typed('response.output_text.delta', { ...at, delta: 'Tea' }),
        typed('response.output_text.done', { ...at, text: 'Tea' }),
        typed('response.content_part.done', { ...at, part }),
        typed('response.output_item.done', { output_index: 0, item }),
        typed('response.completed', { response: whole }),
      ],
    }
  },
  'google-gemini'(usageMetadata, start) {
    const content = { role: 'model', parts: [{ text: 'Tea' }] }
    const ended = { content: { role: 'model', parts: [{ text: '' }] }, finishReason: 'STOP', index: 0 }
    return {
      whole: { candidates: [{ content, finishReason: 'STOP', index: 0 }], usageMetadata },
      stream: [
        ['', { candidates: [{ content, index: 0 }], usageMetadata: start ?? usageMetadata }],
        ['', { candidates: [ended], usageMetadata }],
      ],
    }
  },
  'bedrock-converse'(usage) {
    return {
      whole: {
        output: { message: { role: 'assistant', content: [{ text: 'Tea' }] } },
        stopReason: 'end_turn',
        usage,
      },
      stream: [
        ['messageStart', { role: 'assistant' }],
        ['contentBlockDelta', { contentBlockIndex: 0, delta: { text: 'Tea' } }],
        ['contentBlockStop', { contentBlockIndex: 0 }],
        ['messageStop', { stopReason: 'end_turn' }],
        ['metadata', { usage }],
      ],
    }
  },
}

interface Row {
  readonly name: string
  readonly format: FormatName
  readonly usage: Fields
  readonly start?: Fields
  /** Where a stream tells it otherwise. */
  readonly streamed?: Fields
  readonly model?: string
  readonly tokens: Tokens
  readonly reasoning?: number
}

const CLAUDE = 'anthropic-messages'
const CHAT = 'openai-chat'
const RESPONSES = 'openai-responses'
const GEMINI = 'google-gemini'
const ROCK = 'bedrock-converse'

const ROWS: readonly Row[] = [
  {
    name: 'a write for an hour at the price of one for five minutes',
    format: CLAUDE,
    usage: {
      input_tokens: 14,
      cache_read_input_tokens: 0,
      cache_creation_input_tokens: 8_851,
      cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 8_851 },
      output_tokens: 4,
    },
    tokens: { fresh: 14, write1h: 8_851, output: 4 },
  },
  {
    name: 'writes of both times, charged as one and again by their parts',
    format: CLAUDE,
    usage: {
      input_tokens: 19,
      cache_read_input_tokens: 38_000,
      cache_creation_input_tokens: 1_000,
      cache_creation: { ephemeral_5m_input_tokens: 400, ephemeral_1h_input_tokens: 600 },
      output_tokens: 7,
    },
    tokens: { fresh: 19, read: 38_000, write5m: 400, write1h: 600, output: 7 },
  },
  {
    name: 'input beside the cache, which a subtraction brings below nothing',
    format: CLAUDE,
    usage: {
      input_tokens: 5,
      cache_read_input_tokens: 128_955,
      cache_creation_input_tokens: 1_253,
      output_tokens: 301,
    },
    tokens: { fresh: 5, read: 128_955, write5m: 1_253, output: 301 },
  },
  {
    name: 'only the split of the writes',
    format: CLAUDE,
    usage: {
      input_tokens: 31,
      cache_creation: { ephemeral_5m_input_tokens: 1_253, ephemeral_1h_input_tokens: 70 },
      output_tokens: 467,
    },
    tokens: { fresh: 31, write5m: 1_253, write1h: 70, output: 467 },
  },
  {
    name: 'the end of a stream added to its beginning',
    format: CLAUDE,
    usage: { output_tokens: 15 },
    start: { input_tokens: 25, cache_read_input_tokens: 6, output_tokens: 1 },
    streamed: { output_tokens: 15 },
    tokens: { fresh: 25, read: 6, output: 15 },
  },
  {
    name: 'searches of the provider, whose input is known only at the end',
    format: CLAUDE,
    usage: {
      input_tokens: 10_682,
      cache_read_input_tokens: 0,
      cache_creation_input_tokens: 0,
      output_tokens: 510,
      server_tool_use: { web_search_requests: 2 },
    },
    start: { input_tokens: 25, output_tokens: 3 },
    tokens: { fresh: 10_682, output: 510 },
  },
  {
    name: 'iterations of the tools of a provider, which are in the totals',
    format: CLAUDE,
    usage: {
      input_tokens: 900,
      cache_read_input_tokens: 4_000,
      cache_creation_input_tokens: 300,
      output_tokens: 120,
      iterations: [
        { type: 'message', input_tokens: 400, cache_read_input_tokens: 1_000, output_tokens: 50 },
        { type: 'message', input_tokens: 500, cache_read_input_tokens: 3_000, output_tokens: 70 },
      ],
    },
    tokens: { fresh: 900, read: 4_000, write5m: 300, output: 120 },
  },
  {
    name: 'a compaction, which is not in the totals',
    format: CLAUDE,
    usage: {
      input_tokens: 45,
      output_tokens: 80,
      iterations: [
        { type: 'compaction', input_tokens: 180_000, output_tokens: 3_500 },
        { type: 'message', input_tokens: 45, output_tokens: 80 },
      ],
    },
    tokens: { fresh: 180_045, output: 3_580 },
  },
  {
    name: 'an end that tells null for what it has told before',
    format: CLAUDE,
    usage: { input_tokens: 40, cache_read_input_tokens: 2_000, output_tokens: 9 },
    start: { input_tokens: 40, cache_read_input_tokens: 2_000, output_tokens: 1 },
    streamed: { input_tokens: null, cache_read_input_tokens: null, output_tokens: 9 },
    tokens: { fresh: 40, read: 2_000, output: 9 },
  },
  {
    name: 'thoughts, which are in the output',
    format: CLAUDE,
    usage: { input_tokens: 12, output_tokens: 830, output_tokens_details: { thinking_tokens: 800 } },
    tokens: { fresh: 12, output: 830 },
    reasoning: 800,
  },
  {
    name: 'cached input counted beside the input',
    format: CHAT,
    usage: {
      prompt_tokens: 17_903,
      completion_tokens: 50,
      total_tokens: 17_953,
      prompt_tokens_details: { cached_tokens: 17_817 },
    },
    tokens: { fresh: 86, read: 17_817, output: 50 },
  },
  {
    name: 'writes in the prompt at the price of the prompt',
    format: CHAT,
    usage: {
      prompt_tokens: 2_600,
      completion_tokens: 300,
      total_tokens: 2_900,
      prompt_tokens_details: { cached_tokens: 2_000, cache_write_tokens: 400 },
    },
    tokens: { fresh: 200, read: 2_000, write5m: 400, output: 300 },
  },
  {
    name: 'writes for an hour, as a gateway of another maker tells them',
    format: CHAT,
    usage: {
      prompt_tokens: 8_865,
      completion_tokens: 4,
      total_tokens: 8_869,
      cache_creation_input_tokens: 8_851,
      prompt_tokens_details: {
        cached_tokens: 0,
        cache_creation_tokens: 8_851,
        cache_creation_token_details: { ephemeral_5m_input_tokens: 51, ephemeral_1h_input_tokens: 8_800 },
      },
    },
    tokens: { fresh: 14, write5m: 51, write1h: 8_800, output: 4 },
  },
  {
    name: 'the names of Anthropic beside a prompt without them',
    format: CHAT,
    usage: {
      prompt_tokens: 31,
      completion_tokens: 467,
      total_tokens: 498,
      prompt_tokens_details: { cached_tokens: 0 },
      cache_creation_input_tokens: 1_253,
      cache_read_input_tokens: 0,
    },
    tokens: { fresh: 31, write5m: 1_253, output: 467 },
  },
  {
    name: 'the names of Anthropic in a prompt that has them in it',
    format: CHAT,
    usage: {
      prompt_tokens: 98_805,
      completion_tokens: 5_120,
      total_tokens: 103_925,
      prompt_tokens_details: { cached_tokens: 66_360, cache_creation_tokens: 32_435 },
      completion_tokens_details: { reasoning_tokens: 1_710 },
      cache_read_input_tokens: 66_360,
      cache_creation_input_tokens: 32_435,
    },
    tokens: { fresh: 10, read: 66_360, write5m: 32_435, output: 5_120 },
    reasoning: 1_710,
  },
  {
    name: 'hits of a cache beside the details that others have',
    format: CHAT,
    usage: {
      prompt_tokens: 36_100,
      prompt_cache_hit_tokens: 21_600,
      prompt_cache_miss_tokens: 14_500,
      completion_tokens: 1_200,
      total_tokens: 37_300,
    },
    tokens: { fresh: 14_500, read: 21_600, output: 1_200 },
  },
  {
    name: 'text tokens that have the cached ones in them',
    format: CHAT,
    usage: {
      prompt_tokens: 616,
      completion_tokens: 5,
      total_tokens: 621,
      prompt_tokens_details: { text_tokens: 616, cached_tokens: 615, audio_tokens: 0, image_tokens: 0 },
    },
    tokens: { fresh: 1, read: 615, output: 5 },
  },
  {
    name: 'thoughts beside the output, as the total tells',
    format: CHAT,
    usage: {
      prompt_tokens: 32,
      completion_tokens: 9,
      total_tokens: 135,
      prompt_tokens_details: { cached_tokens: 6 },
      completion_tokens_details: { reasoning_tokens: 94 },
    },
    tokens: { fresh: 26, read: 6, output: 103 },
    reasoning: 94,
  },
  {
    name: 'thoughts in the output, charged again',
    format: CHAT,
    usage: {
      prompt_tokens: 20,
      completion_tokens: 700,
      total_tokens: 720,
      completion_tokens_details: { reasoning_tokens: 640 },
    },
    tokens: { fresh: 20, output: 700 },
    reasoning: 640,
  },
  {
    name: 'usage in each chunk, added up',
    format: CHAT,
    usage: { prompt_tokens: 100, completion_tokens: 40, total_tokens: 140 },
    start: { prompt_tokens: 100, completion_tokens: 1, total_tokens: 101 },
    tokens: { fresh: 100, output: 40 },
  },
  {
    name: 'audio in the prompt at the price of text',
    format: CHAT,
    usage: {
      prompt_tokens: 150,
      completion_tokens: 8,
      total_tokens: 158,
      prompt_tokens_details: { audio_tokens: 120, cached_tokens: 0 },
    },
    tokens: { fresh: 30, audio: 120, output: 8 },
  },
  {
    name: 'writes left in the input and charged twice',
    format: RESPONSES,
    usage: {
      input_tokens: 18_014,
      input_tokens_details: { cached_tokens: 0, cache_write_tokens: 18_011 },
      output_tokens: 21,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 18_035,
    },
    tokens: { fresh: 3, write5m: 18_011, output: 21 },
  },
  {
    name: 'the same prompt read again',
    format: RESPONSES,
    usage: {
      input_tokens: 18_014,
      input_tokens_details: { cached_tokens: 18_011, cache_write_tokens: 0 },
      output_tokens: 21,
      output_tokens_details: { reasoning_tokens: 13 },
      total_tokens: 18_035,
    },
    tokens: { fresh: 3, read: 18_011, output: 21 },
    reasoning: 13,
  },
  {
    name: 'writes for an hour, as another gateway of this kind tells them',
    format: RESPONSES,
    usage: {
      input_tokens: 5_000,
      input_tokens_details: {
        cached_tokens: 1_000,
        cache_write_tokens: 3_000,
        cache_write_1h_tokens: 2_500,
      },
      output_tokens: 10,
      total_tokens: 5_010,
    },
    tokens: { fresh: 1_000, read: 1_000, write5m: 500, write1h: 2_500, output: 10 },
  },
  {
    name: 'audio of a Responses reply',
    format: RESPONSES,
    usage: {
      input_tokens: 90,
      input_tokens_details: { cached_tokens: 0, audio_tokens: 60 },
      output_tokens: 2,
      total_tokens: 92,
    },
    tokens: { fresh: 30, audio: 60, output: 2 },
  },
  {
    name: 'thoughts left out of the output',
    format: GEMINI,
    usage: {
      promptTokenCount: 55_021,
      candidatesTokenCount: 923,
      thoughtsTokenCount: 785,
      totalTokenCount: 56_729,
    },
    tokens: { fresh: 55_021, output: 1_708 },
    reasoning: 785,
  },
  {
    name: 'cached content counted beside the prompt',
    format: GEMINI,
    usage: {
      promptTokenCount: 11_125,
      cachedContentTokenCount: 7_441,
      candidatesTokenCount: 20,
      thoughtsTokenCount: 409,
      totalTokenCount: 11_554,
    },
    tokens: { fresh: 3_684, read: 7_441, output: 429 },
    reasoning: 409,
  },
  {
    name: 'prompts of tools beside the prompt',
    format: GEMINI,
    usage: {
      promptTokenCount: 11,
      toolUsePromptTokenCount: 9_204,
      candidatesTokenCount: 311,
      thoughtsTokenCount: 130,
      totalTokenCount: 9_656,
    },
    tokens: { fresh: 9_215, output: 441 },
    reasoning: 130,
  },
  {
    name: 'counts that grow from chunk to chunk, added up',
    format: GEMINI,
    usage: { promptTokenCount: 200, candidatesTokenCount: 90, totalTokenCount: 290 },
    start: { promptTokenCount: 200, candidatesTokenCount: 30, totalTokenCount: 230 },
    tokens: { fresh: 200, output: 90 },
  },
  {
    name: 'audio by the details of the prompt',
    format: GEMINI,
    usage: {
      promptTokenCount: 400,
      promptTokensDetails: [
        { modality: 'TEXT', tokenCount: 50 },
        { modality: 'AUDIO', tokenCount: 350 },
      ],
      candidatesTokenCount: 3,
      totalTokenCount: 403,
    },
    tokens: { fresh: 50, audio: 350, output: 3 },
  },
  {
    name: 'writes of both times at Bedrock',
    format: ROCK,
    usage: {
      inputTokens: 14,
      outputTokens: 4,
      totalTokens: 4_018,
      cacheReadInputTokens: 0,
      cacheWriteInputTokens: 4_000,
      cacheDetails: [
        { ttl: '1h', inputTokens: 3_000 },
        { ttl: '5m', inputTokens: 1_000 },
      ],
    },
    tokens: { fresh: 14, write5m: 1_000, write1h: 3_000, output: 4 },
  },
  {
    name: 'reads added to the input at Bedrock, writes not',
    format: ROCK,
    usage: {
      inputTokens: 7,
      outputTokens: 20,
      totalTokens: 13_027,
      cacheReadInputTokens: 12_000,
      cacheWriteInputTokens: 1_000,
    },
    tokens: { fresh: 7, read: 12_000, write5m: 1_000, output: 20 },
  },
  {
    name: 'input of a stream of an OpenAI model at Bedrock, which has the cache in it',
    format: ROCK,
    model: 'us.openai.gpt-5.6',
    usage: {
      inputTokens: 2,
      outputTokens: 19,
      totalTokens: 5_014,
      cacheReadInputTokens: 0,
      cacheWriteInputTokens: 4_993,
    },
    streamed: {
      inputTokens: 4_995,
      outputTokens: 19,
      totalTokens: 10_007,
      cacheReadInputTokens: 0,
      cacheWriteInputTokens: 4_993,
    },
    tokens: { fresh: 2, write5m: 4_993, output: 19 },
  },
]

function usageIn(format: FormatName, frames: Frames, model = 'm'): Usage | undefined {
  const found: Usage[] = []
  const endpoint = { upstreamModel: model, provider: { slug: 'p', quirks: [] } } as unknown as Endpoint
  const decoder = FORMATS[format].decoder((delta: Delta) => {
    if (delta.kind === 'usage') found.push(delta.usage)
  }, endpoint)
  for (const [event, data] of frames)
    decoder.frame(event, typeof data === 'string' ? data : JSON.stringify(data))
  decoder.end()
  return found.at(-1)
}

t.test('at least thirty rows, and some of every format', async t => {
  t.ok(ROWS.length >= 30)
  t.same(new Set(ROWS.map(({ format }) => format)), new Set(Object.keys(BUILD)))
})

for (const { name, format, usage, start, streamed, model, tokens, reasoning = 0 } of ROWS) {
  t.test(`${format}: ${name}`, async t => {
    const { whole } = BUILD[format](start === undefined ? usage : { ...start, ...usage }, null)
    const { stream } = BUILD[format](streamed ?? usage, start ?? null)
    for (const [way, frames] of [
      ['whole', [['', whole]]],
      ['streamed', stream],
    ] as const) {
      const told = usageIn(format, frames, model)
      if (told === undefined) throw new Error(`no usage ${way}`)
      t.equal(priceUsage(told, PRICES).total, priceOf(tokens), way)
      t.equal(told.outputTokens, tokens.output ?? 0, way)
      t.equal(told.reasoningTokens, reasoning, way)
      const { fresh = 0, read = 0, write5m = 0, write1h = 0, audio = 0 } = tokens
      t.equal(told.inputTokens, fresh + read + write5m + write1h + audio, way)
    }
  })
}
