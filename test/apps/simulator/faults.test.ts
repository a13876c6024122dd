import { request } from 'node:http'
import { connect } from 'node:net'
import { gunzipSync } from 'node:zlib'
import type { Test } from 'tap'
import t from 'tap'
import type { SimFormat } from '../../../src/apps/simulator/ask.ts'
import { SIM_FORMATS } from '../../../src/apps/simulator/rows.ts'
import type { Sim } from '../../../src/apps/simulator/simulator.ts'
import { createFaultySim, FAULTS, type FaultKind, RETRY_AFTER_SECONDS } from '../../support/sim-faults.ts'

/** What a client saw of a reply. */
interface Seen {
  status: number | null
  headers: Record<string, string | string[] | undefined>
  body: Buffer
  /** `end`: complete by the rules of HTTP; else the code of the error. */
  how: string
}

const PATHS: Readonly<Record<SimFormat, (model: string, stream: boolean) => string>> = {
  'openai-responses': () => '/responses',
  'openai-chat': () => '/chat/completions',
  'anthropic-messages': () => '/messages',
  'google-gemini': (model, stream) =>
    `/models/${model}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
}

/** What only a reply that ended properly contains. */
const TERMINALS: Readonly<Record<SimFormat, RegExp>> = {
  'openai-responses': /response\.completed|"status":"completed","output|"completed_at":\d/,
  'openai-chat': /"finish_reason":"stop"/,
  'anthropic-messages': /"stop_reason":"end_turn"/,
  'google-gemini': /"finishReason":"STOP"/,
}

interface Question {
  readonly port: number
  readonly model: string
  readonly format: SimFormat
  readonly stream: boolean
  /** Gives up when this many bytes of the body have come; never when left out. */
  readonly giveUpAfter?: number
  readonly signal?: AbortSignal
}

function ask({
  port,
  model,
  format,
  stream,
  giveUpAfter = Number.POSITIVE_INFINITY,
  signal,
}: Question): Promise<Seen> {
  return new Promise(done => {
    const seen: Seen = { status: null, headers: {}, body: Buffer.alloc(0), how: '' }
    const over = (how: string): void => {
      if (seen.how === '') done(Object.assign(seen, { how }))
    }
    const call = request(
      {
        port,
        host: '127.0.0.1',
        path: PATHS[format](model, stream),
        method: 'POST',
        agent: false,
        headers: { authorization: 'Bearer x' },
        ...(signal === undefined ? {} : { signal }),
      },
      response => {
        seen.status = response.statusCode ?? null
        seen.headers = response.headers
        response.on('data', (chunk: Buffer) => {
          seen.body = Buffer.concat([seen.body, chunk])
          if (seen.body.length >= giveUpAfter) call.destroy()
        })
        response.on('end', () => over('end'))
        response.on('error', error => over((error as NodeJS.ErrnoException).code ?? 'error'))
      },
    )
    call.on('error', error => over((error as NodeJS.ErrnoException).code ?? 'error'))
    call.end(JSON.stringify({ model, stream, input: 'hi', messages: [], contents: [] }))
  })
}

async function started(test: Test): Promise<{ sim: Sim; port: number }> {
  const sim = createFaultySim()
  test.teardown(() => sim.close())
  return { sim, ...(await sim.listen()) }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** The faults that end by themselves, and how: the end, the status, and whether the body begins, ends properly. */
const ENDING: Partial<
  Record<FaultKind, { how: RegExp; status?: number | null; begun?: boolean; finished?: boolean }>
> = {
  status: { how: /^end$/, status: 500, finished: false },
  reset: { how: /ECONNRESET/, status: null },
  close: { how: /ECONNRESET/, status: null },
  garbage: { how: /^HPE_/, status: null },
  'slow-headers': { how: /^end$/, begun: true, finished: true },
  'slow-first-token': { how: /^end$/, begun: true, finished: true },
  'cut-reset': { how: /ECONNRESET/, begun: true, finished: false },
  'cut-close': { how: /ECONNRESET/, begun: true, finished: false },
  'cut-length': { how: /ECONNRESET/, begun: true, finished: false },
  'cut-end': { how: /^end$/, begun: true, finished: false },
  'cut-bare': { how: /^end$/, begun: true, finished: false },
  'no-finish': { how: /^end$/, begun: true, finished: false },
  'error-in-stream': { how: /^end$/, finished: false },
  'error-first': { how: /^end$/, finished: false, begun: false },
  'error-under-200': { how: /^end$/, finished: false, begun: false },
  html: { how: /^end$/, begun: false },
  'json-instead-of-sse': { how: /^end$/, begun: true, finished: true },
  'bad-sse': { how: /^end$/, begun: true, finished: false },
  'huge-frame': { how: /^end$/, finished: false },
  'empty-reply': { how: /^end$/, begun: false },
  redirect: { how: /^end$/, status: 302 },
  gzip: { how: /^end$/ },
  'both-lengths': { how: /^HPE_/ },
  'bad-chunk': { how: /^HPE_/, begun: true, finished: false },
  'big-headers': { how: /^HPE_HEADER_OVERFLOW$/ },
  'second-reply': { how: /^end$/, begun: true, finished: true },
}

/** The faults that go on until the client gives up. */
const ENDLESS: Partial<Record<FaultKind, { headers: boolean; begun: boolean }>> = {
  'no-headers': { headers: false, begun: false },
  'no-first-token': { headers: true, begun: false },
  stall: { headers: true, begun: true },
  drip: { headers: true, begun: false },
}

t.test('every fault is in exactly one table of this test', async t => {
  for (const kind of Object.keys(FAULTS)) {
    t.equal(Number(kind in ENDING) + Number(kind in ENDLESS), 1, kind)
  }
})

t.test('faults that end by themselves do so in every format, streamed and whole', async t => {
  const { sim, port } = await started(t)
  for (const format of SIM_FORMATS) {
    for (const stream of [true, false]) {
      for (const [kind, expected] of Object.entries(ENDING)) {
        const name = `${kind} ${format} ${stream ? 'streamed' : 'whole'}`
        const model = kind.startsWith('slow') ? `fail-${kind}-1` : `fail-${kind}`
        const seen = await ask({ port, model, format, stream })
        t.match(seen.how, expected.how, `${name}: ${seen.how}`)
        if (expected.status !== undefined) t.equal(seen.status, expected.status, `${name}: status`)
        const text = seen.body.toString()
        if (expected.begun !== undefined && (stream || kind !== 'bad-sse')) {
          t.equal(/One |"id":|"candidates"/.test(text), expected.begun, `${name}: content`)
        }
        if (expected.finished !== undefined) {
          t.equal(
            TERMINALS[format].test(text) && (stream || isJson(text)),
            expected.finished,
            `${name}: terminal`,
          )
        }
      }
    }
  }
  await sim.until(state => state.openConnections === 0)
  t.equal(sim.state.closedEarly, 0, 'none of these is blamed on the client')
  t.equal(sim.state.openReplies, 0)
})

t.test('faults without an end hold on until the client goes', async t => {
  const { sim, port } = await started(t)
  let left = 0
  for (const format of SIM_FORMATS) {
    for (const stream of [true, false]) {
      for (const [kind, expected] of Object.entries(ENDLESS)) {
        const name = `${kind} ${format} ${stream ? 'streamed' : 'whole'}`
        const abort = new AbortController()
        const reply = ask({
          port,
          format,
          stream,
          model: kind === 'drip' ? 'fail-drip-5' : `fail-${kind}`,
          signal: abort.signal,
          giveUpAfter: kind === 'drip' ? 3 : 20,
        })
        if (!expected.begun && kind !== 'drip') {
          const before = sim.state.requests
          await sim.until(
            state => state.requests > left && state.openReplies === 1 && state.requests >= before,
          )
          abort.abort()
        }
        const seen = await reply
        t.not(seen.how, 'end', name)
        if (expected.begun) t.ok(seen.body.length >= 20, `${name}: some content came`)
        else if (kind !== 'drip') t.equal(seen.body.length, 0, `${name}: no content came`)
        left++
        await sim.until(state => state.closedEarly === left && state.openReplies === 0)
      }
    }
  }
  t.equal(sim.disconnects.length, left)
})

t.test('status faults tell their status in the shape of the format', async t => {
  const { port } = await started(t)
  for (const status of [400, 401, 403, 404, 413, 422, 429, 500, 503, 529, 999]) {
    for (const format of SIM_FORMATS) {
      const seen = await ask({ port, model: `fail-status-${status}`, format, stream: true })
      t.equal(seen.status, status, `${status} ${format}`)
      const document = JSON.parse(seen.body.toString()) as { error: { message: string } }
      t.equal(document.error.message, 'Simulated failure')
      const retryAfter = status === 429 || status === 503 ? String(RETRY_AFTER_SECONDS) : undefined
      t.equal(seen.headers['retry-after'], retryAfter)
    }
  }
})

t.test('an error in the stream comes after content and names its kind', async t => {
  const { port } = await started(t)
  const told: Readonly<Record<SimFormat, RegExp>> = {
    'openai-responses':
      /One [\s\S]*event: error\ndata: \{"type":"error","code":"rate_limit_exceeded".*"sequence_number":5\}/,
    'openai-chat': /One [\s\S]*data: \{"error":\{.*"code":"rate_limit_exceeded"\}\}/,
    'anthropic-messages':
      /One [\s\S]*event: error\ndata: \{"type":"error","error":\{"type":"rate_limit_error"/,
    'google-gemini': /One [\s\S]*data: \{"error":\{"code":429,.*"status":"RESOURCE_EXHAUSTED"\}\}/,
  }
  for (const format of SIM_FORMATS) {
    const seen = await ask({ port, model: 'fail-error-in-stream-429', format, stream: true })
    t.match(seen.body.toString(), told[format], format)
    const first = await ask({ port, model: 'fail-error-first-429', format, stream: true })
    t.notMatch(first.body.toString(), /One /)
    t.match(first.body.toString(), /error/)
  }
})

t.test('sizes and encodings are as named', async t => {
  const { port } = await started(t)
  const common = { port, format: 'openai-chat', stream: true } as const
  const huge = await ask({ ...common, model: 'fail-huge-frame-64' })
  t.ok(huge.body.length > 64 * 1024 && huge.body.length < 66 * 1024)
  const zipped = await ask({ ...common, model: 'fail-gzip' })
  t.equal(zipped.headers['content-encoding'], 'gzip')
  t.match(gunzipSync(zipped.body).toString(), /"finish_reason":"stop"[\s\S]*\[DONE\]/)
  const html = await ask({ ...common, model: 'fail-html' })
  t.match(html.headers['content-type'], /text\/html/)
  const moved = await ask({ ...common, model: 'fail-redirect' })
  t.match(moved.headers['location'], /169\.254\.169\.254/)
  const json = await ask({ ...common, model: 'fail-json-instead-of-sse' })
  t.match(JSON.parse(json.body.toString()), { object: 'chat.completion' })
})

t.test('the unasked second reply comes on the same connection', async t => {
  const { port } = await started(t)
  const body = JSON.stringify({ model: 'fail-second-reply', messages: [] })
  const socket = connect(port, '127.0.0.1')
  let text = ''
  socket.write(
    `POST /chat/completions HTTP/1.1\r\nhost: sim\r\nauthorization: Bearer x\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  for await (const chunk of socket) {
    text += String(chunk)
    if (text.endsWith('\r\n\r\nno')) break
  }
  t.equal(text.split('HTTP/1.1 200').length, 3)
})
