/** POST /messages with the official client where a turn does not simply end: pauses, cache marks, limits, failures. */
import Anthropic, { APIError } from '@anthropic-ai/sdk'
import t from 'tap'
import { simModel } from '../../src/apps/simulator/rows.ts'
import { eventsIn, gathered, type Loose } from '../dialects/messages-stream.ts'
import { startGateway } from '../support/gateway.ts'
import {
  FORMATS,
  goldenReply,
  parrotRows,
  type ReplayedReply,
  speaking,
  startParrot,
  startReplayProvider,
} from '../support/provider.ts'

const STATUSES = [400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529] as const
const replay = await startReplayProvider()
const parrot = await startParrot(t)
const rows = parrotRows(parrot.url)
const gateway = await startGateway({
  providers: [...replay.rows.providers, ...rows.providers],
  models: [
    ...replay.rows.models,
    ...rows.models,
    ...STATUSES.map(status => simModel(`fail-status-${status}`, 'anthropic-messages')),
  ],
})
t.teardown(async () => {
  await gateway.close()
  replay.close()
})

const client = new Anthropic({
  baseURL: `http://127.0.0.1:${gateway.port}`,
  apiKey: gateway.apiKey,
  maxRetries: 0,
})
const user = (content: Anthropic.MessageParam['content']) => [{ role: 'user' as const, content }]

t.test('a turn that paused goes on with what it had, as the tool runner sends it back', async t => {
  replay.asked.length = 0
  replay.next.push(
    goldenReply('anthropic-messages', 'pause-turn'),
    goldenReply('anthropic-messages', 'plain-text'),
  )
  const seen: string[] = []
  const runner = client.beta.messages.toolRunner({
    model: 'replay/anthropic-messages',
    max_tokens: 500,
    messages: [{ role: 'user', content: 'Search' }],
    tools: [
      { type: 'web_search_20250305', name: 'web_search' },
      { type: 'code_execution_20250825', name: 'code_execution' },
    ],
    stream: true,
  })
  for await (const stream of runner) seen.push(String((await stream.finalMessage()).stop_reason))
  t.same(seen, ['pause_turn', 'end_turn'])
  t.equal(replay.asked.length, 2)
  t.match(replay.asked[1], {
    messages: [
      { role: 'user' },
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'Searching.' },
          { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: { query: 'long' } },
          { type: 'server_tool_use', id: 'srvtoolu_2', name: 'code_execution', input: { code: 'x' } },
        ],
      },
    ],
  })
  t.match(replay.asked[1]?.['messages'], { length: 2 })
})

