/** What Anthropic's client has of its own: events, thoughts, counts of tokens, kinds of keys, unknown fields. */
import Anthropic, { NotFoundError } from '@anthropic-ai/sdk'
import t from 'tap'
import { FORMATS, pieces, speaking } from '../support/provider.ts'
import { CITY, ID, PREFIXES, startSdkWorld, thrownBy } from '../support/world.ts'

const { gateway, parrot } = await startSdkWorld(t)

/** The client adds `/v1/messages` by itself. */
const baseURL = `http://127.0.0.1:${gateway.port}`
const client = new Anthropic({ baseURL, apiKey: gateway.apiKey, maxRetries: 0 })
const LIMIT = 4000

const user = (content: string) => [{ role: 'user' as const, content }]
const WEATHER: Anthropic.Tool = {
  name: 'get_weather',
  description: 'Weather of a place',
  input_schema: { ...CITY, required: ['city'] },
}

const said = ({ content }: { readonly content: readonly { readonly type: string }[] }): string =>
  content.map(block => (block.type === 'text' && 'text' in block ? block.text : '')).join('')

for (const prefix of PREFIXES) {
  const over = (model: string) => `${prefix || 'responses-'}${model}`
  const asking = (model: string, content: string) => ({
    model: `sim/${prefix}${model}`,
    max_tokens: LIMIT,
    messages: user(content),
  })

  t.test(`the stream helper tells its events over ${over('echo')}`, async t => {
    const stream = client.messages.stream(asking('echo', 'One two three'))
    let text = ''
    const told: string[] = []
    stream.on('text', delta => {
      text += delta
    })
    stream.on('contentBlock', block => void told.push(block.type))
    stream.on('message', message => void told.push(message.type))
    const final = await stream.finalMessage()
    t.equal(text, 'One two three')
    t.same(told, ['text', 'message'])
    t.equal(await stream.finalText(), 'One two three')
    t.ok(final.usage.input_tokens > 0 && final.usage.output_tokens > 0)
    t.match(stream.request_id, ID)
  })

  t.test(`the stream helper tells thoughts over ${over('reason')}`, async t => {
    const stream = client.messages.stream({
      ...asking('reason', 'hi'),
      thinking: { type: 'enabled', budget_tokens: 1024 },
    })
    let thinking = ''
    stream.on('thinking', delta => {
      thinking += delta
    })
    const final = await stream.finalMessage()
    t.not(thinking, '')
    t.match(final.content, [
      { type: 'thinking', thinking, signature: String },
      { type: 'text', text: 'hi' },
    ])
  })
}

t.test('a thought with its signature goes back in the next turn', async t => {
  for (const format of FORMATS) {
    parrot.parts = [
      { kind: 'reasoning', form: 'text', pieces: pieces('They ', 'greet.') },
      ...speaking('Hello'),
    ]
    const asking = {
      model: `parrot/${format}`,
      max_tokens: LIMIT,
      thinking: { type: 'enabled' as const, budget_tokens: 1024 },
    }
    const first = await client.messages.stream({ ...asking, messages: user('Hi') }).finalMessage()
    t.match(first.content[0], { type: 'thinking', thinking: 'They greet.' }, format)
    const messages = [...user('Hi'), { role: 'assistant' as const, content: first.content }, ...user('And?')]
    await client.messages.create({ ...asking, messages })
    const body = JSON.parse(parrot.bodies.at(-1) ?? '') as { messages?: { content: unknown[] }[] }
    if (format !== 'anthropic-messages') continue
    const [thought] = first.content as { signature?: string }[]
    // Its maker stands before it, which is nothing to the provider.
    const signature = thought?.signature?.replace(/^gwm1\.[\w-]+\./, '')
    t.not(signature, thought?.signature)
    t.match(body.messages?.[1]?.content[0], { ...thought, signature })
    t.match(body, { thinking: asking.thinking })
  }
})

t.test('tokens are counted, and said to be an estimate', async t => {
  const counted = await client.messages.countTokens({ model: 'sim/echo', messages: user('Hello there') })
  t.match(counted, { input_tokens: Number, estimated: true })
  const longer = await client.beta.messages.countTokens({
    model: 'sim/echo',
    messages: user('Hello there '.repeat(50)),
    system: 'Be brief',
    tools: [WEATHER],
  })
  t.ok(longer.input_tokens > counted.input_tokens + 50)
  const error = await thrownBy(client.messages.countTokens({ model: 'nobody/none', messages: user('x') }))
  t.ok(error instanceof NotFoundError)
})

t.test('either kind of key, and flags of the client, are accepted', async t => {
  const bearer = new Anthropic({ baseURL, apiKey: null, authToken: gateway.apiKey, maxRetries: 0 })
  const body = { model: 'parrot/anthropic-messages', max_tokens: LIMIT, messages: user('hi') }
  parrot.parts = speaking('fine')
  t.equal(said(await bearer.messages.create(body)), 'fine')
  const flagged = await client.beta.messages.create({ ...body, betas: ['context-1m-2025-08-07'] })
  t.equal(said(flagged), 'fine')
  const api = new Anthropic({ baseURL: `${baseURL}/api`, apiKey: gateway.apiKey, maxRetries: 0 })
  t.equal(said(await api.messages.create(body)), 'fine', 'the other prefix')
})

t.test('fields that the client does not know reach the gateway through its body', async t => {
  const message = await client.messages.create({
    model: 'sim/messages-fail-status-503',
    max_tokens: LIMIT,
    messages: user('hi'),
    fallbacks: [{ model: 'sim/messages-echo' }],
    session_id: 'one',
  } as Anthropic.MessageCreateParamsNonStreaming)
  t.match(message, { model: 'sim/messages-echo', content: [{ text: 'hi' }] })
})
