/**
 * Every way to spend more than a limit that was ever tried: of many requests at once a key pays no more than its limit
 * and one request. Each provider bills what it says, whatever it was asked for.
 */
import t, { type Test } from 'tap'
import { MAX_WAITING_PER_KEY } from '../../src/callers/limits/reservation-wait.ts'
import { startGateway } from '../support/gateway.ts'
import { startToldProvider, type ToldReply } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'
import { responsesReply } from '../support/world.ts'

const LIMIT_USD = 1
const AT_ONCE = 60
/** USD for an output token, and for one of input where it is read as text. */
const OUTPUT_USD = 0.00001
const INPUT_USD = 0.00001
const MAX_OUTPUT = 20_000
const usd = (price: number): string => price.toFixed(12)
/** Letters of a prompt; four of them are a token. */
const PROMPT = 'read this '.repeat(400)
const PROMPT_TOKENS = PROMPT.length / 4
/** Base64 of about so much sound. */
const SOUND = `//uQ${'A'.repeat(64_000)}`

interface Way {
  readonly name: string
  /** Of the endpoint's row. */
  readonly pricing?: Readonly<Record<string, unknown>>
  /** Default: Chat Completions. */
  readonly format?: 'openai-chat' | 'anthropic-messages' | 'openai-responses'
  /** Default: Responses. */
  readonly path?: string
  readonly row?: Readonly<Record<string, unknown>>
  readonly ask: Readonly<Record<string, unknown>>
  /** Answers one request. */
  readonly reply: (reply: ToldReply) => void
  /** USD that one request costs. */
  readonly costs: number
}

/** Tokens that the provider was told to keep to. */
const capOf = ({ body }: ToldReply): number => Number(body['max_completion_tokens'] ?? MAX_OUTPUT)
const usageOf = (prompt: number, completion: number, more: object = {}) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  ...more,
})

/** Thinks as much as it may and shows one word. */
function think(reply: ToldReply): void {
  const tokens = Math.min(MAX_OUTPUT, capOf(reply))
  const usage = usageOf(1, tokens, { completion_tokens_details: { reasoning_tokens: tokens - 1 } })
  if (reply.body['stream'] !== true) reply.whole('yes', usage)
  else {
    reply.say({ content: 'yes' })
    reply.finish(usage)
  }
}

/** All of a long text in one piece. */
function blurt(reply: ToldReply): void {
  const tokens = Math.min(MAX_OUTPUT, capOf(reply))
  reply.say({ content: 'word'.repeat(tokens) })
  reply.finish(usageOf(1, tokens))
}

const HIDDEN = { ask: { stream: true }, reply: think, costs: MAX_OUTPUT * OUTPUT_USD }
const ONE_WORD = { max_output_tokens: 16, stream: true }
const say = (usage: object) => (reply: ToldReply) => {
  reply.say({ content: 'yes' })
  reply.finish(usage as Record<string, unknown>)
}

const CACHED = { prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: PROMPT_TOKENS } }
/** A reply of Anthropic's API that has read this much. */
const messageOf = (usage: object): string =>
  [
    {
      type: 'message_start',
      message: {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        model: 'm',
        content: [],
        stop_reason: null,
        usage,
      },
    },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'yes' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } },
    { type: 'message_stop' },
  ]
    .map(event => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
    .join('')
const HOUR_WRITES = messageOf({
  input_tokens: 1,
  output_tokens: 1,
  cache_creation_input_tokens: PROMPT_TOKENS,
  cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: PROMPT_TOKENS },
})
const textPart = (more: object = {}) => [
  { role: 'user', content: [{ type: 'input_text', text: PROMPT, ...more }] },
]
const AUDIO_TOKENS = SOUND.length / 32

