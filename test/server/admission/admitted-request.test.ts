/** One admitted request: its deadline, its abort, and its end, which is counted and logged once. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import type { RequestEnd } from '../../../src/exchange/exchange.ts'
import { ExplanationWriter } from '../../../src/features/explanations/writer.ts'
import { AdmissionControl } from '../../../src/server/admission/admission-control.ts'
import { type AdmittedReply, AdmittedRequest } from '../../../src/server/admission/admitted-request.ts'
import { ConsoleFeed } from '../../../src/server/admission/console-feed.ts'
import type { NewExplanation } from '../../../src/storage/ledger.ts'
import { someKey } from '../../storage/records.ts'
import { scriptedExchange } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const LIMITS = {
  maxInFlight: 8,
  maxLagMs: 1_000,
  maxBufferedBytes: 1024 * 1024,
  openPerKey: 100,
  waitingPerKey: 0,
  waitMs: 1_000,
  bytesInFlightPerKey: 1024 * 1024,
}
const REQUEST_MS = 10_000

class TestRequest extends AdmittedRequest {
  readonly method = 'POST'
  readonly route = '/responses'
  readonly path = undefined
  readonly address = '10.0.0.1'
  readonly requestId = 'mine'
  readonly userAgent = 'agent/1.2 (secret)'
  readonly callerContext = null
  readonly isAwaited = true
  isQuiet = false
  reply: AdmittedReply = { status: 0, ended: false, error: null, summary: undefined }
  readonly aborts: string[] = []
  readonly givenUp: string[] = []

  constructor(control: AdmissionControl) {
    super(control)
    control.open.add(this)
  }

  protected onAbort({ code }: GatewayError): void {
    this.aborts.push(code)
  }

  protected onRevoked(): void {
    // Not tested here.
  }

  protected onGivenUp({ code }: GatewayError): void {
    this.givenUp.push(code)
  }
}

function start() {
  const clock = new TestClock()
  const metrics = createMetrics()
  const lines: Record<string, unknown>[] = []
  const log = createLog('info', { write: line => void lines.push(JSON.parse(line)) })
  const sent: NewExplanation[] = []
  const explanations = new ExplanationWriter({
    clock,
    send: made => void sent.push(...made),
    count: () => undefined,
  })
  const watched: RequestEnd[] = []
  const feed = new ConsoleFeed(clock, () => undefined)
  feed.add = end =>
    void watched.push({ ...(end as RequestEnd), spentMs: (end as RequestEnd).spentMs.slice() })
  const deps = { clock, log, metrics, requestMs: REQUEST_MS, consoleFeed: feed, explanations }
  const control = new AdmissionControl(deps, LIMITS)
  const stages = async (): Promise<unknown[]> =>
    (await metrics.overhead.get()).values
      .filter(({ metricName }) => metricName?.endsWith('_sum'))
      .map(({ labels, value }) => [labels.stage, value])
  const requests = async (): Promise<unknown[]> =>
    (await metrics.requests.get()).values.map(({ labels, value }) => [
      labels.status_class,
      labels.outcome,
      value,
    ])
  return { clock, control, feed, explanations, lines, requests, sent, stages, watched }
}

const OK = { status: 200, ended: true, error: null, summary: undefined }

t.test('a request that is over is counted, logged and forgotten, once', async t => {
  const { clock, control, lines, requests } = start()
  const request = new TestRequest(control)
  request.key = someKey({ hash: 'k', label: 'sk-gw-v1-abc...def', organizationId: 'one', workspaceId: 'w' })
  request.held.count(1_000)
  clock.advance(5)
  t.equal(control.open.size, 1)
  t.equal(control.load.bufferedBytes, 1_000)
  request.reply = OK
  request.finish()
  request.finish()
  t.equal(control.open.size, 0)
  t.equal(control.load.bufferedBytes, 0)
  t.same(await requests(), [['2xx', 'completed', 1]])
  t.equal(lines.length, 1)
  t.match(lines[0], {
    id: request.id,
    requestId: 'mine',
    method: 'POST',
    route: '/responses',
    status: 200,
    outcome: 'completed',
    durationMs: 5,
    userAgent: 'agent',
    key: 'sk-gw-v1-abc...def',
    workspace: 'w',
    organization: 'one',
    client: '10.0.0.1',
  })
  t.notMatch(JSON.stringify(lines), /secret/)
})

t.test('log line, console and explanation are made of one end', async t => {
  const { clock, control, explanations, feed, lines, sent, watched } = start()
  feed.isWatched = true
  const request = new TestRequest(control)
  request.key = someKey({ hash: 'k', organizationId: 'one' })
  request.watch.enter('auth', 1)
  const refusal = new GatewayError('not_found', 'model: is not here')
  request.reply = { ...OK, status: 404, error: refusal }
  clock.advance(3)
  request.finish()
  explanations.flush()
  t.match(watched, [{ endedMs: 3, keyHash: 'k', error: refusal, exchange: undefined }])
  t.same([...(watched[0]?.spentMs ?? [])].slice(0, 2), [1, 2])
  t.equal(lines[0]?.['id'], request.id)
  t.match(lines[0], { outcome: 'refused', error: 'not_found', message: 'model: is not here' })
  t.match(sent, [{ id: request.id, organizationId: 'one', requestId: 'mine' }])
})

t.test('stages are observed of what became an exchange, and of nothing else', async t => {
  const { clock, control, stages } = start()
  const refused = new TestRequest(control)
  refused.watch.enter('auth', 1)
  refused.reply = OK
  refused.finish()
  t.same(await stages(), [])
  const request = new TestRequest(control)
  clock.advance(1)
  request.watch.enter('auth', 1)
  clock.advance(2)
  for (const stage of ['upload', 'parse', 'guard', 'route'] as const)
    request.watch.enter(stage, clock.monotonicMs())
  clock.advance(3)
  request.reply = { ...OK, summary: undefined }
  request.finish()
  t.same(await stages(), [
    ['parse', 0.001],
    ['auth', 0.002],
    ['upload', 0],
    ['route', 0.003],
  ])
})

t.test('a quiet request has no line, and is counted', async t => {
  const { control, lines, requests } = start()
  const request = new TestRequest(control)
  request.isQuiet = true
  request.reply = OK
  request.finish()
  t.same(lines, [])
  t.same(await requests(), [['2xx', 'completed', 1]])
})

t.test('at its deadline a request is aborted, and given up when its handler does not answer', async t => {
  const { clock, control, requests } = start()
  const request = new TestRequest(control)
  request.startDeadline()
  clock.advance(REQUEST_MS - 1)
  t.same(request.aborts, [])
  clock.advance(1)
  t.same(request.aborts, ['deadline_exceeded'])
  t.equal((request.signal.reason as GatewayError).code, 'deadline_exceeded')
  t.same(request.givenUp, [])
  clock.advance(1_000)
  t.same(request.givenUp, ['deadline_exceeded'])
  t.equal(control.open.size, 0)
  t.same(await requests(), [['4xx', 'failed', 1]])
  t.equal(clock.armed, 1, 'only its explanation waits')
})

t.test('an operation may have longer, and the key of a request may have less', async t => {
  const { clock, control } = start()
  const long = new TestRequest(control)
  long.startDeadline(2 * REQUEST_MS)
  const short = new TestRequest(control)
  short.key = someKey({ kind: 'inference', expiresAt: new Date(clock.nowMs() + 2_000).toISOString() })
  short.startDeadline()
  clock.advance(2_000)
  t.same(short.aborts, ['key_expired'])
  clock.advance(REQUEST_MS)
  t.same(long.aborts, [])
  clock.advance(REQUEST_MS)
  t.same(long.aborts, ['deadline_exceeded'])
})

t.test('a client that leaves aborts its request, unless the work goes on without it', async t => {
  const { control, requests } = start()
  const request = new TestRequest(control)
  request.clientLeft()
  t.same(request.aborts, ['client_closed'])
  request.finish()
  t.same(await requests(), [['4xx', 'aborted', 1]])
  let left = 0
  const other = new TestRequest(control)
  other.outlive(() => left++)
  other.clientLeft()
  t.equal(left, 1)
  t.same(other.aborts, [])
})

t.test('the first reason of an abort counts', async t => {
  const { control } = start()
  const request = new TestRequest(control)
  request.abort(new GatewayError('service_unavailable', 'The gateway is stopping'))
  request.abort(new GatewayError('deadline_exceeded', 'late'))
  t.same(request.aborts, ['service_unavailable'])
  t.equal((request.signal.reason as GatewayError).code, 'service_unavailable')
})

t.test('a request that another one reports is dropped without a trace', async t => {
  const { control, lines, requests } = start()
  const request = new TestRequest(control)
  request.held.count(10)
  request.drop()
  request.finish()
  t.equal(control.open.size, 0)
  t.equal(control.load.bufferedBytes, 0)
  t.same(lines, [])
  t.same(await requests(), [])
})

t.test('what the pipeline summarizes is in the line', async t => {
  const { control, lines } = start()
  const request = new TestRequest(control)
  const summary = {
    firstTokenMs: 2,
    model: 'acme/one',
    requestedModel: undefined,
    provider: 'acme',
    attempts: 1,
    failedAttempts: undefined,
    inputTokens: 3,
    outputTokens: 4,
    finish: 'stop',
    error: null,
    cause: undefined,
    trace: undefined,
    session: undefined,
    agent: undefined,
    parentAgent: undefined,
    cost: 0.5,
    endUser: undefined,
    exchange: scriptedExchange(),
  }
  request.reply = { ...OK, summary }
  request.finish()
  t.match(lines[0], {
    model: 'acme/one',
    provider: 'acme',
    attempts: 1,
    inputTokens: 3,
    outputTokens: 4,
    cost: 0.5,
  })
})
