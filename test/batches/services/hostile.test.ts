/** Batch services that lie: ids that lead elsewhere, documents of any shape and size, and echoes of our key. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { BATCH_SERVICES } from '../../../src/batches/services/table.ts'
import { BATCH_FORMATS, type BatchFormat } from '../../../src/protocol/provider.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'
import { callsTo, linesOf, SECRET, submit } from './batch-service.ts'

type Reply = (request: IncomingMessage, response: ServerResponse) => void

async function serve(t: Test, format: BatchFormat, reply: Reply) {
  const asked: string[] = []
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`)
    request.resume()
    request.on('end', () => reply(request, response))
  })
  const { port } = await listening(server, t)
  return { asked, service: BATCH_SERVICES[format], ...callsTo(t, `http://127.0.0.1:${port}/v1`, format) }
}

function json(value: unknown): Reply {
  return (_, response) => response.end(JSON.stringify(value))
}

async function failure(promise: Promise<unknown>): Promise<GatewayError> {
  const error = await promise.then(
    value => new Error(`no failure: ${JSON.stringify(value)}`),
    (thrown: unknown) => thrown,
  )
  if (error instanceof GatewayError) return error
  throw error
}

/** Documents that are no job in any of the services. */
const SHAPES: readonly unknown[] = [
  null,
  [],
  'text',
  7,
  {},
  { id: 7, name: 7, file: 7, data: 7, operations: 7, status: {}, processing_status: [], metadata: 'x' },
  { id: '', name: '', data: [null, 7, 'x', []], operations: [null, []] },
  { id: null, name: null, metadata: { state: 7 }, errors: 'x', error: 7, done: 'true' },
]

const EVIL_IDS = [
  '../keys',
  'a/b',
  'a?b',
  'a#b',
  '..',
  '%2e%2e',
  'a b',
  'a\r\nhost: x',
  '',
  'x'.repeat(129),
  7,
  null,
]

