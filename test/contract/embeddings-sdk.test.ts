/** POST /embeddings with the official OpenAI client, unchanged: every form of input, both encodings, errors, abort. */
import OpenAI, { APIError, APIUserAbortError } from 'openai'
import t from 'tap'
import { float32s } from '../support/decode-embeddings.ts'
import { startGateway } from '../support/gateway.ts'
import { type EmbeddingsAnswerScript, properReply, startEmbeddingsProvider } from '../support/provider.ts'

const provider = await startEmbeddingsProvider()
const gateway = await startGateway({
  // Its provider fails on purpose.
  routing: { breakerFailures: null },
  providers: [
    { slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl: `${provider.url}/v1`, apiKey: 'k' },
    { slug: 'floats', format: 'openai-embeddings', baseUrl: `${provider.url}/f`, quirks: ['float-vectors'] },
  ],
  models: [
    { id: 'acme/vectors', outputModalities: ['embeddings'], endpoints: [{ provider: 'acme' }] },
    { id: 'acme/floats', outputModalities: ['embeddings'], endpoints: [{ provider: 'floats' }] },
  ],
})
t.teardown(async () => {
  await gateway.close()
  provider.close()
})
t.beforeEach(() => {
  provider.answer = properReply
})

const client = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })

t.test('a fresh gateway answers with vectors of length one, equal for equal texts', async t => {
  const { data, model, object, usage } = await client.embeddings.create({
    model: 'sim/embed',
    input: ['one two', 'three', 'one two'],
  })
  t.equal(object, 'list')
  t.equal(model, 'sim/embed')
  t.same(usage.prompt_tokens, 5)
  t.same(usage.total_tokens, 5)
  t.same(
    data.map(({ index, object: kind }) => [kind, index]),
    [0, 1, 2].map(index => ['embedding', index]),
  )
  const [first = [], second, third] = data.map(({ embedding }) => embedding)
  t.same(first, third)
  t.notSame(first, second)
  t.ok(Math.abs(Math.hypot(...first) - 1) < 1e-6)
})

t.test('the default encoding of the client and plain numbers are the same vectors', async t => {
  const input = ['a', 'b', 'c']
  const { data } = await client.embeddings.create({ model: 'sim/embed', input })
  const floats = await client.embeddings.create({ model: 'sim/embed', input, encoding_format: 'float' })
  t.same(data, floats.data)
  const base64 = await client.embeddings.create({ model: 'sim/embed', input, encoding_format: 'base64' })
  t.same(
    base64.data.map(({ embedding }) => float32s(embedding as unknown as string)),
    data.map(({ embedding }) => embedding),
  )
})

t.test('a provider that knows numbers only serves the default encoding of the client', async t => {
  const { data } = await client.embeddings.create({ model: 'acme/floats', input: ['a', 'b'] })
  t.same(
    data.map(({ embedding }) => embedding),
    [
      [0, 0.5],
      [1, 0.5],
    ],
  )
  t.notHas(provider.asked.at(-1)?.body, { encoding_format: 'base64' })
  await client.embeddings.create({ model: 'acme/vectors', input: 'a' })
  t.match(provider.asked.at(-1)?.body, { encoding_format: 'base64' })
})

t.test('token ids reach the provider as they are', async t => {
  for (const input of [
    [1, 2, 3],
    [[1, 2], [3]],
  ]) {
    const { data } = await client.embeddings.create({ model: 'acme/vectors', input })
    t.same(provider.asked.at(-1)?.body['input'], input)
    t.equal(data.length, typeof input[0] === 'number' ? 1 : 2)
  }
})

t.test('dimensions decide the length of the vectors', async t => {
  const { data } = await client.embeddings.create({ model: 'sim/embed', input: 'a', dimensions: 300 })
  t.equal(data[0]?.embedding.length, 300)
})

t.test('both base paths, with and without a slash, and the id of the generation', async t => {
  for (const base of [gateway.url, gateway.url.replace('/v1', '/api/v1')]) {
    for (const path of ['/embeddings', '/embeddings/']) {
      const answer = await fetch(base + path, {
        method: 'POST',
        headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'sim/embed', input: 'a' }),
      })
      t.equal(answer.status, 200)
      const document = (await answer.json()) as { id: string; provider: string }
      t.equal(answer.headers.get('x-generation-id'), document.id)
      t.equal(document.provider, 'Simulated')
    }
  }
})