const WAYS: readonly Way[] = [
  { name: 'thinking that nobody asked for', ...HIDDEN },
  ...[{ effort: 'none' }, { enabled: false }, { max_tokens: 0 }].map(reasoning => ({
    ...HIDDEN,
    name: `thinking although it is off: ${JSON.stringify(reasoning)}`,
    ask: { stream: true, reasoning },
  })),
  {
    ...HIDDEN,
    name: 'thinking of a model that does not take reasoning',
    row: { supportedParameters: ['max_tokens'] },
  },
  { ...HIDDEN, name: 'thinking in whole replies', ask: { reasoning: { effort: 'none' } } },
  {
    ...HIDDEN,
    name: 'streams in one piece',
    ask: { stream: true, reasoning: { effort: 'none' } },
    reply: blurt,
  },
  {
    ...HIDDEN,
    name: 'streams that are one document',
    ask: { stream: true, reasoning: { effort: 'none' } },
    reply: reply => {
      const tokens = Math.min(MAX_OUTPUT, capOf(reply))
      reply.whole('word'.repeat(tokens), usageOf(1, tokens))
    },
  },
  {
    name: 'cache writes of five minutes',
    pricing: { prompt: usd(INPUT_USD), inputCacheWrite: usd(4 * INPUT_USD) },
    ask: { ...ONE_WORD, input: textPart({ cache_control: { type: 'ephemeral' } }) },
    reply: say(usageOf(PROMPT_TOKENS, 1, CACHED)),
    costs: PROMPT_TOKENS * 4 * INPUT_USD,
  },
  ...[
    { input: textPart({ cache_control: { type: 'ephemeral', ttl: '1h' } }) },
    { input: PROMPT, cache_control: { type: 'ephemeral', ttl: '1h' } },
  ].map((fields, at) => ({
    name: `cache writes by the hour, marked in place ${at}`,
    format: 'anthropic-messages' as const,
    pricing: {
      prompt: usd(INPUT_USD),
      inputCacheWrite: usd(1.25 * INPUT_USD),
      inputCacheWrite1h: usd(4 * INPUT_USD),
    },
    ask: { ...ONE_WORD, ...fields },
    reply: (reply: ToldReply) => reply.raw(HOUR_WRITES),
    costs: PROMPT_TOKENS * 4 * INPUT_USD,
  })),
  {
    name: 'sound',
    pricing: { prompt: usd(INPUT_USD), audio: usd(3 * INPUT_USD) },
    ask: {
      ...ONE_WORD,
      input: [
        { role: 'user', content: [{ type: 'input_audio', input_audio: { data: SOUND, format: 'mp3' } }] },
      ],
    },
    reply: say(usageOf(AUDIO_TOKENS, 1, { prompt_tokens_details: { audio_tokens: AUDIO_TOKENS } })),
    costs: AUDIO_TOKENS * 3 * INPUT_USD,
  },
  {
    name: 'prices of long prompts',
    pricing: {
      prompt: usd(INPUT_USD),
      overrides: [{ minPromptTokens: PROMPT_TOKENS + 1, prompt: usd(8 * INPUT_USD) }],
    },
    ask: { ...ONE_WORD, input: PROMPT },
    reply: say(usageOf(PROMPT_TOKENS + 100, 1)),
    costs: (PROMPT_TOKENS + 100) * 8 * INPUT_USD,
  },
  {
    name: 'fees of requests',
    pricing: { request: '0.05' },
    ask: ONE_WORD,
    reply: say(usageOf(1, 1)),
    costs: 0.05,
  },
  {
    name: 'images',
    pricing: { image: '0.05' },
    ask: {
      ...ONE_WORD,
      input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'https://example.com/a.png' }] }],
    },
    reply: say(usageOf(1_000, 1)),
    costs: 0.05,
  },
]

