/** What OpenAI's client has of its own: the events of its stream helper, and fields beyond its types. */
import OpenAI from 'openai'
import t from 'tap'
import { PREFIXES, startSdkWorld } from '../support/world.ts'

const { gateway } = await startSdkWorld(t)

const chat = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 }).chat.completions
const user = (content: string) => [{ role: 'user' as const, content }]

for (const prefix of PREFIXES) {
  t.test(`the stream helper tells its events over ${prefix || 'responses-'}echo`, async t => {
    const stream = chat.stream({ model: `sim/${prefix}echo`, messages: user('One two three') })
    const told: string[] = []
    let said = ''
    stream.on('content', delta => {
      said += delta
    })
    stream.on('content.delta', () => void told.push('delta'))
    stream.on('content.done', ({ content }) => void told.push(content))
    const final = await stream.finalChatCompletion()
    t.equal(said, 'One two three')
    t.equal(told.at(-1), 'One two three')
    t.equal(told[0], 'delta')
    t.equal(final.choices[0]?.message.content, 'One two three')
    t.match(await stream.totalUsage(), { total_tokens: Number })
  })
}

t.test('fields that the client does not know reach the gateway through its body', async t => {
  const completion = await chat.create({
    model: 'sim/chat-reason',
    messages: user('hi'),
    reasoning: { effort: 'low', exclude: true },
    session_id: 'one',
  } as unknown as OpenAI.ChatCompletionCreateParamsNonStreaming)
  t.match(completion.choices[0]?.message, { content: 'hi', reasoning: null })
})
