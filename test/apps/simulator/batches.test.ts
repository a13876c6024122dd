/** The batch services of the simulated provider, as the official clients use them. */
import Anthropic from '@anthropic-ai/sdk'
import OpenAI, { toFile } from 'openai'
import t, { type Test } from 'tap'
import type { SimJobFault } from '../../../src/apps/simulator/batch-jobs.ts'
import { createSim } from '../../../src/apps/simulator/simulator.ts'

async function start(t: Test, fault: SimJobFault | null = null) {
  const sim = createSim({ jobFaultOf: () => fault })
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'k', maxRetries: 0 })
  const anthropic = new Anthropic({ baseURL: url, apiKey: 'k', maxRetries: 0 })
  const gemini = async (path: string, method = 'GET', body?: unknown) => {
    const reply = await fetch(`${url}${path}`, {
      method,
      headers: { 'x-goog-api-key': 'k' },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    return { status: reply.status, text: await reply.text() }
  }
  return { sim, url, openai, anthropic, gemini }
}

function chatLines(...texts: string[]): string {
  const lines = texts.map((text, at) => ({
    custom_id: `line-${at}`,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'echo', messages: [{ role: 'user', content: text }] },
  }))
  return lines.map(line => JSON.stringify(line)).join('\n')
}

async function makeBatch(openai: OpenAI, text: string) {
  const file = await openai.files.create({
    file: await toFile(Buffer.from(text), 'a.jsonl'),
    purpose: 'batch',
  })
  return await openai.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
    metadata: { mine: 'yes' },
  })
}