async function refusal(body: object, options: { apiKey?: string } = {}): Promise<APIError> {
  const asking =
    options.apiKey === undefined ? client : new OpenAI({ ...options, baseURL: gateway.url, maxRetries: 0 })
  try {
    await asking.embeddings.create({ model: 'acme/vectors', input: 'a', ...body })
  } catch (thrown) {
    if (thrown instanceof APIError) return thrown
    throw thrown
  }
  throw new Error('it was not refused')
}

t.test('errors are typed, and name the field', async t => {
  const bad = await refusal({ input: ['a', 5] as never })
  t.ok(bad instanceof OpenAI.BadRequestError)
  t.match(bad, {
    status: 400,
    type: 'invalid_request',
    param: 'input[1]',
    message: /input\[1\]: must be a string/,
  })
  t.ok(bad.requestID?.startsWith('gen-'))
  t.ok((await refusal({}, { apiKey: `sk-gw-v1-${'0'.repeat(64)}` })) instanceof OpenAI.AuthenticationError)
  t.ok((await refusal({}, { apiKey: gateway.managementKey })) instanceof OpenAI.PermissionDeniedError)
  const unknown = await refusal({ model: 'sim/embet' })
  t.match(unknown, { status: 400, message: /did you mean sim\/embed\?/ })
})

t.test('a model of text and one of embeddings name the operation that takes them', async t => {
  const text = await refusal({ model: 'sim/echo' })
  t.match(text, { status: 400, message: /sim\/echo generates text: use POST \/v1\/responses/ })
  t.match(text.error, {
    metadata: { availability: { code: 'wrong_endpoint', requested_models: ['sim/echo'] } },
  })
  const asks: readonly (() => Promise<unknown>)[] = [
    () => client.responses.create({ model: 'sim/embed', input: 'a' }),
    () => client.responses.create({ model: 'sim/embed', input: 'a', stream: true }),
    () => client.chat.completions.create({ model: 'sim/embed', messages: [{ role: 'user', content: 'a' }] }),
  ]
  for (const ask of asks) {
    await t.rejects(ask(), {
      status: 400,
      message: /sim\/embed produces embeddings: use POST \/v1\/embeddings/,
    })
  }
  const mixed = await gateway.respond({ model: 'sim/echo', models: ['sim/embed'], input: 'a' })
  t.equal(mixed.status, 400, 'as a fallback too')
})

t.test('failures of the provider are typed', async t => {
  const failing =
    (status: number, json: unknown, headers = {}): EmbeddingsAnswerScript =>
    () => ({ status, json, headers })
  const cases: readonly (readonly [
    EmbeddingsAnswerScript,
    abstract new (...all: never[]) => APIError,
    number,
  ])[] = [
    [failing(429, { error: { message: 'slow down' } }, { 'retry-after': '3' }), OpenAI.RateLimitError, 429],
    [
      failing(400, { error: { message: 'too long', code: 'context_length_exceeded' } }),
      OpenAI.BadRequestError,
      400,
    ],
    [failing(422, { detail: [{ loc: ['input'], msg: 'bad' }] }), OpenAI.UnprocessableEntityError, 422],
    [failing(401, { error: { message: 'no' } }), OpenAI.InternalServerError, 502],
    [failing(500, { error: { message: 'oops' } }), OpenAI.InternalServerError, 502],
    [() => response => void response.destroy(), OpenAI.InternalServerError, 502],
  ]
  for (const [answer, kind, status] of cases) {
    provider.answer = answer
    const error = await refusal({})
    t.ok(error instanceof kind, kind.name)
    t.equal(error.status, status)
    t.match(error.error, { metadata: { provider_name: 'Acme' } })
    if (status === 429) t.equal(error.headers?.get('retry-after'), '3')
  }
})

t.test('a client that leaves ends the request at the provider', async t => {
  provider.answer = () => () => undefined
  const leave = new AbortController()
  const asked = provider.nextAsked()
  const left = provider.nextLeft()
  const asking = client.embeddings.create({ model: 'acme/vectors', input: 'a' }, { signal: leave.signal })
  await asked
  leave.abort()
  await t.rejects(asking, { message: new APIUserAbortError().message })
  await left
})

t.test('embedding models are listed with what they can be told', async t => {
  const listed = await fetch(`${gateway.url}/embeddings/models`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  const { data } = (await listed.json()) as { data: { id: string; supported_parameters: string[] }[] }
  t.same(data.map(({ id }) => id).sort(), ['acme/floats', 'acme/vectors', 'sim/embed'])
  for (const { supported_parameters: parameters } of data) {
    t.same(parameters, ['dimensions', 'encoding_format', 'input_type'])
  }
})
