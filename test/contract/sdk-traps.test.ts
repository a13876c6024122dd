/** What official clients insist on beyond the documents: each of these once threw in a client that was unchanged. */
import { OpenRouter } from '@openrouter/sdk'
import OpenAI, { APIError, NotFoundError, toFile } from 'openai'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())
const openai = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })
const router = (apiKey: string) =>
  new OpenRouter({ apiKey, serverURL: gateway.url, retryConfig: { strategy: 'none' } })
const FORMATS = ['', 'chat-', 'messages-', 'gemini-'] as const

for (const prefix of FORMATS) {
  t.test(`@openrouter/sdk reads a chat stream to its end over ${prefix || 'responses-'}echo`, async t => {
    const stream = await router(gateway.apiKey).chat.send({
      chatRequest: {
        model: `sim/${prefix}echo`,
        messages: [{ role: 'user', content: 'Hello there' }],
        stream: true as const,
      },
    })
    let text = ''
    let tokens = 0
    if (!(Symbol.asyncIterator in stream)) throw new Error('no stream')
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? ''
      tokens = chunk.usage?.totalTokens ?? tokens
      t.notOk('systemFingerprint' in chunk && chunk.systemFingerprint === null)
    }
    t.match(text, /Hello there/)
    t.ok(tokens > 0)
  })
}

t.test('@openrouter/sdk reads a whole chat completion and the activity of the account', async t => {
  const whole = await router(gateway.apiKey).chat.send({
    chatRequest: {
      model: 'sim/echo',
      messages: [{ role: 'user', content: 'Hello' }],
      stream: false as const,
    },
  })
  t.equal('systemFingerprint' in whole && whole.systemFingerprint, null, 'a whole one has to have it')
  await gateway.shipper.ship()
  const { data } = await router(gateway.managementKey).analytics.getUserActivity()
  t.ok(data.length > 0)
  for (const row of data) t.match(row, { endpointId: /^sim\/sim\//, providerName: String, model: /^sim\// })
})

t.test('uploads to what is not offered are 404 that says so, whatever their size', async t => {
  for (const bytes of [10, 100_000, 6_000_000]) {
    const file = await toFile(Buffer.alloc(bytes, 1), 'speech.mp3')
    const calls = [
      () => openai.audio.transcriptions.create({ file, model: 'whisper-1' }),
      () => openai.images.edit({ image: file, prompt: 'x', model: 'gpt-image-1' }),
    ]
    for (const call of calls) {
      const error = await call().then(
        () => null,
        (thrown: unknown) => thrown,
      )
      t.ok(error instanceof NotFoundError, `${bytes} bytes: ${String(error)}`)
      t.match((error as Error).message, /is not offered by this gateway/)
    }
  }
})

t.test('errors of /responses have type, param and an integer code for their client', async t => {
  const error = await openai.responses.create({ model: 'sim/echo', input: 'x', temperature: 9 }).then(
    () => null,
    (thrown: unknown) => thrown,
  )
  t.ok(error instanceof APIError)
  const { status, code, type, param } = error as InstanceType<typeof APIError>
  t.same([status, code, type, param], [400, 400, 'invalid_request', 'temperature'])
})
