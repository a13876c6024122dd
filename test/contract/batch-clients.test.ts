/** The official batch clients of OpenAI and Anthropic, unchanged, against the product as it is started. */
import { randomBytes } from 'node:crypto'
import Anthropic, {
  ConflictError as MessagesConflict,
  NotFoundError as MessagesNotFound,
} from '@anthropic-ai/sdk'
import OpenAI, { BadRequestError, ConflictError, NotFoundError, toFile } from 'openai'
import t from 'tap'
import { startLineProvider } from '../support/batch-client.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { until } from '../support/patience.ts'
import type { LineReplied } from '../support/provider.ts'

const held = Promise.withResolvers<LineReplied>()
const { provider, settings } = await startLineProvider(t, text => {
  if (text === 'bad') return { status: 400 }
  return text === 'held' ? held.promise : {}
})
const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
const MODEL = 'acme/model'
const OTHER = 'acme/other'
const models = [...settings.models, { id: OTHER, endpoints: [{ provider: 'acme' }] }]
const gateway = await startGatewayProcess(
  t,
  { ...settings, models },
  { GATEWAY_MANAGEMENT_KEY: managementKey },
)
const openai = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.apiKey, maxRetries: 0 })
const anthropic = new Anthropic({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })

const line = (id: string, content: string, fields: object = {}) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: MODEL, messages: [{ role: 'user', content }] },
    ...fields,
  })

async function upload(lines: readonly string[], purpose: 'batch' | 'user_data' = 'batch'): Promise<string> {
  const file = await toFile(Buffer.from(lines.join('\n')), 'requests.jsonl')
  return (await openai.files.create({ file, purpose })).id
}

const create = (input_file_id: string) =>
  openai.batches.create({ input_file_id, endpoint: '/v1/chat/completions', completion_window: '24h' })

async function endedBatch(id: string): Promise<OpenAI.Batches.Batch> {
  let batch = await openai.batches.retrieve(id)
  await until('the batch', async () => {
    batch = await openai.batches.retrieve(id)
    return batch.status === 'completed' || batch.status === 'failed' || batch.status === 'cancelled'
  })
  return batch
}

async function linesOf(fileId: string | undefined): Promise<readonly Record<string, unknown>[]> {
  const text = await (await openai.files.content(fileId ?? '')).text()
  return text
    .trimEnd()
    .split('\n')
    .map(each => JSON.parse(each) as Record<string, unknown>)
}

const refusal = async (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    error => error,
  )

t.test('openai: a file of lines becomes a batch, whose answers and failures are files of lines', async t => {
  const before = provider.calls
  const input_file_id = await upload([line('a', 'one'), line('b', 'bad'), '', line('c', 'three'), ''])
  const made = await openai.batches.create({
    input_file_id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
    metadata: { project: 'tea' },
  })
  t.match(made, { object: 'batch', status: 'validating', input_file_id, metadata: { project: 'tea' } })
  t.match(made, { output_file_id: null, error_file_id: null, errors: null })
  const batch = await endedBatch(made.id)
  t.match(batch, {
    status: 'completed',
    request_counts: { total: 3, completed: 2, failed: 1 },
    metadata: { project: 'tea' },
    results: null,
    failed_at: null,
  })
  t.equal(batch.completed_at, (batch as unknown as { finalized_at: number }).finalized_at)
  t.ok(batch.usage && batch.usage.input_tokens > 0)
  t.equal(batch.usage?.total_tokens, (batch.usage?.input_tokens ?? 0) + (batch.usage?.output_tokens ?? 0))
  const answers = await linesOf(batch.output_file_id)
  t.match(answers, [
    { custom_id: 'a', error: null, response: { status_code: 200, body: { object: 'chat.completion' } } },
    { custom_id: 'c', error: null, response: { body: { choices: [{ message: { content: 'three' } }] } } },
  ])
  const failures = await linesOf(batch.error_file_id)
  t.match(failures, [{ custom_id: 'b', response: null, error: { code: 'invalid_request', message: String } }])
  t.equal(answers.length + failures.length, 3)
  t.equal(provider.calls - before, 3, 'each line was asked once')
})

