/** Items that a Responses provider sends with values of wrong types: every door tells them or fails as documented. */
import { createServer } from 'node:http'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { closing, listening } from '../support/listening.ts'

const ITEMS = {
  role: { type: 'message', id: 'm1', role: [[]], content: 'x' },
  user: { type: 'message', id: 'm1', role: 'user', content: [{ type: 'input_text', text: 'x' }] },
  outputs: { type: 'code_interpreter_call', id: 'ci_1', code: 'x', outputs: [null], status: 'completed' },
  seal: { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: { toString: 1 } },
} as const

const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const { model, stream } = JSON.parse(text) as { model: string; stream?: boolean }
  const item = ITEMS[model.split('.')[0] as keyof typeof ITEMS]
  const reply = { id: 'resp_1', object: 'response', status: 'completed', model, output: [item] }
  if (stream !== true) {
    response.setHeader('content-type', 'application/json').end(JSON.stringify(reply))
    return
  }
  response.setHeader('content-type', 'text/event-stream')
  for (const event of [
    { type: 'response.output_item.added', output_index: 0, item },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: reply },
  ]) {
    response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
  }
  response.end()
})

const { url } = await listening(server)
const gateway = await startGateway({
  providers: [{ slug: 'odd', name: 'Odd', format: 'openai-responses', baseUrl: url, apiKey: 'none' }],
  // A model for each request: the breaker of another one stands in no way.
  models: Object.keys(ITEMS).flatMap(name =>
    [0, 1, 2, 3].flatMap(door =>
      [false, true].map(stream => ({
        id: `odd/${name}.${door}.${stream}`,
        endpoints: [{ provider: 'odd' }],
      })),
    ),
  ) as never,
})
t.teardown(async () => {
  await gateway.close()
  await closing(server)
})

const messages = [{ role: 'user', content: 'Hi' }]
const contents = [{ role: 'user', parts: [{ text: 'Hi' }] }]
/** Path and body of each door, for a model. */
const doors = (name: string, stream: boolean): readonly (readonly [path: string, body: object])[] => {
  const model = (door: number) => `odd/${name}.${door}.${stream}`
  return [
    ['responses', { model: model(0), input: 'Hi', stream }],
    ['chat/completions', { model: model(1), messages, stream }],
    ['messages', { model: model(2), messages, max_tokens: 50, stream }],
    [
      `/v1beta/models/${model(3)}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
      { contents },
    ],
  ]
}

for (const name of Object.keys(ITEMS)) {
  for (const stream of [false, true]) {
    t.test(`${name}, ${stream ? 'streamed' : 'whole'}`, async t => {
      for (const [path, body] of doors(name, stream)) {
        const address = path.startsWith('/') ? new URL(path, gateway.url).href : `${gateway.url}/${path}`
        const headers = { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' }
        const reply = await fetch(address, { method: 'POST', headers, body: JSON.stringify(body) })
        const text = await reply.text()
        const isRefused = name === 'role' || name === 'user'
        t.notMatch(text, /"internal"|Internal Server Error/, `${path}: ${text}`)
        if (isRefused) t.match(text, /provider_unavailable|UNAVAILABLE|api_error|role is not/, path)
        else t.equal(reply.status, 200, `${path}: ${text}`)
      }
    })
  }
}

t.test('nothing of it was a fault of the gateway', async t => {
  t.same(
    gateway.lines.filter(line => line['error'] === 'internal' || line['msg'] === 'internal'),
    [],
  )
})
