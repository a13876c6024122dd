/**
 * Everything a provider can do wrong, in every format, streamed and whole, alone and with a second endpoint to
 * fall back on: the status, the terminal event and the fallback are as documented, and nothing hangs.
 */
import t from 'tap'
import { FAULTS } from '../../src/sim/faults.ts'
import { SIM_FORMATS, SIM_SLUG } from '../../src/sim/rows.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'

/**
 * `ok`: served all the same. A number: that status before anything was sent. `[n]`: fails after the first content in a
 * stream, with status n where the answer is whole.
 */
type Expected = 'ok' | number | readonly [whole: number]

/** The OpenAI error object has no place for a status, so an overload told inside a 200 is just a failure there. */
const IN_BAND: Readonly<Record<string, number>> = {
  'openai-responses': 502,
  'openai-chat': 502,
  'anthropic-messages': 529,
  'google-gemini': 529,
}

const CASES: Readonly<Record<string, Expected>> = {
  'status-400': 400,
  'status-401': 502,
  'status-402': 502,
  'status-403': 502,
  'status-404': 502,
  'status-408': 524,
  'status-413': 413,
  'status-422': 422,
  'status-429': 429,
  'status-500': 502,
  'status-502': 502,
  'status-503': 503,
  'status-504': 524,
  'status-529': 529,
  'status-999': 502,
  reset: 502,
  close: 502,
  garbage: 502,
  'no-headers': 524,
  'slow-headers-50': 'ok',
  'slow-first-token-50': 'ok',
  'no-first-token': 524,
  stall: [524],
  'drip-1': 'ok',
  'drip-250': 408,
  'cut-reset': [502],
  'cut-close': [502],
  'cut-length': [502],
  'cut-end': [502],
  'cut-bare': [502],
  'no-finish': [502],
  'error-in-stream': [529],
  'error-first': 529,
  'error-under-200': 502,
  html: 502,
  'json-instead-of-sse': 'ok',
  'bad-sse': [502],
  'huge-frame': [502],
  'empty-reply': 502,
  redirect: 502,
  gzip: 502,
  'both-lengths': 502,
  'bad-chunk': [502],
  'big-headers': 502,
  'second-reply': 'ok',
}

const upstreamModels = Object.keys(CASES).map(kind => `fail-${kind}`)
const alone = (format: string, fault: string) => `faults/${format}-${fault}`
const backed = (format: string, fault: string) => `backed/${format}-${fault}`
const endpoint = (upstreamModel: string, format: (typeof SIM_FORMATS)[number]) => ({
  provider: SIM_SLUG,
  upstreamModel,
  format,
})

const gateway = await startGateway({
  // Long enough for a loaded machine, short enough that a hanging provider costs a test little.
  timeouts: { upstreamHeadersMs: 2_000, upstreamIdleMs: 2_000, requestMs: 12_000 },
  models: SIM_FORMATS.flatMap(format =>
    upstreamModels.flatMap(model => [
      { id: alone(format, model), endpoints: [endpoint(model, format)] },
      { id: backed(format, model), endpoints: [endpoint(model, format), endpoint('echo', 'openai-chat')] },
    ]),
  ),
})
t.teardown(() => gateway.close())
t.jobs = 64

let checked = 0

t.test('the table names every fault there is', async t => {
  for (const kind of Object.keys(FAULTS)) {
    t.ok(
      Object.keys(CASES).some(name => name === kind || name.startsWith(`${kind}-`)),
      kind,
    )
  }
})

for (const format of SIM_FORMATS) {
  for (const [kind, expected] of Object.entries(CASES)) {
    for (const stream of [false, true]) {
      for (const fallback of [false, true]) {
        t.test(
          `${kind} over ${format}, ${stream ? 'streamed' : 'whole'}${fallback ? ', with a fallback' : ''}`,
          async t => {
            const model = (fallback ? backed : alone)(format, `fail-${kind}`)
            const reply = await gateway.respond({ model, input: 'one two three', stream })
            const text = await reply.text()
            checked++
            const committed = stream && Array.isArray(expected)
            // A refused request is not tried again at another endpoint of the same model; neither is one out of time.
            const final = typeof expected === 'number' && [400, 413, 422, 408].includes(expected)
            const served = expected === 'ok' || (fallback && !committed && !final)
            if (served) {
              t.equal(reply.status, 200, text.slice(0, 300))
              if (stream) t.same(grammarViolations(parseEventStream(text)), [])
              else t.match(JSON.parse(text), { status: 'completed' })
            } else if (committed) {
              t.equal(reply.status, 200)
              const events = parseEventStream(text)
              t.same(grammarViolations(events), [])
              t.match(events.at(-1), {
                type: 'response.failed',
                response: { error: { message: String }, error_type: String },
              })
              t.ok(
                events.some(event => event.type === 'response.output_text.delta'),
                'what was said was delivered',
              )
            } else {
              const status =
                kind === 'error-in-stream' || kind === 'error-first'
                  ? IN_BAND[format]
                  : Array.isArray(expected)
                    ? expected[0]
                    : expected
              t.equal(reply.status, status, text.slice(0, 300))
              t.match(JSON.parse(text), {
                error: { code: status, message: String, metadata: { error_type: String } },
              })
              t.equal(reply.headers.get('retry-after'), [429, 503].includes(Number(status)) ? '2' : null)
            }
          },
        )
      }
    }
  }
}

t.teardown(() => t.comment(`${checked} combinations of fault, format, streaming and fallback`))