for (const format of BATCH_FORMATS) {
  t.test(format, async t => {
    const isGemini = format === 'google-gemini'
    const name = isGemini ? 'batches/one' : 'one'

    t.test('no id of a reply leads our calls elsewhere', async t => {
      for (const id of EVIL_IDS) {
        const { service, calls, asked } = await serve(
          t,
          format,
          json({
            id,
            name: id,
            file: { name: id },
            data: [
              {
                id,
                metadata: { sluice_job: 'mark-0' },
                request_counts: { succeeded: 1 },
                processing_status: 'ended',
              },
            ],
            operations: [{ name: id, metadata: { displayName: 'mark-0' } }],
            output_file_id: id,
            error_file_id: id,
            input_file_id: id,
            response: { responsesFile: id },
            has_more: true,
          }),
        )
        const first = await failure(submit(service, calls, format, ['Hi']))
        t.equal(first.code, 'provider_unavailable', `${id}`)
        t.equal(asked.length, 1, 'nothing is asked after it')
        const lost = { mark: 'mark-0', sinceMs: 0, lines: 1, knownNames: new Set<string>() }
        t.equal((await failure(service.find(calls, lost))).code, 'provider_unavailable')
        if (typeof id === 'string' && format !== 'anthropic-messages')
          t.equal((await failure(linesOf(service, calls, name))).code, 'provider_unavailable')
        if (typeof id !== 'string') continue
        const before = asked.length
        for (const verb of ['state', 'cancel', 'remove'] as const)
          t.equal((await failure(service[verb](calls, id))).code, 'provider_unavailable')
        t.equal(asked.length, before, 'nor for a name that came into the database')
      }
    })

    t.test('documents of any shape are a failure, or a job that runs', async t => {
      for (const shape of SHAPES) {
        const { service, calls } = await serve(t, format, json(shape))
        const what = JSON.stringify(shape)
        t.equal((await failure(submit(service, calls, format, ['Hi']))).code, 'provider_unavailable', what)
        const state = await service.state(calls, name).catch((error: GatewayError) => error.code)
        t.match(JSON.stringify(state), /"provider_unavailable"|"running"/, what)
        const lost = { mark: 'm', sinceMs: 0, lines: 1, knownNames: new Set<string>() }
        const found = await service.find(calls, lost).catch((error: GatewayError) => error.code)
        t.match(found, /^(?:none|provider_unavailable)$/, what)
      }
    })

    t.test('what is too large, too deep or no JSON is refused before it is read', async t => {
      const texts = [
        '<html>',
        '',
        '{"id":',
        `{"id":${'['.repeat(100_000)}`,
        `{"id":[${'{},'.repeat(600_000)}{}]}`,
      ]
      for (const text of texts) {
        const { service, calls } = await serve(t, format, (_, response) => response.end(text))
        t.equal((await failure(service.state(calls, name))).code, 'provider_unavailable', text.slice(0, 20))
      }
      const { service, calls } = await serve(t, format, (_, response) =>
        response.end(' '.repeat(9 * 1024 * 1024)),
      )
      t.equal((await failure(service.state(calls, name))).code, 'reply_too_large')
    })

    t.test('lines of any shape are left out, and the others come', async t => {
      const good = isGemini
        ? { key: 'mark-0-0', response: { candidates: [] } }
        : format === 'anthropic-messages'
          ? { custom_id: 'mark-0-0', result: { type: 'succeeded', message: {} } }
          : { custom_id: 'mark-0-0', response: { status_code: 200, body: {} } }
      const bad = [
        'null',
        '7',
        '"text"',
        '[]',
        '{}',
        '{"custom_id":7,"key":7}',
        '{"custom_id":"x","key":"x"}',
        '{"custom_id":"x","key":"x","response":null,"error":null,"result":null}',
        '{"custom_id":"x","key":"x","result":{"type":"unheard of"}}',
        `{"custom_id":"x","key":"x","response":${'['.repeat(5_000)}${']'.repeat(5_000)}}`,
        'not json at all',
      ]
      const text = [...bad, JSON.stringify(good), ...bad].join('\n')
      const { service, calls, notices } = await serve(t, format, ({ url = '' }, response) => {
        const isDocument = !/content$|results$|download/.test(url)
        const job = { output_file_id: 'out', response: { responsesFile: 'files/out' } }
        response.end(isDocument ? JSON.stringify(job) : text)
      })
      const lines = await linesOf(service, calls, name)
      t.same(
        lines.map(({ id, end }) => [id, end.kind]),
        [['mark-0-0', 'reply']],
      )
      t.equal(notices.length, 1)
    })

    t.test('failures never repeat our key, and have a bound', async t => {
      const message = `Bad key ${SECRET} ${'long '.repeat(1_000)}`
      const error = { message, code: 'x', type: SECRET, status: SECRET }
      const { service, calls } = await serve(t, format, (_, response) => {
        response.writeHead(401)
        response.end(JSON.stringify({ error }))
      })
      const refused = await failure(service.state(calls, name))
      t.notMatch(JSON.stringify([refused.message, refused.metadata]), SECRET)
      t.ok(refused.message.length < 2_100, 'quoted words have 2,000 characters')
      const ended = { status: 'failed', errors: { data: [{ code: SECRET, message }] }, done: true, error }
      const second = await serve(t, format, json(ended))
      const state = await second.service.state(second.calls, name)
      const told =
        state.kind === 'ended' && state.error !== null ? second.calls.errorForClient(state.error) : null
      if (format === 'anthropic-messages') t.equal(told, null)
      else {
        t.notMatch(JSON.stringify([told?.message, told?.metadata]), SECRET)
        t.ok((told?.message.length ?? 0) < 1_000)
      }
    })

    t.test('a list without an end is left', async t => {
      let count = 0
      const { service, calls, asked } = await serve(t, format, (_, response) => {
        count++
        const each = { id: `id${count}`, name: `batches/id${count}`, created_at: '2999-01-01T00:00:00Z' }
        response.end(
          JSON.stringify({ data: [each], operations: [each], has_more: true, nextPageToken: 'more' }),
        )
      })
      t.equal(await service.find(calls, { mark: 'm', sinceMs: 0, lines: 1, knownNames: new Set() }), 'none')
      t.equal(asked.length, 20)
    })

    t.test('a call ends with its signal', async t => {
      const { service, calls, ending, asked } = await serve(t, format, () => undefined)
      const waiting = service.state(calls, name)
      const reason = new Error('enough')
      const ended = t.rejects(waiting, reason)
      ending.abort(reason)
      await ended
      await t.rejects(service.state(calls, name), reason)
      t.ok(asked.length <= 1)
    })
  })
}

t.test('results without an end are left, however many lines come', async t => {
  const clock = new TestClock()
  let isClosed: () => void = () => undefined
  const closing = new Promise<void>(done => (isClosed = done))
  const server = createServer((request, response) => {
    request.resume()
    response.once('close', isClosed)
    const line = () => {
      if (response.write('{"custom_id":"of-somebody-else"}\n'.repeat(100))) setImmediate(line)
      else response.once('drain', line)
    }
    line()
  })
  const { port } = await listening(server, t)
  const { calls } = callsTo(t, `http://127.0.0.1:${port}`, 'openai-chat', { clock })
  let pages = 0
  const reading = (async () => {
    for await (const page of calls.lines({ path: '/files/one/content' })) {
      if (page.length > 0 && ++pages === 3) clock.advance(1_800_000)
    }
  })()
  await t.rejects(reading, { code: 'upstream_timeout' })
  t.ok(pages >= 3)
  t.equal(clock.armed, 0)
  await closing
})

t.test('the results of Anthropic are read where they are documented to be', async t => {
  const { service, calls, asked } = await serve(t, 'anthropic-messages', (_, response) => {
    response.end('{"results_url":"http://127.0.0.1:1/elsewhere"}')
  })
  await linesOf(service, calls, 'msgbatch_1')
  t.same(asked, ['GET /v1/messages/batches/msgbatch_1/results'])
})
