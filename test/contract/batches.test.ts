/** /batches over real HTTP: made, listed, shown with its results, cancelled and deleted. */
import t from 'tap'
import { NO_USAGE } from '../../src/protocol/management/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import { batchBody, batchCaller, endBatch, requestsOf } from '../support/batch-calls.ts'
import { startGateway } from '../support/gateway.ts'
import { addOrganization, caller } from '../support/management.ts'
import { TestClock } from '../support/test-clock.ts'

const clock = new TestClock(Date.UTC(2026, 10, 22, 12, 0, 0, 250))
const published: unknown[] = []
const gateway = await startGateway({ clock, publish: change => void published.push(change) })
t.teardown(() => gateway.close())
const call = batchCaller(gateway.url, gateway.apiKey)

async function create(body = batchBody(), headers: Readonly<Record<string, string>> = {}): Promise<string> {
  const { status, document, text } = await call('POST', '/batches', body, headers)
  if (status !== 202) throw new Error(text)
  return String(document['id'])
}

const NEW = {
  object: 'batch',
  endpoint: '/v1/responses',
  model: 'sim/echo',
  completion_window: '24h',
  status: 'validating',
  finalized_at: null,
  provider: null,
  usage: null,
  error: null,
  waiting: null,
  results: null,
  input_file_id: null,
  output_file_id: null,
  error_file_id: null,
  errors: null,
  metadata: null,
  in_progress_at: null,
  finalizing_at: null,
  completed_at: null,
  failed_at: null,
  expired_at: null,
  cancelling_at: null,
  cancelled_at: null,
}

