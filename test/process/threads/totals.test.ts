/** The sums of the admin port against what was sent to the real process with two serve threads. */
import { request as send } from 'node:http'
import t from 'tap'
import { batchBody, batchCaller } from '../../support/batch-calls.ts'
import { NO_SHEDDING, startGatewayProcess } from '../../support/gateway-process.ts'
import { parseScrape, type Sample } from '../../support/metrics.ts'
import { eventually } from '../../support/stream-probe.ts'

const REQUESTS = 200
const STREAMS = 60

t.test('totals over two threads are exactly what was sent', async t => {
  const metrics = { byWorkspace: true, genAi: true }
  const gateway = await startGatewayProcess(
    t,
    { limits: NO_SHEDDING, metrics },
    { GATEWAY_SERVE_THREADS: '2' },
  )
  /** A connection of its own each, so that the system spreads them over the threads. */
  const ask = (body: unknown) =>
    new Promise<{ status: number; text: string }>((resolve, reject) => {
      const outgoing = send(
        `${gateway.url}/v1/responses`,
        {
          agent: false,
          method: 'POST',
          headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
        },
        reply => {
          let text = ''
          reply
            .setEncoding('utf8')
            .on('data', (more: string) => {
              text += more
            })
            .on('end', () => resolve({ status: reply.statusCode ?? 0, text }))
            .on('error', reject)
        },
      )
      outgoing.on('error', reject).end(JSON.stringify(body))
    })
  const scrape = async (): Promise<Sample[]> =>
    parseScrape(await (await fetch(`${gateway.adminUrl}/metrics`)).text())
  const sum = (samples: readonly Sample[], name: string, labels: Record<string, string> = {}) =>
    samples
      .filter(sample => sample.name === name)
      .filter(sample => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
      .reduce((total, sample) => total + sample.value, 0)

  let inputTokens = 0
  let outputTokens = 0
  let events = 0
  let next = 0
  const lane = async () => {
    while (next < REQUESTS + STREAMS) {
      const stream = next++ >= REQUESTS
      const { status, text } = await ask({ model: 'sim/echo', input: `words ${next}`, stream })
      t.equal(status, 200)
      const frames = text.split('\n').filter(line => line.startsWith('data: {'))
      if (stream) events += frames.length
      const document = stream
        ? (JSON.parse((frames.at(-1) ?? '').slice('data: '.length)) as { response: unknown }).response
        : (JSON.parse(text) as unknown)
      const { usage } = document as { usage: { input_tokens: number; output_tokens: number } }
      inputTokens += usage.input_tokens
      outputTokens += usage.output_tokens
    }
  }
  await Promise.all(Array.from({ length: 8 }, lane))

  const sent = REQUESTS + STREAMS
  let samples: Sample[] = []
  // A thread counts a request a moment after the client has its answer, and one that is late with its answer to a
  // scrape is not up, and tells only its totals.
  const told = async () => {
    samples = await scrape()
    return (
      sum(samples, 'gateway_requests_total') >= sent && sum(samples, 'gateway_threads', { state: 'up' }) === 2
    )
  }
  t.ok(await eventually(told, 60_000), 'both threads tell what they served')
  t.equal(sum(samples, 'gateway_requests_total'), sent)
  t.equal(sum(samples, 'gateway_requests_total', { route: '/responses', outcome: 'completed' }), sent)
  t.equal(sum(samples, 'gateway_request_duration_seconds_count'), sent)
  t.equal(sum(samples, 'gateway_request_duration_seconds_bucket', { le: '+Inf' }), sent)
  t.equal(sum(samples, 'gateway_time_to_first_token_seconds_count'), sent)
  t.equal(sum(samples, 'gateway_overhead_seconds_count', { stage: 'flush' }), sent)
  t.equal(sum(samples, 'gateway_upstream_requests_total', { provider: 'sim', outcome: 'ok' }), sent)
  t.equal(sum(samples, 'gateway_usage_records_total', { accounting: 'exact' }), sent)
  t.equal(sum(samples, 'gateway_tokens_total', { direction: 'input', model: 'sim/echo' }), inputTokens)
  t.equal(sum(samples, 'gateway_tokens_total', { direction: 'output', model: 'sim/echo' }), outputTokens)
  t.equal(sum(samples, 'gateway_stream_chunks_total'), events)
  t.equal(sum(samples, 'gateway_open_streams'), 0)
  t.equal(sum(samples, 'gateway_threads', { state: 'down' }), 0, 'the batch thread waits for a batch')
  const threads = samples.filter(sample => sample.name === 'gateway_heap_used_bytes')
  t.same(threads.map(sample => sample.labels['thread']).toSorted(), ['serve-0', 'serve-1'])
  const priced = sum(samples, 'gateway_cost_usd_total')
  t.ok(Math.abs(priced - (inputTokens * 0.0000001 + outputTokens * 0.0000004)) < 1e-9)

  const model = { provider: 'sim', model: 'sim/echo' }
  t.equal(sum(samples, 'gateway_model_time_to_first_token_seconds_count', model), STREAMS)
  const genAi = {
    gen_ai_provider_name: 'sim',
    gen_ai_request_model: 'sim/echo',
    gen_ai_operation_name: 'chat',
  }
  t.equal(sum(samples, 'gen_ai_client_operation_duration_seconds_count', { ...genAi, error_type: '' }), sent)
  t.equal(
    sum(samples, 'gen_ai_client_token_usage_sum', { ...genAi, gen_ai_token_type: 'input' }),
    inputTokens,
  )
  t.equal(
    sum(samples, 'gen_ai_client_token_usage_sum', { ...genAi, gen_ai_token_type: 'output' }),
    outputTokens,
  )
  t.equal(sum(samples, 'gen_ai_server_time_to_first_token_seconds_count', genAi), STREAMS)
  // Counted once the database has the records.
  const isShipped = async () => {
    samples = await scrape()
    return sum(samples, 'gateway_workspace_requests_total') >= sent
  }
  t.ok(await eventually(isShipped, 60_000))
  t.equal(sum(samples, 'gateway_workspace_requests_total', { outcome: 'completed' }), sent)
  t.equal(sum(samples, 'gateway_workspace_tokens_total', { direction: 'input' }), inputTokens)
  t.ok(Math.abs(sum(samples, 'gateway_workspace_cost_usd_total') - priced) < 1e-9)
  const open = await fetch(`${gateway.adminUrl}/metrics`, {
    headers: { accept: 'application/openmetrics-text;version=1.0.0,text/plain;q=0.5' },
  })
  t.equal(open.headers.get('content-type'), 'application/openmetrics-text; version=1.0.0; charset=utf-8')
  t.match(await open.text(), /^gateway_requests_total\{.*\n# EOF\n$/ms)
  t.equal(await gateway.stop(), 0)
})

t.test('the batch thread starts with the first batch', async t => {
  const gateway = await startGatewayProcess(t, { limits: NO_SHEDDING })
  const call = batchCaller(gateway.url, gateway.apiKey)
  const threads = async (state: string) => await gateway.metric('gateway_threads', { state })
  t.equal(await threads('up'), 1)
  const { document } = await call('POST', '/v1/batches', batchBody())
  const isOver = async () =>
    (await call('GET', `/v1/batches/${String(document['id'])}`)).document['status'] === 'completed'
  t.ok(await eventually(isOver, 60_000))
  t.ok(await eventually(async () => (await threads('up')) === 2, 60_000))
  t.equal(await threads('down'), 0)
  t.equal(await gateway.stop(), 0)
})