const MESSAGE = { max_tokens: 16, stream: true, messages: [{ role: 'user', content: 'Hi' }] }
const SEARCHED = {
  pricing: { prompt: usd(INPUT_USD) },
  row: { contextLength: 200_000 },
  format: 'anthropic-messages' as const,
  reply: (reply: ToldReply) => reply.raw(messageOf({ input_tokens: 60_000, output_tokens: 1 })),
  costs: 60_000 * INPUT_USD,
}
/** A whole stream of the Responses API that has read this much. */
const responseOf = (usage: object): string => {
  const response = { ...responsesReply('yes'), usage }
  return [
    { type: 'response.created', response: { ...response, status: 'in_progress', output: [], usage: null } },
    { type: 'response.completed', response },
  ]
    .map(
      (event, at) => `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number: at })}\n\n`,
    )
    .join('')
}
const link = (part: object) => ({ ...ONE_WORD, input: [{ role: 'user', content: [part] }] })
const FETCHED: readonly Way[] = [
  {
    name: 'an image behind a link',
    pricing: { prompt: usd(INPUT_USD) },
    ask: link({ type: 'input_image', image_url: 'https://example.com/large.png' }),
    reply: say(usageOf(4_800, 1)),
    costs: 4_800 * INPUT_USD,
  },
  {
    name: 'a file behind a link',
    pricing: { prompt: usd(INPUT_USD) },
    row: { contextLength: 60_000 },
    ask: link({ type: 'input_file', file_url: 'https://example.com/long.pdf' }),
    format: 'anthropic-messages',
    reply: reply => reply.raw(messageOf({ input_tokens: 50_000, output_tokens: 1 })),
    costs: 50_000 * INPUT_USD,
  },
  {
    name: 'a file behind a link that costs more than there is',
    pricing: { prompt: usd(INPUT_USD) },
    row: { contextLength: 1_000_000 },
    ask: link({ type: 'input_file', file_url: 'https://example.com/long.pdf' }),
    format: 'anthropic-messages',
    reply: reply => reply.raw(messageOf({ input_tokens: 900_000, output_tokens: 1 })),
    costs: 900_000 * INPUT_USD,
  },
  ...[
    { type: 'web_search' },
    { type: 'gateway:web_search', parameters: { engine: 'native' } },
    { type: 'gateway:web_search' },
    { type: 'openrouter:web_search', parameters: { engine: 'auto' } },
    { type: 'gateway:web_fetch', parameters: { engine: 'native' } },
    { type: 'gateway:web_fetch' },
    { type: 'code_interpreter', container: { type: 'auto' } },
  ].map((tool, at) => ({
    ...SEARCHED,
    name: `a tool that the provider runs, in spelling ${at}`,
    ask: { ...ONE_WORD, tools: [tool] },
  })),
  ...[
    {
      tools: [
        { type: 'mcp', server_label: 'a', server_url: 'https://example.com/', require_approval: 'never' },
      ],
    },
    { tools: [{ type: 'mcp', server_label: 'a', connector_id: 'connector_gmail' }] },
    {
      input: [
        { type: 'additional_tools', role: 'developer', tools: [{ type: 'web_search' }] },
        { role: 'user', content: 'Hi' },
      ],
    },
  ].map((fields, at) => ({
    ...SEARCHED,
    name: `a server that the provider asks, in spelling ${at}`,
    format: 'openai-responses' as const,
    ask: { ...ONE_WORD, ...fields },
    reply: (reply: ToldReply) => reply.raw(responseOf({ input_tokens: 60_000, output_tokens: 1 })),
  })),
  {
    ...SEARCHED,
    name: 'servers of a client of Messages',
    path: '/messages',
    ask: {
      ...MESSAGE,
      mcp_servers: [{ type: 'url', name: 'a', url: 'https://example.com/' }],
    },
  },
  {
    ...SEARCHED,
    name: 'a search of a client of Messages',
    path: '/messages',
    ask: { ...MESSAGE, tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
  },
  {
    ...SEARCHED,
    name: 'the search options of a client of Chat Completions',
    path: '/chat/completions',
    format: 'openai-chat' as const,
    ask: { max_tokens: 16, stream: true, messages: MESSAGE.messages, web_search_options: {} },
    reply: say(usageOf(60_000, 1)),
  },
]

async function start(
  t: Test,
  { pricing = {}, row = {}, format = 'openai-chat', path = '/responses' }: Partial<Way>,
) {
  const provider = await startToldProvider(t)
  const prices = { completion: usd(OUTPUT_USD), ...pricing }
  const clock = new TestClock()
  const gateway = await startGateway({
    clock,
    providers: [{ slug: 'told', format, baseUrl: provider.baseUrl }],
    models: [
      {
        id: 'told/model',
        maxOutputTokens: MAX_OUTPUT,
        inputModalities: ['text', 'image', 'audio', 'file'],
        endpoints: [{ provider: 'told', pricing: prices, ...row }],
      },
    ],
  })
  t.teardown(() => gateway.close())
  const newKey = async (limit: number | null): Promise<string> => {
    const reply = await fetch(`${gateway.url}/keys`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'limited', limit }),
    })
    return String(((await reply.json()) as { key: unknown }).key)
  }
  const ask = async (key: string, body: object): Promise<{ status: number; text: string }> => {
    const answer = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'told/model',
        ...('messages' in body ? {} : { input: 'Hi' }),
        ...body,
      }),
    })
    return { status: answer.status, text: await answer.text() }
  }
  return {
    provider,
    newKey,
    ask,
    /** Many requests of a new key; no reply ends before each has been asked for or is refused. The statuses. */
    async askAtOnce(way: Pick<Way, 'ask' | 'reply'>): Promise<readonly number[]> {
      const waiting: ToldReply[] = []
      provider.onReply = reply => void waiting.push(reply)
      const key = await newKey(LIMIT_USD)
      let refused = 0
      const asked = Array.from({ length: AT_ONCE }, async () => {
        const { status } = await ask(key, way.ask)
        if (status !== 200) refused++
        return status
      })
      while (waiting.length + refused < AT_ONCE) {
        // The rest waits for reserved money, in vain.
        if (waiting.length + refused >= AT_ONCE - MAX_WAITING_PER_KEY) clock.advance(10)
        await new Promise(resolve => setImmediate(resolve))
      }
      for (const reply of waiting) way.reply(reply)
      return await Promise.all(asked)
    },
    async spent(): Promise<number> {
      await gateway.shipper.ship()
      const { values } = await gateway.serving.metrics.cost.get()
      return values.reduce((sum, { value }) => sum + value, 0)
    },
  }
}

