/** The server tool image_generation: an image model of the catalogue is asked on behalf of the caller. */
import type { RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { messageOf, startHttp } from '../support/mcp-server.ts'

const PNG = Buffer.from('not really a picture').toString('base64')
const PRICING = { prompt: '0.000001', completion: '0.00001' }

/** Chat completions: a model that draws, and one that calls the drawing tool and then answers. */
function provider(draws: (prompt: string) => unknown): RequestListener {
  return (request, response) => {
    const body = messageOf(request) as unknown as {
      model: string
      stream?: boolean
      messages: { role: string; content: string }[]
    }
    const isDone = body.messages.some(({ role }) => role === 'tool')
    const message =
      body.model === 'draw'
        ? draws(String(body.messages.at(-1)?.content))
        : isDone
          ? { content: `Told: ${body.messages.at(-1)?.content}` }
          : {
              tool_calls: [
                {
                  id: 'c1',
                  type: 'function',
                  function: { name: 'image_generation', arguments: '{"prompt":"a cat"}' },
                },
              ],
            }
    const finish_reason = body.model === 'draw' || isDone ? 'stop' : 'tool_calls'
    const usage = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 }
    if (message === null) return
    if (body.stream === true) {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const tools = (message as { tool_calls?: object[] }).tool_calls?.map((call, index) => ({
        index,
        ...call,
      }))
      const delta = {
        role: 'assistant',
        ...(message as object),
        ...(tools === undefined ? {} : { tool_calls: tools }),
      }
      response.write(
        `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta, finish_reason }] })}\n\n`,
      )
      response.end(`data: ${JSON.stringify({ id: 'x', choices: [], usage })}\n\ndata: [DONE]\n\n`)
      return
    }
    const choices = [
      { index: 0, finish_reason, message: { role: 'assistant', content: null, ...(message as object) } },
    ]
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ id: 'x', choices, usage }))
  }
}

const picture = {
  content: '',
  images: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }],
}

async function start(t: Test, draws: (prompt: string) => unknown = () => picture) {
  const server = await startHttp(provider(draws))
  t.teardown(server.close)
  const row = {
    slug: 'acme',
    name: 'Acme',
    format: 'openai-chat',
    baseUrl: new URL(server.url).origin,
    apiKey: 'x',
  } as const
  const model = (id: string, outputModalities: string[]) => ({
    id: `acme/${id}`,
    name: id,
    outputModalities,
    endpoints: [{ provider: 'acme', upstreamModel: id, pricing: PRICING }],
  })
  const gateway = await startGateway({
    providers: [row],
    models: [model('talk', ['text']), model('draw', ['text', 'image'])],
  })
  t.teardown(gateway.close)
  const ask = async (tool: object, fields: object = {}) =>
    await gateway.respond({ model: 'acme/talk', input: 'Draw a cat', tools: [tool], ...fields })
  return { ask, gateway, server }
}

const OURS = { type: 'gateway:image_generation', parameters: { model: 'acme/draw', aspect_ratio: '1:1' } }

t.test('an image is made, shown as an item, and on the bill', async t => {
  const { ask, server } = await start(t)
  const response = (await (await ask(OURS)).json()) as ResponseResource
  t.equal(response.status, 'completed')
  t.match(response.output, [
    { type: 'gateway:image_generation', status: 'completed', prompt: 'a cat', result: PNG },
    { type: 'message' },
  ])
  t.match(JSON.stringify(response.output[1]), /The user sees the image/)
  t.notMatch(JSON.stringify(response.output[1]), PNG, 'the model gets no bytes')
  t.match(response.usage, { input_tokens: 30, output_tokens: 60 })
  t.equal(response.usage?.cost, 0.00063)
  t.equal(server.requests.length, 3)
})

t.test('the native spelling has its own item and events where the provider has no such tool', async t => {
  const { ask } = await start(t)
  const reply = await ask(
    { type: 'image_generation', model: 'acme/draw', size: '1024x1024' },
    { stream: true },
  )
  const events = parseEventStream(await reply.text())
  t.same(grammarViolations(events), [])
  t.same(
    events.flatMap(({ type }) => (type.startsWith('response.image_generation_call') ? [type] : [])),
    ['in_progress', 'generating', 'completed'].map(stage => `response.image_generation_call.${stage}`),
  )
  const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
  t.match(response.output[0], { type: 'image_generation_call', status: 'completed', result: PNG })
})

