import { once } from 'node:events'
import { connect } from 'node:net'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import type { Test } from 'tap'
import t from 'tap'
import { createSim, type Sim } from '../../../src/apps/simulator/simulator.ts'
import type { Timer } from '../../../src/base/clock.ts'
import { SseParser } from '../../../src/providers/upstream/sse.ts'
import { awaited } from '../../support/patience.ts'
import { createFaultySim } from '../../support/sim-faults.ts'
import { TestClock } from '../../support/test-clock.ts'

const TEXT = 'Grüße, 世界! 👩‍👩‍👧 and naïve \u{1F600}\u{1F600} smiles\nend'

async function started(
  test: Test,
  sim: Sim = createFaultySim(),
): Promise<{ sim: Sim; url: string; port: number }> {
  test.teardown(() => sim.close())
  return { sim, ...(await sim.listen()) }
}

function post(url: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { authorization: 'Bearer any', 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  })
}

/** The parsed data of every event, `[DONE]` as it is. */
async function events(response: Response): Promise<Record<string, unknown>[]> {
  const found: Record<string, unknown>[] = []
  const parser = new SseParser((name, data) => {
    const event = data === '[DONE]' ? { done: true } : (JSON.parse(data) as Record<string, unknown>)
    if (name !== '' && event['type'] !== name) throw new Error(`event ${name} carries ${event['type']}`)
    found.push(event)
  })
  parser.push(Buffer.from(await response.arrayBuffer()))
  parser.end()
  return found
}

const WEATHER = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    days: { type: 'integer', minimum: 3 },
    unit: { enum: ['c', 'f'] },
    note: { type: 'string' },
  },
  required: ['city', 'days', 'unit'],
} as const
const WEATHER_ARGS = { city: 'Paris', days: 3, unit: 'c' }