for (const way of [...WAYS, ...FETCHED]) {
  t.test(`a limit holds against ${way.name}`, async t => {
    const s = await start(t, way)
    const statuses = await s.askAtOnce(way)
    t.same(
      [...new Set(statuses)].filter(status => status !== 200 && status !== 429),
      [],
      'what is reserved by others is 429',
    )
    const served = statuses.filter(status => status === 200).length
    t.ok(served > 0)
    const spent = await s.spent()
    t.comment(`${served} of ${AT_ONCE} served, ${spent.toFixed(2)} USD spent`)
    t.ok(spent <= LIMIT_USD + way.costs, `${spent} USD`)
    t.ok(spent >= way.costs * 0.99, 'what the provider has read is charged')
  })
}

t.test(
  'two keys that teach an endpoint to be believed do not let a third one spend more than its limit',
  async t => {
    const s = await start(t, {})
    const teachers = await Promise.all([s.newKey(null), s.newKey(null)])
    s.provider.onReply = reply => {
      for (let piece = 0; piece < 20; piece++) reply.say({ content: 'four words are here ' })
      reply.finish(usageOf(1, 80))
    }
    for (let time = 0; time < 40; time++) {
      const { status } = await s.ask(teachers[time % 2] ?? '', { stream: true })
      t.equal(status, 200)
    }
    const before = await s.spent()
    await s.askAtOnce(HIDDEN)
    const spent = (await s.spent()) - before
    t.comment(`${spent.toFixed(2)} USD spent`)
    t.ok(spent > 0)
    t.ok(spent <= LIMIT_USD + MAX_OUTPUT * OUTPUT_USD, `${spent} USD`)
  },
)