t.test('a batch is answered with 202 and all its keys, and found again', async t => {
  const { status, headers, document } = await call('POST', '/batches', batchBody(requestsOf(3)))
  const created = Math.floor(clock.nowMs() / 1000)
  t.equal(status, 202)
  t.same(document, {
    ...NEW,
    id: document['id'],
    created_at: created,
    expires_at: created + 86_400,
    request_counts: { total: 3, completed: 0, failed: 0 },
  })
  t.match(document['id'], /^batch_[0-9A-Za-z]{24}$/)
  t.match(headers.get('x-request-id'), /^gen-/)
  t.equal(headers.get('x-generation-id'), null)
  t.same(published.at(-1), { kind: 'batches' }, 'runners are told')
  for (const path of [`/batches/${document['id']}`, `/batches/${document['id']}/`]) {
    const found = await call('GET', path)
    t.equal(found.status, 200)
    t.same(found.document, document)
  }
  const other = batchCaller(gateway.url.replace('/v1', '/api/v1'), gateway.apiKey)
  t.same((await other('GET', `/batches/${document['id']}`)).document, document)
  const head = await fetch(`${gateway.url}/batches/${document['id']}`, {
    method: 'HEAD',
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  t.equal(head.status, 200)
})

t.test('both endpoints that have a dialect are taken, and the model may stand in the bodies', async t => {
  for (const endpoint of ['/v1/responses', '/v1/chat/completions']) {
    const requests = [{ custom_id: 'a', body: { model: 'sim/echo', input: 'x' } }]
    const { status, document } = await call('POST', '/batches', JSON.stringify({ endpoint, requests }))
    t.equal(status, 202)
    t.match(document, { endpoint, model: 'sim/echo' })
  }
})

t.test('bodies are chunked or announced, with any white space, and arrive as they were sent', async t => {
  const body = ` \n${batchBody(requestsOf(2)).replaceAll(',', ' ,\n\t')}\r\n`
  const chunks = [...Buffer.from(body)].map(byte => new Uint8Array([byte]))
  const stream = new ReadableStream({
    pull(controller) {
      const chunk = chunks.shift()
      if (chunk === undefined) controller.close()
      else controller.enqueue(chunk)
    },
  })
  const { status, document } = await call('POST', '/batches', stream)
  t.equal(status, 202)
  const store = await openStore(gateway.storageUrl)
  t.teardown(() => store.close())
  const lines = await store.batches.work.uncheckedLines(String(document['id']), { limit: 10 })
  t.same(
    lines.map(line => line.body),
    ['{"input":"Hello 0"}', '{"input":"Hello 1"}'],
  )
})

t.test('results are there in every terminal state, in the order of the requests', async t => {
  const states = [
    ['completed', 5],
    ['cancelled', 2],
    ['expired', 3],
  ] as const
  for (const [status, finished] of states) {
    clock.advance(1_000)
    const id = await create(batchBody(requestsOf(5)))
    clock.advance(5_000)
    await endBatch(gateway.storageUrl, id, {
      status,
      finished,
      failEvery: 2,
      at: new Date(clock.nowMs()).toISOString(),
    })
    const { document } = await call('GET', `/batches/${id}`)
    t.match(document, {
      id,
      status,
      finalized_at: Math.floor(clock.nowMs() / 1000),
      request_counts: { total: 5, completed: Math.floor(finished / 2), failed: Math.ceil(finished / 2) },
      error: null,
    })
    t.same(
      document['results'],
      Array.from({ length: finished }, (_, number) => ({
        custom_id: `request-${number}`,
        id: `batch_req_${number}`,
        response: { number },
        error: null,
      })),
    )
    t.same(
      Object.keys(document).toSorted(),
      [...Object.keys(NEW), 'id', 'created_at', 'expires_at', 'request_counts'].toSorted(),
    )
    const { list } = {
      list: (await call('GET', '/batches?limit=1')).document['data'] as Record<string, unknown>[],
    }
    t.match(list, [{ id, status, results: null }], 'lists have no results')
  }
})

t.test('usage is the sum of the lines in the shape of the interface', async t => {
  const id = await create(batchBody(requestsOf(3)))
  const usage = {
    ...NO_USAGE,
    inputTokens: 100,
    cachedTokens: 40,
    cacheWriteTokens: 10,
    outputTokens: 20,
    reasoningTokens: 5,
    toolCallsExecuted: 1,
    toolCallsRequested: 2,
    webSearchRequests: 3,
    cost: '1000000000001',
    upstream: { prompt: '300000000000', completions: '200000000000' },
    isByok: true,
    serviceTier: 'flex',
  }
  await endBatch(gateway.storageUrl, id, { usage })
  const { document } = await call('GET', `/batches/${id}`)
  t.same(document['usage'], {
    prompt_tokens: 300,
    completion_tokens: 60,
    total_tokens: 360,
    input_tokens: 300,
    input_tokens_details: { cached_tokens: 120 },
    output_tokens: 60,
    output_tokens_details: { reasoning_tokens: 15 },
    prompt_tokens_details: {
      audio_tokens: 0,
      cache_write_tokens: 30,
      cached_tokens: 120,
      file_tokens: 0,
      video_tokens: 0,
    },
    completion_tokens_details: { audio_tokens: 0, image_tokens: 0, reasoning_tokens: 15 },
    cache_creation: { ephemeral_1h_input_tokens: 0, ephemeral_5m_input_tokens: 30 },
    server_tool_use: { tool_calls_executed: 3, tool_calls_requested: 6, web_search_requests: 9 },
    cost: 3.000000000003,
    cost_details: {
      upstream_inference_prompt_cost: 0.9,
      upstream_inference_completions_cost: 0.6,
      upstream_inference_cost: 1.5,
    },
    is_byok: true,
    iterations: [
      {
        type: 'message',
        input_tokens: 150,
        output_tokens: 60,
        cache_creation: null,
        cache_creation_input_tokens: 30,
        cache_read_input_tokens: 120,
      },
    ],
    service_tier: 'flex',
    speed: 'standard',
  })
})

t.test('results of many megabytes arrive whole, however slowly they are read', async t => {
  const count = 3_000
  const id = await create(batchBody(requestsOf(count)))
  const text = 'é'.repeat(2_000)
  await endBatch(gateway.storageUrl, id, {
    resultOf: number => ({ id: `batch_req_${number}`, response: { text, number }, error: null }),
  })
  const reply = await fetch(`${gateway.url}/batches/${id}`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  t.equal(reply.headers.get('content-type'), 'application/json')
  const reader = reply.body?.getReader()
  const chunks: Uint8Array[] = []
  let most = 0
  for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read()) {
    chunks.push(piece.value)
    most = Math.max(most, gateway.serving.server.load.bufferedBytes)
    await new Promise(resolve => setImmediate(resolve))
  }
  const document = JSON.parse(Buffer.concat(chunks).toString()) as {
    results: { response: { number: number } }[]
  }
  t.same(
    document.results.map(({ response }) => response.number),
    Array.from({ length: count }, (_, number) => number),
  )
  t.ok(most < 4 * 1024 * 1024, `at most ${most} bytes waited`)
  t.equal(gateway.serving.server.load.bufferedBytes, 0)
})

t.test('results that are removed while they are read never look complete', async t => {
  const id = await create(batchBody(requestsOf(2_000)))
  await endBatch(gateway.storageUrl, id, {
    resultOf: number => ({ id: `batch_req_${number}`, response: { text: 'x'.repeat(20_000) }, error: null }),
  })
  const reply = await fetch(`${gateway.url}/batches/${id}`, {
    headers: { authorization: `Bearer ${gateway.apiKey}` },
  })
  const reader = reply.body?.getReader()
  await reader?.read()
  t.equal((await call('DELETE', `/batches/${id}`)).status, 200)
  const rest = async () => {
    for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read());
  }
  await t.rejects(rest(), { message: 'terminated' }, 'the connection breaks off')
})

t.test('the list has pages, newest first, of the whole workspace', async t => {
  const { apiKey } = await addOrganization(gateway.storageUrl, 'org_lists')
  const list = batchCaller(gateway.url, apiKey)
  const empty = { object: 'list', data: [], first_id: null, last_id: null, has_more: false }
  t.same((await list('GET', '/batches')).document, empty)
  const ids: string[] = []
  for (let number = 0; number < 25; number++) {
    clock.advance(number % 3 === 0 ? 1_000 : 0)
    ids.unshift(String((await list('POST', '/batches', batchBody())).document['id']))
  }
  const idsIn = (document: Record<string, unknown>) =>
    (document['data'] as { id: string }[]).map(({ id }) => id)
  const all = idsIn((await list('GET', '/batches?limit=100')).document)
  t.same(all.toSorted(), ids.toSorted())
  const first = (await list('GET', '/batches')).document
  t.same(idsIn(first), all.slice(0, 20))
  t.match(first, { object: 'list', first_id: all[0], last_id: all[19], has_more: true })
  const second = (await list('GET', `/batches?after=${first['last_id']}`)).document
  t.same(idsIn(second), all.slice(20))
  t.match(second, { has_more: false, last_id: all[24] })
  t.same((await list('GET', `/batches?after=${all[24]}`)).document, empty)
  t.same(idsIn((await list('GET', '/batches?limit=1')).document), [all[0]])
  t.same(idsIn((await list('GET', '/batches?unknown=1&limit=25')).document), all)
})

t.test('the list is filtered by state and by time', async t => {
  const { apiKey } = await addOrganization(gateway.storageUrl, 'org_filters')
  const list = batchCaller(gateway.url, apiKey)
  const made: string[] = []
  for (let number = 0; number < 4; number++) {
    clock.advance(10_000)
    made.push(String((await list('POST', '/batches', batchBody())).document['id']))
  }
  const [first = '', second = '', third = '', fourth = ''] = made
  await endBatch(gateway.storageUrl, second)
  await list('POST', `/batches/${third}/cancel`)
  const ids = async (query: string) =>
    ((await list('GET', `/batches?${query}`)).document['data'] as { id: string }[]).map(({ id }) => id)
  t.same(await ids('status=completed'), [second])
  t.same(await ids('status=validating'), [fourth, first])
  t.same(await ids('status=validating&status=completed'), [fourth, second, first])
  t.same(await ids('status=failed'), [])
  const createdAt = Number((await list('GET', `/batches/${second}`)).document['created_at'])
  const iso = new Date(createdAt * 1000).toISOString()
  t.same(await ids(`created_after=${createdAt}`), [fourth, third])
  t.same(await ids(`created_after=${createdAt - 1}`), [fourth, third, second])
  t.same(await ids(`created_before=${createdAt}`), [first])
  t.same(await ids(`created_before=${createdAt + 1}`), [second, first])
  t.same(await ids(`created_after=${iso}`), [fourth, third])
  t.same(await ids(`created_before=${encodeURIComponent(iso.replace('Z', '+00:00'))}`), [first])
  t.same(await ids(`created_after=${createdAt - 1}&created_before=${createdAt + 1}`), [second])
  t.same(await ids(`created_after=${createdAt}&status=validating`), [fourth])
  t.same(await ids('created_after=0'), [fourth, third, second, first])
  const { apiKey: foreign } = await addOrganization(gateway.storageUrl, 'org_filters_2')
  const [theirs] = [
    String((await batchCaller(gateway.url, foreign)('POST', '/batches', batchBody())).document['id']),
  ]
  for (const [query, message] of [
    ['limit=0', /^limit: must be an integer from 1 to 100/],
    ['limit=101', /^limit: /],
    ['limit=x', /^limit: /],
    ['limit=1&limit=2', /^limit: must not be given twice/],
    [
      'status=finalizing',
      /^status: must be one of validating, in_progress, completed, failed, expired, cancelled$/,
    ],
    ['status=cancelling', /^status: /],
    ['status=', /^status: /],
    ['status=completed,failed', /^status: /],
    ['created_after=yesterday', /^created_after: must be a time/],
    ['created_after=-1', /^created_after: /],
    ['created_after=1.5', /^created_after: /],
    ['created_after=999999999999', /^created_after: /],
    ['created_after=2026-02-30T00:00:00Z', /^created_after: /],
    ['created_after=2026-02-01', /^created_after: /],
    ['created_before=', /^created_before: /],
    ['created_before=1&created_before=2', /^created_before: must not be given twice/],
    ['created_after=5&created_before=5', /^created_after: must be before created_before/],
    ['created_after=6&created_before=5', /^created_after: /],
    ['after=batch_none', /^after: must be the id of a batch in this workspace/],
    [`after=${theirs}`, /^after: must be the id of a batch in this workspace/],
    ['after=', /^after: /],
  ] as const) {
    const answer = await list('GET', `/batches?${query}`)
    t.equal(answer.status, 400, query)
    t.match(answer.message, message, query)
  }
})

t.test('a batch is cancelled once, and repeating it changes nothing', async t => {
  const id = await create()
  published.length = 0
  const cancelled = await call('POST', `/batches/${id}/cancel`, '')
  t.equal(cancelled.status, 200)
  t.match(cancelled.document, { id, status: 'cancelling', finalized_at: null, results: null })
  t.same(published, [{ kind: 'batches' }])
  for (const body of [undefined, '', '{}']) {
    const again = await call('POST', `/batches/${id}/cancel`, body)
    t.equal(again.status, 200)
    t.same(again.document, cancelled.document)
  }
  t.equal(published.length, 1, 'runners are told once')
})

t.test('a management key cancels a batch of its workspace', async t => {
  const manage = caller(gateway.url, gateway.managementKey)
  const id = await create()
  const place = `/workspaces/ws_default/batches/${id}/cancel`
  published.length = 0
  const cancelled = await manage('POST', place)
  t.match(cancelled, { status: 200, data: { id, status: 'cancelling' } })
  t.same(published, [{ kind: 'batches' }])
  t.same((await call('GET', `/batches/${id}`)).document, cancelled.data, 'the key of the workspace sees it')
  t.same((await manage('POST', place, {})).data, cancelled.data, 'repeating it changes nothing')
  t.equal(published.length, 1, 'runners are told once')
  const ended = await create()
  await endBatch(gateway.storageUrl, ended, { status: 'completed' })
  t.match(await manage('POST', `/workspaces/default/batches/${ended}/cancel`), {
    status: 409,
    message: 'A batch cannot be cancelled when its status is completed',
  })
  const other = await addOrganization(gateway.storageUrl, 'org_cancelling')
  const foreign = caller(gateway.url, other.managementKey)
  const running = await create()
  for (const [ask, workspace] of [
    [foreign, 'ws_default'],
    [foreign, other.workspaceId],
    [manage, other.workspaceId],
    [manage, 'nothing'],
  ] as const) {
    t.equal((await ask('POST', `/workspaces/${workspace}/batches/${running}/cancel`)).status, 404, workspace)
  }
  t.equal((await manage('POST', '/workspaces/default/batches/batch_nothing/cancel')).status, 404)
  t.match((await call('GET', `/batches/${running}`)).document, { status: 'validating' })
  const { list } = await manage('GET', '/audit')
  t.match(
    list.filter(({ action }) => action === 'batch.cancel'),
    [{ object: { kind: 'batch', id } }],
  )
  t.equal((await manage('POST', `/batches/${running}/cancel`)).status, 403, 'not by the path of API keys')
})

t.test('a batch that has ended, or is about to, is not cancelled', async t => {
  for (const status of ['completed', 'cancelled', 'expired'] as const) {
    const id = await create()
    await endBatch(gateway.storageUrl, id, { status })
    const before = (await call('GET', `/batches/${id}`)).text
    const answer = await call('POST', `/batches/${id}/cancel`)
    t.equal(answer.status, 409)
    t.match(answer.document, {
      error: {
        code: 409,
        message: `A batch cannot be cancelled when its status is ${status}`,
        metadata: { error_type: 'precondition_failed' },
      },
    })
    t.equal((await call('GET', `/batches/${id}`)).text, before)
  }
})

t.test('a batch is deleted once it has ended', async t => {
  const id = await create()
  const running = await call('DELETE', `/batches/${id}`)
  t.equal(running.status, 409)
  t.match(running.message, /^A batch cannot be deleted when its status is validating: cancel it/)
  t.equal((await call('GET', `/batches/${id}`)).status, 200)
  await endBatch(gateway.storageUrl, id)
  const deleted = await call('DELETE', `/batches/${id}`)
  t.equal(deleted.status, 200)
  t.same(deleted.document, { id, object: 'batch', deleted: true, deletion: { gateway: 'deleted' } })
  for (const [method, path] of [
    ['GET', `/batches/${id}`],
    ['DELETE', `/batches/${id}`],
    ['POST', `/batches/${id}/cancel`],
  ] as const) {
    t.equal((await call(method, path)).status, 404, method)
  }
  const { document } = await call('GET', '/batches?limit=100')
  t.notOk((document['data'] as { id: string }[]).some(batch => batch.id === id))
})

t.test('unknown batches are 404, whatever their name', async t => {
  for (const id of ['batch_none', 'x', '%F0%9F%98%80', '__proto__', 'a'.repeat(500), "'%20or%201=1"]) {
    for (const [method, path] of [
      ['GET', `/batches/${id}`],
      ['DELETE', `/batches/${id}`],
      ['POST', `/batches/${id}/cancel`],
    ] as const) {
      const answer = await call(method, path)
      t.equal(answer.status, 404, `${method} ${id}`)
      t.match(answer.document, { error: { code: 404, message: 'Batch not found' } })
    }
  }
})

t.test('keys of one workspace share their batches, and management keys have none', async t => {
  const id = await create()
  for (const [method, path, body] of [
    ['POST', '/batches', batchBody()],
    ['GET', '/batches', undefined],
    ['GET', `/batches/${id}`, undefined],
    ['DELETE', `/batches/${id}`, undefined],
    ['POST', `/batches/${id}/cancel`, undefined],
  ] as const) {
    const management = await batchCaller(gateway.url, gateway.managementKey)(method, path, body)
    t.equal(management.status, 403, `${method} ${path}`)
    const nobody = await batchCaller(gateway.url, `sk-gw-v1-${'0'.repeat(64)}`)(method, path, body)
    t.equal(nobody.status, 401, `${method} ${path}`)
  }
  const key = await fetch(`${gateway.url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: '{"name":"second"}',
  })
  const { key: second } = (await key.json()) as { key: string }
  t.equal((await batchCaller(gateway.url, second)('GET', `/batches/${id}`)).document['id'], id)
})