t.test('a public Responses client understands every behaviour', async t => {
  const { url } = await started(t)
  const client = new OpenAI({ apiKey: 'any', baseURL: url, maxRetries: 0 })

  await t.test('echo, whole and streamed, tells the same text and usage', async t => {
    const whole = await client.responses.create({ model: 'echo', input: TEXT })
    t.equal(whole.output_text, TEXT)
    t.equal(whole.status, 'completed')
    t.equal(whole.usage?.input_tokens, 8)
    t.ok((whole.usage?.output_tokens ?? 0) > 5)
    const stream = client.responses.stream({ model: 'echo', input: [{ role: 'user', content: TEXT }] })
    const deltas: string[] = []
    stream.on('response.output_text.delta', event => deltas.push(event.delta))
    const final = await stream.finalResponse()
    t.equal(deltas.join(''), TEXT)
    t.equal(final.output_text, TEXT)
    t.equal(deltas.length, final.usage?.output_tokens)
    t.same(final.usage, whole.usage)
  })

  await t.test('every event is numbered in order', async t => {
    const found = await events(
      await post(`${url}/responses`, { model: 'reason', input: 'hello', stream: true }),
    )
    t.same(
      found.map(event => event['sequence_number']),
      found.map((_, at) => at),
    )
    t.equal(found.at(-1)?.['type'], 'response.completed')
  })

  await t.test('call fills the required arguments, twice in parallel, and uses the output', async t => {
    const tools = [{ type: 'function' as const, name: 'weather', parameters: WEATHER, strict: false }]
    const stream = client.responses.stream({ model: 'call-2', input: 'Paris please', tools })
    const calls = (await stream.finalResponse()).output.filter(item => item.type === 'function_call')
    t.equal(calls.length, 2)
    t.not(calls[0]?.call_id, calls[1]?.call_id)
    for (const call of calls) t.same(JSON.parse(call.arguments), WEATHER_ARGS)
    const answer = await client.responses.create({
      model: 'call-2',
      tools,
      input: [
        { role: 'user', content: 'Paris please' },
        ...calls,
        ...calls.map(call => ({
          type: 'function_call_output' as const,
          call_id: call.call_id,
          output: 'sunny',
        })),
      ],
    })
    t.equal(answer.output_text, 'The tool answered: sunny and sunny')
  })

  await t.test('a custom tool gets the text as its input', async t => {
    const found = await events(
      await post(`${url}/responses`, {
        model: 'call',
        input: 'say it',
        stream: true,
        tools: [{ type: 'custom', name: 'shout' }],
      }),
    )
    const done = found.find(event => event['type'] === 'response.custom_tool_call_input.done')
    t.equal(done?.['input'], 'say it')
  })

  await t.test('reasoning comes raw or as a summary', async t => {
    const raw = await client.responses.create({ model: 'reason', input: 'hi' })
    t.match(raw.output[0], { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text' }] })
    const summed = await client.responses.create({
      model: 'reason-summary',
      input: 'hi',
      include: ['reasoning.encrypted_content'],
    })
    t.match(summed.output[0], {
      type: 'reasoning',
      summary: [{ type: 'summary_text' }],
      encrypted_content: String,
    })
    t.ok((raw.usage?.output_tokens_details.reasoning_tokens ?? 0) > 3)
  })

  await t.test('refuse, json and a cut text', async t => {
    const refusal = await client.responses.create({ model: 'refuse', input: 'hi' })
    t.match(refusal.output[0], { content: [{ type: 'refusal', refusal: /cannot/ }] })
    const json = await client.responses.create({
      model: 'json',
      input: 'Paris',
      text: { format: { type: 'json_schema', name: 'w', schema: WEATHER } },
    })
    t.same(JSON.parse(json.output_text), WEATHER_ARGS)
    const cut = await client.responses.create({ model: 'write-50', input: 'hi', max_output_tokens: 20 })
    t.equal(cut.status, 'incomplete')
    t.equal(cut.incomplete_details?.reason, 'max_output_tokens')
    t.equal(cut.usage?.output_tokens, 20)
    t.equal(cut.output_text.trim().split(/\s+/).length, 20)
  })
})

t.test('a public Chat Completions client understands every behaviour', async t => {
  const { url } = await started(t)
  const client = new OpenAI({ apiKey: 'any', baseURL: `${url}/v1`, maxRetries: 0 })
  const messages = [{ role: 'user' as const, content: TEXT }]

  const whole = await client.chat.completions.create({ model: 'echo', messages })
  t.equal(whole.choices[0]?.message.content, TEXT)
  const stream = client.chat.completions.stream({
    model: 'echo',
    messages,
    stream_options: { include_usage: true },
  })
  const final = await stream.finalChatCompletion()
  t.equal(final.choices[0]?.message.content, TEXT)
  t.same(final.usage, whole.usage)
  const found = await events(await post(`${url}/chat/completions`, { model: 'echo', messages, stream: true }))
  t.notOk(
    found.some(event => 'usage' in event),
    'usage comes only when asked for',
  )
  t.same(found.at(-1), { done: true })

  const tools = [{ type: 'function' as const, function: { name: 'weather', parameters: WEATHER } }]
  const asked = [{ role: 'user' as const, content: 'Paris' }]
  const calling = await client.chat.completions
    .stream({ model: 'call-2', messages: asked, tools })
    .finalChatCompletion()
  const calls = calling.choices[0]?.message.tool_calls ?? []
  t.equal(calling.choices[0]?.finish_reason, 'tool_calls')
  t.same(
    calls.map(call => call.type === 'function' && JSON.parse(call.function.arguments)),
    [WEATHER_ARGS, WEATHER_ARGS],
  )
  const answer = await client.chat.completions.create({
    model: 'call',
    tools,
    messages: [
      ...asked,
      { role: 'assistant', tool_calls: calls },
      ...calls.map(call => ({ role: 'tool' as const, tool_call_id: call.id, content: 'rain' })),
    ],
  })
  t.equal(answer.choices[0]?.message.content, 'The tool answered: rain and rain')
  const none = await client.chat.completions.create({
    model: 'call',
    messages: asked,
    tools,
    tool_choice: 'none',
  })
  t.equal(none.choices[0]?.message.content, 'There is no tool that may be called.')

  const reasoned = await events(
    await post(`${url}/chat/completions`, { model: 'reason', messages, stream: true }),
  )
  t.ok(reasoned.some(event => JSON.stringify(event).includes('reasoning_content')))
  const refusal = await client.chat.completions.create({ model: 'refuse', messages })
  t.match(refusal.choices[0]?.message.refusal, /cannot/)
  const cut = await client.chat.completions.create({ model: 'write-50', messages, max_tokens: 5 })
  t.equal(cut.choices[0]?.finish_reason, 'length')
})

t.test('a public Messages client understands every behaviour', async t => {
  const { url } = await started(t)
  const client = new Anthropic({ apiKey: 'any', baseURL: url, maxRetries: 0 })
  const ask = { max_tokens: 1000, messages: [{ role: 'user' as const, content: TEXT }] }

  const whole = await client.messages.create({ model: 'echo', ...ask })
  t.match(whole.content, [{ type: 'text', text: TEXT }])
  const streamed = await client.messages.stream({ model: 'echo', ...ask }).finalMessage()
  t.match(streamed.content, [{ type: 'text', text: TEXT }])
  t.equal(streamed.stop_reason, 'end_turn')
  t.equal(streamed.usage.output_tokens, whole.usage.output_tokens)

  const tools = [{ name: 'weather', input_schema: { ...WEATHER, required: [...WEATHER.required] } }]
  const asked = { max_tokens: 1000, tools, messages: [{ role: 'user' as const, content: 'Paris' }] }
  const calling = await client.messages.stream({ model: 'call-2', ...asked }).finalMessage()
  t.equal(calling.stop_reason, 'tool_use')
  t.match(calling.content, [
    { type: 'tool_use', name: 'weather', input: WEATHER_ARGS },
    { type: 'tool_use', name: 'weather', input: WEATHER_ARGS },
  ])
  const results = calling.content.flatMap(block =>
    block.type === 'tool_use'
      ? [{ type: 'tool_result' as const, tool_use_id: block.id, content: 'fog' }]
      : [],
  )
  const answer = await client.messages.create({
    model: 'call',
    max_tokens: 100,
    tools,
    messages: [
      ...asked.messages,
      { role: 'assistant', content: calling.content },
      { role: 'user', content: results },
    ],
  })
  t.match(answer.content, [{ text: 'The tool answered: fog and fog' }])

  const reasoned = await client.messages.stream({ model: 'reason', ...ask }).finalMessage()
  t.match(reasoned.content, [
    { type: 'thinking', thinking: /Repeating/, signature: String },
    { type: 'text' },
  ])
  const refusal = await client.messages.create({ model: 'refuse', ...ask })
  t.equal(refusal.stop_reason, 'refusal')
  const cut = await client.messages.create({ model: 'write-50', ...ask, max_tokens: 5 })
  t.equal(cut.stop_reason, 'max_tokens')
})

t.test('generateContent answers whole and streamed alike', async t => {
  const { url } = await started(t)
  const contents = [{ role: 'user', parts: [{ text: TEXT }] }]
  const ask = (model: string, body: object): Promise<Response> =>
    post(`${url}/v1beta/models/${model}:generateContent`, body)
  const stream = async (model: string, body: object): Promise<GeminiReply[]> =>
    (await events(
      await post(`${url}/models/${model}:streamGenerateContent?alt=sse`, body),
    )) as unknown as GeminiReply[]
  const text = (replies: readonly GeminiReply[]): string =>
    replies.flatMap(reply => reply.candidates[0]?.content.parts.map(part => part.text ?? '') ?? []).join('')

  const whole = (await (await ask('echo', { contents })).json()) as GeminiReply
  const chunks = await stream('echo', { contents })
  t.equal(text([whole]), TEXT)
  t.equal(text(chunks), TEXT)
  t.equal(chunks.at(-1)?.candidates[0]?.finishReason, 'STOP')
  t.same(chunks.at(-1)?.usageMetadata, whole.usageMetadata)

  const tools = [{ functionDeclarations: [{ name: 'weather', parametersJsonSchema: WEATHER }] }]
  const calling = await stream('call-2', { contents: [{ role: 'user', parts: [{ text: 'Paris' }] }], tools })
  const calls = calling.flatMap(
    reply => reply.candidates[0]?.content.parts.flatMap(part => part.functionCall ?? []) ?? [],
  )
  t.same(
    calls.map(call => call.args),
    [WEATHER_ARGS, WEATHER_ARGS],
  )
  const answered = await stream('call', {
    tools,
    contents: [
      { role: 'user', parts: [{ text: 'Paris' }] },
      { role: 'model', parts: calls.map(functionCall => ({ functionCall })) },
      { role: 'user', parts: [{ functionResponse: { name: 'weather', response: { output: 'hail' } } }] },
    ],
  })
  t.equal(text(answered), 'The tool answered: hail')
  const thought = await stream('reason', { contents })
  t.ok(thought.some(reply => reply.candidates[0]?.content.parts.some(part => part.thought === true)))
  t.ok((thought.at(-1)?.usageMetadata['thoughtsTokenCount'] ?? 0) > 3)
  const refused = await stream('refuse', { contents })
  t.equal(refused.at(-1)?.candidates[0]?.finishReason, 'SAFETY')
  t.equal(
    (await post(`${url}/models/echo:streamGenerateContent`, { contents })).status,
    404,
    'only event streams',
  )
})

interface GeminiReply {
  candidates: {
    content: { parts: { text?: string; thought?: boolean; functionCall?: { name: string; args: unknown } }[] }
    finishReason?: string
  }[]
  usageMetadata: Record<string, number>
}

t.test('the judge gives a probability for each rule', async t => {
  const { url } = await started(t)
  const format = { type: 'json_schema', name: 'alignment_verdict', schema: { type: 'object' } }
  const judge = async (model: string, instructions: string, input: string): Promise<string> => {
    const response = await post(`${url}/responses`, { model, instructions, input, text: { format } })
    const body = (await response.json()) as { output: { content: { text: string }[] }[] }
    return body.output[0]?.content[0]?.text ?? ''
  }
  const rules =
    'Rules:\n1. Never say "banana"\n2. Be polite\n3. A doubtful case [[p=0.42]]\n\nJudge the message.'
  t.same(JSON.parse(await judge('judge', rules, 'I like a Banana.\n4. banana')), {
    probabilities: [0.95, 0.02, 0.42],
  })
  t.same(JSON.parse(await judge('judge', rules, 'I like pears')), { probabilities: [0.02, 0.02, 0.42] })
  t.same(
    JSON.parse(await judge('judge', '', `${rules}\nMessage:\n4. a banana`)),
    { probabilities: [0.95, 0.02, 0.42] },
    'rules and message in one text',
  )
  t.same(JSON.parse(await judge('judge-short', rules, 'pears')), { probabilities: [0.02, 0.42] })
  t.match(
    await judge('judge-fenced', rules, 'pears'),
    /```json\n\{"probabilities":\[0\.02,0\.02,0\.42\]\}\n```/,
  )
})

t.test('embeddings depend on the text alone', async t => {
  const { url } = await started(t)
  const client = new OpenAI({ apiKey: 'any', baseURL: url, maxRetries: 0 })
  const reply = await client.embeddings.create({ model: 'embed-16', input: ['one', 'two words', 'one'] })
  t.equal(reply.data[0]?.embedding.length, 16)
  t.same(reply.data[0]?.embedding, reply.data[2]?.embedding)
  t.notSame(reply.data[0]?.embedding, reply.data[1]?.embedding)
  t.equal(reply.usage.prompt_tokens, 4)
  const plain = await client.embeddings.create({ model: 'embed', input: 'one', encoding_format: 'float' })
  t.equal(plain.data[0]?.embedding.length, 8)
})

t.test('what cannot be answered is refused in the shape of the format', async t => {
  const { url } = await started(t)
  t.match(await (await fetch(`${url}/messages`, { method: 'POST', body: '{}' })).json(), {
    type: 'error',
    error: { type: 'authentication_error' },
  })
  const cases: [string, unknown, number][] = [
    ['/responses', '{', 400],
    ['/responses', '[]', 400],
    ['/responses', { model: 'unknown' }, 404],
    ['/responses', { model: 'echo-1-2' }, 404],
    ['/responses', { model: 'fail-unknown' }, 404],
    ['/responses', { model: 'fail-status-99' }, 404],
    ['/responses', { model: '__proto__' }, 404],
    ['/models/%E0%A4%A:generateContent', {}, 404],
    ['/embeddings', { model: 'echo', input: 'x' }, 404],
    ['/elsewhere', {}, 404],
  ]
  for (const [path, body, status] of cases) {
    const response = await post(`${url}${path}`, body)
    t.equal(response.status, status, `${path} ${JSON.stringify(body)}`)
    t.ok(((await response.json()) as { error: { message: string } }).error.message)
  }
  const odd = {
    model: 'echo',
    input: [null, 3, { role: 'user', content: [{ text: 5 }, null] }],
    tools: 'x',
    text: 4,
  }
  t.equal((await post(`${url}/responses`, odd)).status, 200, 'wrong types are read as absent')
})

/** Tells when a timer is armed, so that nobody has to poll. */
class WatchedClock extends TestClock {
  #onArmed: (() => void) | null = null

  override after(delayMs: number, callback: () => void): Timer {
    const timer = super.after(delayMs, callback)
    this.#onArmed?.()
    this.#onArmed = null
    return timer
  }

  nextArmed(): Promise<void> {
    if (this.armed > 0) return Promise.resolve()
    return new Promise(done => {
      this.#onArmed = done
    })
  }
}

t.test('a body in many short chunks is refused before it ends', async t => {
  const { port } = await started(t)
  const socket = connect(port, '127.0.0.1').on('error', () => undefined)
  socket.write('POST /v1/responses HTTP/1.1\r\nHost: sim\r\nTransfer-Encoding: chunked\r\n\r\n')
  socket.write('1\r\n \r\n'.repeat(2_000))
  await awaited('the end of the connection', once(socket, 'close'))
})

t.test('paced tokens leave one by one as the clock moves', async t => {
  const clock = new WatchedClock()
  const { url } = await started(t, createSim({ clock }))
  const response = await post(`${url}/chat/completions`, { model: 'write-3-20', messages: [], stream: true })
  const reader = (response.body ?? new ReadableStream<Uint8Array>()).getReader()
  let seen = ''
  const read = async (word: string): Promise<void> => {
    while (!seen.includes(word)) {
      const { value, done } = await reader.read()
      if (done) throw new Error(`ended before ${word}`)
      seen += Buffer.from(value).toString()
    }
  }
  await read('"role":"assistant"')
  for (const word of ['the ', 'stream ', 'runs.']) {
    t.notOk(seen.includes(word), `${word} waits`)
    await clock.nextArmed()
    clock.advance(20)
    await read(word)
  }
  await read('[DONE]')
})

t.test('a reader that takes nothing stops the writing, and its going is noticed', async t => {
  const { sim, url, port } = await started(t)
  const body = JSON.stringify({ model: 'write-5000000', messages: [], stream: true })
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.pause()
  const before = process.memoryUsage().rss
  socket.write(
    `POST /chat/completions HTTP/1.1\r\nhost: sim\r\nauthorization: Bearer x\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  await sim.until(state => state.openReplies === 1)
  // Answered only because the big reply waits for its reader: it is made in the same loop, without pauses.
  t.equal((await post(`${url}/responses`, { model: 'echo', input: 'hi' })).status, 200)
  t.equal(sim.state.openReplies, 1)
  socket.destroy()
  const state = await sim.until(state => state.closedEarly === 1)
  t.equal(state.openReplies, 0)
  t.match(sim.disconnects, [{ model: 'write-5000000', request: 1, atMs: Number }])
  t.ok(process.memoryUsage().rss - before < 64 * 1024 * 1024, 'the text was never held')
  await sim.until(state => state.openConnections <= 1)
})

t.test('the request log is bounded and says what came', async t => {
  const { sim, url } = await started(t, createSim({ keepRequests: 2 }))
  for (const input of ['a', 'b', 'c']) await (await post(`${url}/responses`, { model: 'echo', input })).text()
  t.equal(sim.state.requests, 3)
  t.match(sim.requests, [
    { number: 2, format: 'openai-responses', body: { input: 'b' } },
    { number: 3, path: '/responses', model: 'echo', stream: false, headers: { authorization: 'Bearer any' } },
  ])
  t.equal(sim.state.closedEarly, 0)
})