t.test('openai: a file of results is told, is not another workspace’s, and goes with its batch', async t => {
  const batch = await endedBatch((await create(await upload([line('a', 'one')]))).id)
  const id = batch.output_file_id ?? ''
  const content = await (await openai.files.content(id)).text()
  t.match(await openai.files.retrieve(id), {
    id,
    bytes: Buffer.byteLength(content),
    purpose: 'batch_output',
    filename: `${batch.id}_output.jsonl`,
  })
  t.equal(batch.error_file_id, null)
  t.ok((await refusal(openai.files.retrieve(id.replace('output', 'errors')))) instanceof NotFoundError)
  const kept = await refusal(openai.files.delete(id))
  t.ok(kept instanceof ConflictError)
  t.match((kept as Error).message, /DELETE \/v1\/batches\/batch_/)
  const workspace = await fetch(`${gateway.url}/v1/workspaces`, {
    method: 'POST',
    headers: { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'Other', slug: 'other' }),
  })
  const { data } = (await workspace.json()) as { data: { id: string } }
  const made = await fetch(`${gateway.url}/v1/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'other', workspace_id: data.id }),
  })
  const { key } = (await made.json()) as { key: string }
  const other = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 0 })
  t.ok((await refusal(other.files.content(id))) instanceof NotFoundError)
  t.ok(
    (await refusal(
      other.batches.create({
        input_file_id: batch.input_file_id,
        endpoint: '/v1/chat/completions',
        completion_window: '24h',
      }),
    )) instanceof NotFoundError,
  )
})

t.test('openai: a file whose lines are all bad is a failed batch that names them', async t => {
  const bad = { body: { model: MODEL, messages: [{ role: 'user', content: 'x' }], temperature: 9 } }
  const batch = await endedBatch((await create(await upload([line('a', 'x', bad), line('b', 'x', bad)]))).id)
  t.match(batch, {
    status: 'failed',
    output_file_id: null,
    errors: {
      object: 'list',
      data: [
        { code: 'invalid_request', line: 1, param: 'temperature', message: /^temperature: / },
        { code: 'invalid_request', line: 2, param: 'temperature' },
      ],
    },
  })
  t.equal((await linesOf(batch.error_file_id)).length, 2)
})

t.test('openai: what cannot be a batch is refused with the line and the way out', async t => {
  const cases: readonly [string, readonly string[], RegExp][] = [
    ['no JSON', [line('a', 'x'), '{"custom_id":'], /input_file_id: line 2, custom_id: is not valid JSON/],
    [
      'another url',
      [line('a', 'x', { url: '/v1/responses' })],
      /line 1, url: must be \/v1\/chat\/completions/,
    ],
    ['another method', [line('a', 'x', { method: 'GET' })], /line 1, method: must be POST/],
    ['no method', [line('a', 'x', { method: undefined })], /line 1, method: is required/],
    ['the same id', [line('a', 'x'), line('a', 'y')], /line 2, custom_id: must be unique/],
    ['no body', [line('a', 'x', { body: undefined })], /line 1, body: is required/],
    ['no lines', [' \n'], /input_file_id: the file has no lines/],
    ['a list', ['[]'], /line 1: must be an object with custom_id, method, url, body/],
  ]
  for (const [name, lines, message] of cases) {
    const error = await refusal(create(await upload(lines)))
    t.ok(error instanceof BadRequestError, name)
    t.match((error as Error).message, message, name)
  }
  const two = await refusal(
    create(await upload([line('a', 'x'), line('b', 'x', { body: { model: 'acme/other' } })])),
  )
  t.match(
    (two as Error).message,
    /422 input_file_id: line 2, body.model: must be the same in the whole batch/,
  )
  const purpose = await refusal(create(await upload([line('a', 'x')], 'user_data')))
  t.match((purpose as Error).message, /400 input_file_id: must be the id of a file with the purpose batch/)
  const unknown = await refusal(create('file-abc'))
  t.match((unknown as Error).message, /404 input_file_id: there is no such file in this workspace/)
  const expiring = await refusal(
    openai.batches.create({
      input_file_id: 'x',
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      output_expires_after: { anchor: 'created_at', seconds: 3600 },
    }),
  )
  t.match((expiring as Error).message, /400 output_expires_after: is not offered/)
  const other = await refusal(
    openai.batches.create({ input_file_id: 'x', endpoint: '/v1/moderations', completion_window: '24h' }),
  )
  t.match((other as Error).message, /400 endpoint: /)
})

t.test(
  'openai: a batch is listed page by page, and a repeated create with its key makes no second one',
  async t => {
    const input_file_id = await upload([line('a', 'one')])
    const body = { input_file_id, endpoint: '/v1/chat/completions', completion_window: '24h' } as const
    const options = { headers: { 'idempotency-key': 'once' } }
    const first = await openai.batches.create(body, options)
    t.equal((await openai.batches.create(body, options)).id, first.id)
    await endedBatch(first.id)
    const ids: string[] = []
    for await (const { id } of openai.batches.list({ limit: 1 })) ids.push(id)
    t.equal(new Set(ids).size, ids.length)
    t.ok(ids.length >= 3)
    t.equal(ids[0], first.id)
  },
)

const messages = (content: string) => ({
  model: MODEL,
  max_tokens: 100,
  messages: [{ role: 'user' as const, content }],
})

async function endedMessages(id: string): Promise<Anthropic.Messages.MessageBatch> {
  let batch = await anthropic.messages.batches.retrieve(id)
  await until('the batch', async () => {
    batch = await anthropic.messages.batches.retrieve(id)
    return batch.processing_status === 'ended'
  })
  return batch
}

async function resultsOf(id: string) {
  const results: Anthropic.Messages.MessageBatchIndividualResponse[] = []
  for await (const result of await anthropic.messages.batches.results(id)) results.push(result)
  return results
}

t.test('anthropic: a batch of messages is made, read to its end, and its results stream', async t => {
  const before = provider.calls
  const made = await anthropic.messages.batches.create({
    requests: [
      { custom_id: 'a', params: messages('one') },
      { custom_id: 'b', params: messages('bad') },
      { custom_id: 'c', params: { ...messages('x'), temperature: 9 } as never },
    ],
  })
  t.match(made, { type: 'message_batch', archived_at: null })
  t.match(made.created_at, /^\d{4}-\d\d-\d\dT.*Z$/)
  const batch = await endedMessages(made.id)
  t.match(batch.request_counts, { processing: 0, succeeded: 1, errored: 2, canceled: 0, expired: 0 })
  t.ok(batch.ended_at)
  const results = await resultsOf(made.id)
  t.match(results, [
    { custom_id: 'a', result: { type: 'succeeded', message: { type: 'message', role: 'assistant' } } },
    {
      custom_id: 'b',
      result: { type: 'errored', error: { type: 'error', error: { type: 'invalid_request_error' } } },
    },
    { custom_id: 'c', result: { type: 'errored', error: { error: { message: /^temperature: / } } } },
  ])
  t.equal(provider.calls - before, 2, 'each was asked once; the third was never sent')
  t.match(await openai.batches.retrieve(made.id), { endpoint: '/v1/messages', status: 'completed' })
  t.same(await anthropic.messages.batches.delete(made.id), { id: made.id, type: 'message_batch_deleted' })
  const gone = await refusal(anthropic.messages.batches.retrieve(made.id))
  t.ok(gone instanceof MessagesNotFound)
  t.match(gone, { error: { type: 'error', error: { type: 'not_found_error' } } })
})

t.test('anthropic: a batch is cancelled, and requests without an answer say so', async t => {
  const { id } = await anthropic.messages.batches.create({
    requests: ['one', 'held', 'held'].map((text, at) => ({ custom_id: `r${at}`, params: messages(text) })),
  })
  await until(
    'the batch',
    async () => (await anthropic.messages.batches.retrieve(id)).request_counts.succeeded === 1,
  )
  await until('the calls', () => provider.running === 2)
  const early = await refusal(anthropic.messages.batches.results(id))
  t.match((early as Error).message, /No batch `results_url`/)
  const direct = await refusal(anthropic.get(`/v1/messages/batches/${id}/results`))
  t.ok(direct instanceof MessagesConflict)
  t.ok((await refusal(anthropic.messages.batches.delete(id))) instanceof MessagesConflict)
  t.match(await anthropic.messages.batches.cancel(id), { processing_status: /canceling|ended/ })
  const batch = await endedMessages(id)
  t.match(batch.request_counts, { processing: 0, succeeded: 1, errored: 0, canceled: 2, expired: 0 })
  t.ok(batch.cancel_initiated_at)
  t.match(
    (await resultsOf(id)).map(({ custom_id, result }) => [custom_id, result.type]),
    [
      ['r0', 'succeeded'],
      ['r1', 'canceled'],
      ['r2', 'canceled'],
    ],
  )
})

t.test('openai: a cancelled batch by file has what was answered, and the rest in the error file', async t => {
  const { id } = await create(await upload([line('a', 'one'), line('b', 'held')]))
  await until('the batch', async () => (await openai.batches.retrieve(id)).request_counts?.completed === 1)
  t.match(await openai.batches.cancel(id), { status: /^cancell/ })
  const batch = await endedBatch(id)
  t.equal((await linesOf(batch.output_file_id)).length, 1)
  t.match(await linesOf(batch.error_file_id), [
    { custom_id: 'b', response: null, error: { code: 'batch_cancelled' } },
  ])
  held.resolve({})
})

t.test(
  'anthropic: lists go both ways, have batches of messages alone, and beta calls are the same',
  async t => {
    const made: string[] = []
    for (let at = 0; at < 3; at++) {
      const { id } = await anthropic.beta.messages.batches.create({
        requests: [{ custom_id: 'a', params: messages('one') }],
      })
      made.unshift(id)
      await endedMessages(id)
    }
    const ids: string[] = []
    for await (const { id } of anthropic.messages.batches.list({ limit: 2 })) ids.push(id)
    t.same(ids.slice(0, 3), made)
    t.equal(new Set(ids).size, ids.length)
    const before = await anthropic.messages.batches.list({ limit: 1, before_id: made[2] ?? '' })
    t.same([before.data.map(({ id }) => id), before.has_more], [[made[1]], true])
    const file = await openai.batches.list({ limit: 100 })
    const chat = file.data.find(({ endpoint }) => endpoint === '/v1/chat/completions')
    t.ok(chat)
    t.notOk(ids.includes(chat?.id ?? ''))
    const foreign = await refusal(anthropic.messages.batches.retrieve(chat?.id ?? ''))
    t.match((foreign as Error).message, /read it with GET \/v1\/batches\//)
  },
)

t.test('anthropic: each request of a batch may name another model', async t => {
  const { id } = await anthropic.messages.batches.create({
    requests: [
      { custom_id: 'a', params: messages('one') },
      { custom_id: 'b', params: { ...messages('two'), model: OTHER } },
      { custom_id: 'c', params: { ...messages('three'), model: 'nobody/none' } },
      { custom_id: 'd', params: messages('four') },
    ],
  })
  const batch = await endedMessages(id)
  t.match(batch.request_counts, { succeeded: 3, errored: 1 })
  t.match(await resultsOf(id), [
    { custom_id: 'a', result: { message: { model: MODEL } } },
    { custom_id: 'b', result: { message: { model: OTHER } } },
    { custom_id: 'c', result: { type: 'errored', error: { error: { type: 'not_found_error' } } } },
    { custom_id: 'd', result: { message: { model: MODEL } } },
  ])
  t.match(await openai.batches.retrieve(id), { model: MODEL })
  const unknown = await refusal(
    anthropic.messages.batches.create({
      requests: [{ custom_id: 'a', params: { ...messages('x'), model: 'nobody/none' } }],
    }),
  )
  t.ok(unknown instanceof MessagesNotFound, 'that of the first request is checked at once')
})

t.test('anthropic: a request of a batch is refused by its path in the form of the client', async t => {
  const none = await refusal(anthropic.messages.batches.create({ requests: [{ custom_id: 'a' }] } as never))
  t.match((none as Error).message, /requests\[0\]\.params: is required/)
  const field = await refusal(
    anthropic.messages.batches.create({ endpoint: '/v1/messages', requests: [] } as never),
  )
  t.match((field as Error).message, /endpoint: is not a known field; the known ones are requests/)
})