async function ended(openai: OpenAI, id: string) {
  for (;;) {
    const batch = await openai.batches.retrieve(id)
    if (['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) return batch
  }
}

async function jsonl(openai: OpenAI, id: string | undefined): Promise<Record<string, unknown>[]> {
  const text = await (await openai.files.content(id ?? '')).text()
  return text
    .split('\n')
    .filter(line => line !== '')
    .map(line => JSON.parse(line) as Record<string, unknown>)
}

t.test('a batch of OpenAI has its replies in one file and its errors in another', async t => {
  const { openai } = await start(t, {
    line: at => (at === 1 ? 'error' : at === 2 ? 'expired' : null),
    reversed: true,
  })
  const made = await makeBatch(openai, chatLines('one', 'two', 'three', 'four'))
  t.match(made, { object: 'batch', status: 'validating', metadata: { mine: 'yes' } })
  const batch = await ended(openai, made.id)
  t.equal(batch.status, 'completed')
  t.match(await jsonl(openai, batch.output_file_id), [
    {
      custom_id: 'line-3',
      error: null,
      response: { status_code: 200, body: { choices: [{ message: { content: 'four' } }] } },
    },
    { custom_id: 'line-0', response: { body: { choices: [{ message: { content: 'one' } }] } } },
  ])
  t.match(await jsonl(openai, batch.error_file_id), [
    { custom_id: 'line-2', response: null, error: { code: 'batch_expired' } },
    {
      custom_id: 'line-1',
      response: { status_code: 400, body: { error: { message: 'Simulated failure' } } },
    },
  ])
  const listed = []
  for await (const each of openai.batches.list({ limit: 1 })) listed.push(each.id)
  t.same(listed, [made.id])
  await openai.files.delete(batch.output_file_id ?? '')
  t.equal((await openai.files.content(batch.output_file_id ?? '').then(null, error => error)).status, 404)
  t.equal((await openai.batches.cancel(made.id).then(null, error => error)).status, 400)
})

t.test('batches of OpenAI fail, expire and are cancelled', async t => {
  for (const [fault, status, code] of [
    [{ end: 'failed' }, 'failed', 'invalid_json_line'],
    [{ end: 'busy' }, 'failed', 'token_limit_exceeded'],
    [{ end: 'expired', done: 1 }, 'expired', undefined],
  ] as const) {
    const { openai } = await start(t, fault)
    const batch = await ended(openai, (await makeBatch(openai, chatLines('one', 'two'))).id)
    t.equal(batch.status, status)
    t.equal(batch.errors?.data?.[0]?.code, code)
    if (status !== 'expired') continue
    t.match(await jsonl(openai, batch.output_file_id), [{ custom_id: 'line-0' }])
    t.match(await jsonl(openai, batch.error_file_id), [{ custom_id: 'line-1' }])
  }
  const { openai } = await start(t, { polls: Number.POSITIVE_INFINITY })
  const { id } = await makeBatch(openai, chatLines('one'))
  t.equal((await openai.batches.cancel(id)).status, 'cancelling')
  t.equal((await ended(openai, id)).status, 'cancelled')
})

t.test('a batch of Anthropic has all results in one stream', async t => {
  const { anthropic } = await start(t, {
    line: at => (['error', 'expired', 'missing', null] as const)[at] ?? null,
  })
  const params = { model: 'echo', max_tokens: 9, messages: [{ role: 'user' as const, content: 'Hello' }] }
  const requests = ['a', 'b', 'c', 'd'].map(custom_id => ({ custom_id, params }))
  const made = await anthropic.messages.batches.create({ requests })
  t.match(made, {
    type: 'message_batch',
    processing_status: 'in_progress',
    request_counts: { processing: 4 },
  })
  for (let status = ''; status !== 'ended'; )
    status = (await anthropic.messages.batches.retrieve(made.id)).processing_status
  const results = []
  for await (const result of await anthropic.messages.batches.results(made.id)) results.push(result)
  t.match(results, [
    {
      custom_id: 'a',
      result: { type: 'errored', error: { type: 'error', error: { type: 'invalid_request_error' } } },
    },
    { custom_id: 'b', result: { type: 'expired' } },
    { custom_id: 'd', result: { type: 'succeeded', message: { content: [{ text: 'Hello' }] } } },
  ])
  const listed = []
  for await (const each of anthropic.messages.batches.list()) listed.push(each.id)
  t.same(listed, [made.id])
  t.match(await anthropic.messages.batches.delete(made.id), { type: 'message_batch_deleted' })
  t.equal((await anthropic.messages.batches.retrieve(made.id).then(null, error => error)).status, 404)
  const second = await anthropic.messages.batches.create({ requests })
  t.equal((await anthropic.messages.batches.cancel(second.id)).processing_status, 'canceling')
})

t.test('a batch of Gemini is made of a file', async t => {
  const { url, gemini } = await start(t, { line: at => (at === 1 ? 'error' : null) })
  const lines = ['one', 'two'].map((text, at) =>
    JSON.stringify({ key: `k${at}`, request: { contents: [{ role: 'user', parts: [{ text }] }] } }),
  )
  const body = `--b\r\ncontent-type: application/json\r\n\r\n{"file":{}}\r\n--b\r\ncontent-type: x\r\n\r\n${lines.join('\n')}\r\n--b--`
  const uploaded = await fetch(`${url}/upload/v1beta/files`, {
    method: 'POST',
    headers: { 'x-goog-api-key': 'k', 'content-type': 'multipart/related; boundary=b' },
    body,
  })
  const { file } = (await uploaded.json()) as { file: { name: string } }
  const batch = { displayName: 'mine', inputConfig: { fileName: file.name } }
  const made = await gemini('/v1beta/models/echo:batchGenerateContent', 'POST', { batch })
  const { name } = JSON.parse(made.text) as { name: string }
  t.match(JSON.parse(made.text), { metadata: { displayName: 'mine', state: 'BATCH_STATE_PENDING' } })
  let done = JSON.parse((await gemini(`/v1beta/${name}`)).text)
  while (done.done !== true) done = JSON.parse((await gemini(`/v1beta/${name}`)).text)
  t.match(done, { metadata: { state: 'BATCH_STATE_SUCCEEDED' }, response: { responsesFile: /^files\// } })
  const results = await gemini(`/download/v1beta/${done.response.responsesFile}:download?alt=media`)
  t.match(
    results.text
      .trim()
      .split('\n')
      .map(line => JSON.parse(line)),
    [
      { key: 'k0', response: { candidates: [{ content: { parts: [{ text: 'one' }] } }] } },
      { key: 'k1', error: { code: 3 } },
    ],
  )
  t.match(JSON.parse((await gemini('/v1beta/batches?pageSize=10')).text), { operations: [{ name }] })
  t.equal((await gemini(`/v1beta/${done.response.responsesFile}`, 'DELETE')).status, 200)
  t.equal((await gemini(`/download/v1beta/${done.response.responsesFile}:download?alt=media`)).status, 404)
  t.equal((await gemini(`/v1beta/${name}`, 'DELETE')).status, 200)
  t.equal((await gemini(`/v1beta/${name}`)).status, 404)
})

t.test('other calls are answered as before', async t => {
  const { url } = await start(t)
  for (const [path, init, status] of [
    ['/v1/batches', { method: 'GET' }, 401],
    ['/v1/batches/batch_none', { method: 'GET', headers: { 'x-api-key': 'k' } }, 404],
    ['/v1/nothing', { method: 'GET', headers: { 'x-api-key': 'k' } }, 404],
  ] as const) {
    t.equal((await fetch(`${url}${path}`, init)).status, status, path)
  }
})