/** A reply of Anthropic's API, whole or as a stream. */
function written(content: readonly object[], stream: boolean, more: object = {}): ReplayedReply {
  const usage = { input_tokens: 9, output_tokens: 9 }
  const head = { id: 'msg_1', type: 'message', role: 'assistant', model: 'claude', usage }
  const stop = { stop_reason: 'end_turn', stop_sequence: null }
  if (!stream) {
    const body = { ...head, content, ...stop, ...more }
    return { bytes: Buffer.from(JSON.stringify(body)), streamed: false }
  }
  const events: readonly { readonly type: string }[] = [
    { type: 'message_start', message: { ...head, content: [], stop_reason: null } } as { type: string },
    ...content.flatMap((content_block, index) => [
      { type: 'content_block_start', index, content_block },
      { type: 'content_block_stop', index },
    ]),
    { type: 'message_delta', delta: stop, usage, ...more } as { type: string },
    { type: 'message_stop' },
  ]
  const text = events.map(event => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('')
  return { bytes: Buffer.from(text), streamed: true }
}

const ask = async (stream: boolean, fields: object = {}) => {
  const reply = await fetch(`http://127.0.0.1:${gateway.port}/v1/messages`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.apiKey}`,
      'content-type': 'application/json',
      'x-gateway-metadata': 'enabled',
    },
    body: JSON.stringify({
      model: 'replay/anthropic-messages',
      max_tokens: 100,
      messages: user('hi'),
      stream,
      ...fields,
    }),
  })
  t.equal(reply.status, 200)
  return stream ? gathered(eventsIn(await reply.text())) : ((await reply.json()) as Loose)
}

t.test('a result of a tool of the provider comes after its call, whatever id it names', async t => {
  const call = (id: string, name: string) => ({ type: 'server_tool_use', id, name, input: {} })
  const found = { type: 'web_search_tool_result', tool_use_id: 'toolu_other_1', content: [] }
  const ran = {
    type: 'code_execution_tool_result',
    tool_use_id: 'toolu_other_2',
    content: { type: 'code_execution_result', stdout: '1', stderr: '', return_code: 0, content: [] },
  }
  const content = [
    call('srvtoolu_1', 'code_execution'),
    call('srvtoolu_2', 'web_search'),
    found,
    ran,
    { type: 'text', text: 'Done.' },
  ]
  for (const stream of [false, true]) {
    replay.next.push(written(content, stream))
    const types = ((await ask(stream))['content'] as Loose[]).map(({ type, name }) => name ?? type)
    for (const name of ['web_search', 'code_execution'])
      t.same(types.slice(types.indexOf(name))[1], `${name}_tool_result`)
    t.equal(types.at(-1), 'text')
  }
  const late = { ...ran, tool_use_id: 'srvtoolu_0' }
  replay.next.push(written([late, call('srvtoolu_1', 'web_search'), found], false))
  t.match(
    (await ask(false))['content'],
    [
      { type: 'code_execution_tool_result', tool_use_id: 'srvtoolu_0' },
      { type: 'server_tool_use' },
      { type: 'web_search_tool_result' },
    ],
    'a result of a call in an earlier reply stands alone',
  )
})

t.test('edits that the caller asks for are told, also where the provider makes none', async t => {
  const context_management = { edits: [{ type: 'clear_tool_uses_20250919' }] }
  const edit = { type: 'clear_tool_uses_20250919', cleared_tool_uses: 2, cleared_input_tokens: 500 }
  const more = {
    context_management: { applied_edits: [{ ...edit, words: 'of a provider' }, 'x', { type: 7 }] },
  }
  const text = [{ type: 'text', text: 'Done.' }]
  for (const stream of [false, true]) {
    replay.next.push(written(text, stream, more))
    const own = await ask(stream, { context_management })
    t.same(own['context_management'], { applied_edits: [edit] })
    t.notOk(JSON.stringify(own).includes('translation'))
    replay.next.push(written(text, stream))
    t.same((await ask(stream, { context_management }))['context_management'], { applied_edits: [] })
    replay.next.push(written(text, stream, more))
    t.notOk('context_management' in (await ask(stream)), 'nobody asked')
    for (const format of FORMATS.filter(each => each !== 'anthropic-messages')) {
      parrot.parts = speaking('fine')
      const other = await ask(stream, { context_management, model: `parrot/${format}` })
      t.same(other['context_management'], { applied_edits: [] }, format)
      t.match(
        (other['gateway_metadata'] as Loose)['pipeline'],
        [{ type: 'translation', data: { changes: [{ field: 'context_management', action: 'dropped' }] } }],
        format,
      )
    }
  }
})

t.test('cache marks reach providers of this API as they are, and none reaches others', async t => {
  const mark = { cache_control: { type: 'ephemeral' as const } }
  const texts = ['one', 'two', 'three', 'four', 'five', 'six']
  for (const format of FORMATS) {
    parrot.parts = speaking('fine')
    await client.messages.create({
      model: `parrot/${format}`,
      max_tokens: 50,
      system: [{ type: 'text', text: 'Be brief', ...mark }],
      tools: [{ name: 'f', input_schema: { type: 'object' }, ...mark }],
      messages: user(texts.map(text => ({ type: 'text' as const, text, ...mark }))),
    })
    const asked = parrot.bodies.at(-1) ?? ''
    if (format !== 'anthropic-messages') {
      t.notMatch(asked, /cache_control|ephemeral/, format)
      continue
    }
    const marked = asked.match(/"text":"(\w+)","cache_control":\{"type":"ephemeral"\}/g) ?? []
    t.same(
      marked.map(text => /"text":"(\w+)"/.exec(text)?.[1]),
      texts,
    )
    t.equal(asked.split('"cache_control"').length - 1, texts.length + 2, 'the provider judges them')
  }
})

t.test('a budget for thoughts between calls may be above the limit of one answer', async t => {
  const thinking = { type: 'enabled' as const, budget_tokens: 9000 }
  for (const format of FORMATS) {
    const body = { model: `parrot/${format}`, max_tokens: 2000, thinking, messages: user('hi') }
    parrot.parts = speaking('fine')
    const betas = ['interleaved-thinking-2025-05-14']
    const { stop_reason: stop } = await client.beta.messages.create({ ...body, betas })
    t.equal(stop, 'end_turn', format)
    if (format === 'anthropic-messages') t.match(JSON.parse(parrot.bodies.at(-1) ?? ''), { thinking })
    await t.rejects(client.messages.create(body), {
      status: 400,
      message: /max_tokens: must be greater than/,
    })
  }
})

t.test(
  'a stop sequence reaches every provider whose API has them, and the one that was found is told',
  async t => {
    const names: Readonly<Record<string, string>> = {
      'openai-chat': 'stop',
      'google-gemini': 'stopSequences',
    }
    for (const format of FORMATS) {
      parrot.parts = speaking('fine')
      await client.messages.create({
        model: `parrot/${format}`,
        max_tokens: 50,
        stop_sequences: ['END', '\n\nHuman:'],
        messages: user('hi'),
      })
      const name = names[format] ?? 'stop_sequences'
      // Responses has no word for it.
      if (format === 'openai-responses') t.notMatch(parrot.bodies.at(-1), 'Human')
      else t.match(parrot.bodies.at(-1), `"${name}":["END","\\n\\nHuman:"]`, format)
    }
    replay.next.push(goldenReply('anthropic-messages', 'stop-sequence'))
    const stream = client.messages.stream({
      model: 'replay/anthropic-messages',
      max_tokens: 50,
      stop_sequences: ['Two'],
      messages: user('hi'),
    })
    t.match(await stream.finalMessage(), { stop_reason: 'stop_sequence', stop_sequence: 'Two' })
  },
)

/** The provider's types, by the status that a client gets. */
const TYPES: Readonly<Record<number, string | RegExp>> = {
  400: 'invalid_request_error',
  413: 'request_too_large',
  422: 'invalid_request_error',
  429: 'rate_limit_error',
  502: 'api_error',
  503: /^(?:api|overloaded)_error$/,
  524: 'timeout_error',
  529: 'overloaded_error',
}

t.test(
  'a failure of every status has its envelope with the id of the request, streamed and whole',
  async t => {
    const told = new Map<number, number>()
    for (const status of STATUSES) {
      for (const stream of [false, true]) {
        const model = `sim/messages-fail-status-${status}`
        const error = await client.messages
          .create({ model, stream, max_tokens: 9, messages: user('hi') })
          .then(
            () => null,
            (thrown: unknown) => thrown,
          )
        if (!(error instanceof APIError)) throw new Error(`${status} is no failure`)
        told.set(status, error.status ?? 0)
        t.match(error.type, TYPES[error.status ?? 0], `${status} is told as ${error.status}`)
        t.match(error.requestID, /^gen-\d+-\w{20}$/)
        t.match(error.error, {
          type: 'error',
          error: { type: error.type, message: /./, error_type: /./ },
          request_id: error.requestID,
        })
      }
    }
    t.same(Object.fromEntries(told), {
      400: 400,
      401: 502,
      402: 502,
      403: 502,
      404: 502,
      408: 524,
      409: 400,
      413: 413,
      422: 422,
      429: 429,
      500: 502,
      502: 502,
      503: 503,
      504: 524,
      529: 529,
    })
  },
)