t.test('parts of an image are sent by the provider alone: elsewhere the caller is told', async t => {
  const { gateway } = await start(t)
  const ask = async (partial_images: number): Promise<unknown> => {
    const reply = await gateway.respond(
      {
        model: 'acme/talk',
        input: 'Draw a cat',
        tools: [{ type: 'image_generation', model: 'acme/draw', partial_images }],
      },
      { headers: { 'x-gateway-metadata': 'enabled' } },
    )
    t.equal(reply.status, 200)
    return ((await reply.json()) as ResponseResource).gateway_metadata?.pipeline ?? []
  }
  const told = { type: 'server_tools', name: 'left-out', data: { fields: ['partial_images'] } }
  t.match(await ask(2), [told])
  t.notMatch(JSON.stringify(await ask(0)), /partial_images/)
})

t.test('the first model that makes images is the default', async t => {
  const { ask } = await start(t)
  const response = (await (await ask({ type: 'openrouter:image_generation' })).json()) as ResponseResource
  t.match(response.output[0], { type: 'openrouter:image_generation', status: 'completed' })
})

t.test('a failure is told to the model, and the answer goes on', async t => {
  const { ask } = await start(t, () => ({ content: 'I do not draw' }))
  const response = (await (await ask(OURS)).json()) as ResponseResource
  t.equal(response.status, 'completed')
  t.match(response.output[0], { status: 'incomplete', error: 'The model generated no image' })
  const native = (await (
    await ask({ type: 'image_generation', model: 'acme/draw' })
  ).json()) as ResponseResource
  t.match(native.output[0], { type: 'image_generation_call', status: 'failed' })
})

t.test('a caller that leaves ends the inner call', async t => {
  const { gateway, server } = await start(t, () => null)
  const leaving = new AbortController()
  const asking = gateway.respond({ model: 'acme/talk', input: 'Draw', stream: true, tools: [OURS] }, leaving)
  while (server.requests.length < 2) await new Promise(setImmediate)
  const before = server.open()
  leaving.abort()
  await asking.then(
    reply => reply.text().catch(() => undefined),
    () => undefined,
  )
  while (server.open() >= before) await new Promise(setImmediate)
  t.equal(server.requests.length, 2)
})

t.test('a model that makes no images is refused by its path', async t => {
  const { ask, server } = await start(t)
  const refused = async (tool: object, message: RegExp): Promise<void> => {
    const reply = await ask(tool)
    t.equal(reply.status, 400)
    t.match(await reply.json(), { error: { message } })
  }
  const model = (name: string) => ({ type: 'gateway:image_generation', parameters: { model: name } })
  await refused(model('acme/talk'), /^tools\[0\]\.parameters\.model: this model does not generate images$/)
  await refused(model('acme/none'), /^tools\[0\]\.parameters\.model: is not in the catalogue$/)
  await refused(
    { type: 'image_generation', model: 'gpt-image-1' },
    /^tools\[0\]\.model: is not in the catalogue$/,
  )
  t.equal(server.requests.length, 0)
})

t.test('the simulated provider draws without any key, in each format that has images', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  for (const model of ['sim/chat-draw', 'sim/gemini-draw', null]) {
    for (const stream of [true, false]) {
      const reply = await gateway.respond({
        model: 'sim/chat-call',
        input: 'cat',
        stream,
        tools: [{ type: 'gateway:image_generation', parameters: { model } }],
      })
      const text = await reply.text()
      const last = stream ? parseEventStream(text).at(-1) : undefined
      const response = (last as { response?: ResponseResource } | undefined)?.response ?? JSON.parse(text)
      t.match(response.output, [
        { type: 'gateway:image_generation', status: 'completed', prompt: 'cat', result: /^iVBORw0KGgo/ },
        { type: 'message' },
      ])
    }
  }
})
