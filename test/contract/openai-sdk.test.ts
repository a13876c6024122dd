/** The official OpenAI client, unchanged, against the running gateway. */
import OpenAI, { APIError } from 'openai'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())

const client = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })
const FORMATS = ['', 'chat-', 'messages-', 'gemini-'] as const

const tools = [
  {
    type: 'function' as const,
    name: 'get_weather',
    description: 'Weather of a place',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    },
    strict: true,
  },
]
const text = {
  format: {
    type: 'json_schema' as const,
    name: 'person',
    strict: true,
    schema: {
      type: 'object',
      properties: { name: { type: 'string' }, age: { type: 'integer' } },
      required: ['name', 'age'],
      additionalProperties: false,
    },
  },
}

for (const prefix of FORMATS) {
  t.test(`responses.create answers over ${prefix || 'responses-'}echo`, async t => {
    const response = await client.responses.create({ model: `sim/${prefix}echo`, input: 'Hello there' })
    t.equal(response.status, 'completed')
    t.match(response.output_text, /Hello there/)
  })

  t.test(`responses.create with stream iterates events over ${prefix || 'responses-'}echo`, async t => {
    const stream = await client.responses.create({
      model: `sim/${prefix}echo`,
      input: 'Hello there',
      stream: true,
    })
    const types: string[] = []
    for await (const event of stream) types.push(event.type)
    t.equal(types[0], 'response.created')
    t.equal(types.at(-1), 'response.completed')
  })

  t.test(`responses.stream accumulates text over ${prefix || 'responses-'}echo`, async t => {
    const stream = client.responses.stream({ model: `sim/${prefix}echo`, input: 'Grüße 👋🏽' })
    let said = ''
    stream.on('response.output_text.delta', event => {
      said += event.delta
    })
    const final = await stream.finalResponse()
    t.match(said, /Grüße 👋🏽/)
    t.equal(final.output_text, said)
  })

  t.test(`responses.stream accumulates tool calls over ${prefix || 'responses-'}call-2`, async t => {
    const stream = client.responses.stream({ model: `sim/${prefix}call-2`, input: 'weather?', tools })
    const final = await stream.finalResponse()
    const calls = final.output.filter(item => item.type === 'function_call')
    t.equal(calls.length, 2)
    for (const call of calls) t.match(JSON.parse(call.arguments), { city: String })
  })

  t.test(`responses.parse reads structured output over ${prefix || 'responses-'}json`, async t => {
    const parsed = await client.responses.parse({ model: `sim/${prefix}json`, input: 'x', text })
    t.match(parsed.output_parsed, { name: String, age: Number })
  })

  t.test(`structured output streams over ${prefix || 'responses-'}json`, async t => {
    const final = await client.responses
      .stream({ model: `sim/${prefix}json`, input: 'x', text })
      .finalResponse()
    t.match(JSON.parse(final.output_text), { name: String, age: Number })
  })
}

t.test('errors arrive as the classes that the client has for them', async t => {
  const stranger = new OpenAI({ baseURL: gateway.url, apiKey: 'sk-wrong', maxRetries: 0 })
  const failures: readonly [OpenAI, string, number][] = [
    [client, 'no/such', 400],
    [client, 'sim/fail-status', 502],
    [stranger, 'sim/echo', 401],
  ]
  for (const [asking, model, status] of failures) {
    const error = await asking.responses.create({ model, input: 'x' }).then(
      () => null,
      (thrown: unknown) => thrown,
    )
    t.ok(error instanceof APIError)
    t.equal((error as APIError).status, status)
  }
})

t.test('aborting the client ends the upstream', async t => {
  const { closedEarly } = gateway.sim.state
  const stream = await client.responses.create({ model: 'sim/write-200-20', input: 'x', stream: true })
  for await (const event of stream) if (event.type === 'response.output_text.delta') break
  await gateway.sim.until(state => state.closedEarly > closedEarly)
  t.pass('the provider saw the client leave')
})

t.test('models can be listed', async t => {
  const ids: string[] = []
  for await (const model of await client.models.list()) ids.push(model.id)
  t.ok(ids.includes('sim/echo'))
})
