/**
 * A thousand mixed requests of every dialect and every end, traced whole: each span at its place, costs as in the
 * ledger to the last unit, and nothing of what was said.
 */
import t, { type Test } from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { SERVICE_ORGANIZATION_ID, type UsageRecord } from '../../src/storage/usage.ts'
import { type CollectedSpan, startCollector } from '../support/collector.ts'
import { freePort } from '../support/free-port.ts'
import { until } from '../support/patience.ts'
import { CANARY } from './traces/provider.ts'
import { type Sent, startTracedWorld, type TracedWorld } from './traces/world.ts'

const REQUESTS = 500
/** As many second attempts are always allowed at once, so that none is refused by the retry budget. */
const LANES = 3
const SERVER = 2
const CLIENT = 3
const COST = 'gateway.cost_picousd'

/** What a kind of request must have below its own span: names, as often as they are there at least. */
const BELOW: Readonly<Record<string, readonly string[]>> = {
  responses: ['chat m/ok'],
  'gemini, streamed': ['chat m/ok'],
  embeddings: ['embeddings m/vectors'],
  failover: ['chat m/failover', 'chat m/failover'],
  'fallback model': ['chat m/broken', 'chat m/broken', 'chat m/ok'],
  hedged: ['chat m/hedged', 'chat m/hedged'],
  datetime: ['execute_tool datetime', 'chat m/call', 'chat m/call'],
  advisor: ['execute_tool advisor', 'ask m/failover', 'chat m/failover', 'chat m/failover', 'chat m/call'],
  'subagent, streamed': ['execute_tool subagent', 'ask m/ok', 'chat m/ok'],
  'web search': ['execute_tool web_search'],
  fusion: ['execute_tool fusion', 'ask m/ok', 'ask m/broken', 'ask m/email', 'ask m/json', 'chat m/json'],
  mcp: ['execute_tool add'],
  redacted: ['chat m/ok'],
  'left in the middle': ['chat m/held'],
  'left, with a tool': ['execute_tool advisor', 'ask m/mute', 'chat m/mute'],
  socket: ['chat m/ok'],
  // One that has just failed may be left out.
  batch: ['chat m/failover'],
}
/** Kinds that no provider is asked for. */
const ALONE = /^(?:blocked|refused)/

/** Statuses of kinds that have to be refused or to fail. 0: nothing had come when the client left. */
const STATUS: Readonly<Record<string, number>> = {
  'all fail': 502,
  'provider limits': 429,
  blocked: 403,
  'reply blocked': 403,
  'refused: 400': 400,
  'refused: metadata': 400,
  'refused: nested name': 400,
  'refused: no JSON': 400,
  'refused: 401': 401,
  'refused: 402': 402,
  'refused: model': 400,
  'refused: 404': 404,
  'refused: 405': 405,
  'refused: 429': 429,
  'left before the answer': 0,
}

for (const protocol of ['http/json', 'http/protobuf'] as const) {
  t.test(`${REQUESTS} mixed requests, ${protocol}`, { timeout: 600_000 }, async t => {
    const collector = await startCollector()
    t.teardown(() => collector.close())
    const compression = protocol === 'http/json' ? 'gzip' : 'none'
    const world = await startTracedWorld(t, { endpoint: collector.url, protocol, compression })
    const sent = await mixed(world, REQUESTS)
    await until('all spans', async () => {
      const told = await world.gateway.metric('gateway_trace_spans_total', { outcome: 'sent' })
      return told === collector.spans.length && requestsIn(collector.spans).size >= sent.length
    })
    for (const outcome of ['dropped', 'refused'])
      t.equal(await world.gateway.metric('gateway_trace_spans_total', { outcome }), 0, outcome)
    t.equal(await world.gateway.stop(), 0)
    const spans: readonly CollectedSpan[] = collector.spans
    const records = await recordsOf(world)
    const [good, faults] = checked(sent, spans, records)
    t.same(faults.slice(0, 20), [], `${good} of ${sent.length} requests are as they should`)
    t.comment(
      `${protocol}: ${good} of ${sent.length} requests, ${spans.length} spans, ${records.length} records`,
    )
    checkAsked(t, world, spans)
    checkWhole(t, spans, records)
    checkContent(t, world, collector.bodies)
  })
}

/** Collectors that take nothing: what they do to all requests, and what is counted of the spans. */
const AWAY = {
  'is not there': { answers: null, outcome: 'dropped' },
  'keeps silent': { answers: 'hang', outcome: 'dropped' },
  fails: { answers: 500, outcome: 'refused' },
  'is always busy': { answers: { status: 429, retryAfter: '1' }, outcome: 'dropped' },
} as const

for (const [name, { answers, outcome }] of Object.entries(AWAY))
  t.test(
    `a collector that ${name} costs the spans alone, which are counted`,
    { timeout: 600_000 },
    async t => {
      const collector = await startCollector()
      t.teardown(() => collector.close())
      if (answers !== null) collector.statuses.push(...Array.from({ length: 10_000 }, () => answers))
      const endpoint = answers === null ? `http://127.0.0.1:${await freePort()}` : collector.url
      const world = await startTracedWorld(t, { endpoint, timeoutMs: 500 })
      const sent = await mixed(world, Object.keys(world.kinds).length)
      const other = sent.filter(({ kind, status }) => status !== (STATUS[kind] ?? 200))
      t.same(other, [], `${sent.length} requests end as they do with a collector`)
      const count = (label: string) => world.gateway.metric('gateway_trace_spans_total', { outcome: label })
      await until('the spans are counted', async () => (await count(outcome)) >= sent.length)
      t.equal(await count('sent'), 0)
      t.equal(collector.spans.length, 0)
      t.equal(await world.gateway.stop(), 0, 'its end does not wait for the collector')
    },
  )

/** Sends so many requests of all kinds in turn, some at a time. */
async function mixed({ kinds }: TracedWorld, requests: number): Promise<readonly Sent[]> {
  const names = Object.keys(kinds)
  const sent: Sent[] = []
  let next = 0
  const lane = async (): Promise<void> => {
    while (sent.length < requests) {
      const at = next++
      // Each kind meets each way to name a trace.
      const kind = names[at % names.length] ?? ''
      sent.push(...((await kinds[kind]?.(at + Math.floor(at / names.length))) ?? []))
    }
  }
  await Promise.all(Array.from({ length: LANES }, lane))
  return sent
}

/** Spans of requests by the id of the request, and by that of its usage record. */
function requestsIn(spans: readonly CollectedSpan[]): ReadonlyMap<string, readonly CollectedSpan[]> {
  const found = new Map<string, CollectedSpan[]>()
  for (const span of spans) {
    if (span.kind !== SERVER) continue
    const { 'gateway.request_id': own, 'gateway.generation_id': generation } = span.attributes
    const id = String(own ?? generation)
    found.set(id, [...(found.get(id) ?? []), span])
  }
  return found
}

async function recordsOf({ storageUrl }: TracedWorld): Promise<readonly UsageRecord[]> {
  const store = await openStore(storageUrl)
  try {
    const lists = ['org_default', SERVICE_ORGANIZATION_ID].map(organizationId =>
      store.ledger.latest({ organizationId }, 100_000),
    )
    return (await Promise.all(lists)).flat()
  } finally {
    await store.close()
  }
}

const costOf = (spans: readonly CollectedSpan[]): number =>
  spans.reduce((sum, { attributes }) => sum + Number(attributes[COST] ?? 0), 0)

/** How many requests are as they should be, and what is wrong with the others. */
function checked(
  sent: readonly Sent[],
  spans: readonly CollectedSpan[],
  records: readonly UsageRecord[],
): readonly [number, readonly string[]] {
  const requests = requestsIn(spans)
  const children = new Map<string, CollectedSpan[]>()
  for (const span of spans)
    children.set(span.parentSpanId, [...(children.get(span.parentSpanId) ?? []), span])
  const below = (span: CollectedSpan): readonly CollectedSpan[] =>
    (children.get(span.spanId) ?? []).flatMap(child => [child, ...below(child)])
  const parents = new Map(records.map(({ id, parent }) => [id, parent]))
  const rootOf = (id: string): string => {
    const parent = parents.get(id)
    return parent === undefined ? id : rootOf(parent)
  }
  const owed = new Map<string, number>()
  for (const { id, cost } of records) owed.set(rootOf(id), (owed.get(rootOf(id)) ?? 0) + cost)
  const faults: string[] = []
  let good = 0
  for (const each of sent) {
    const before = faults.length
    const fault = (what: string): void => void faults.push(`${each.kind} ${each.id}: ${what}`)
    const [own, ...more] = requests.get(each.id) ?? []
    if (own === undefined || more.length > 0) {
      fault(`${own === undefined ? 'no' : more.length + 1} spans of the request`)
      continue
    }
    placeFaults(each, own).forEach(fault)
    const all = [own, ...below(own)]
    for (const span of all) {
      if (span.traceId !== own.traceId) fault(`${span.name} is in another trace`)
      if (span.end < span.start) fault(`${span.name} ends before it begins`)
      if (span.start < own.start) fault(`${span.name} begins before its request`)
    }
    const names = all.slice(1).map(({ name }) => name)
    const missing = [...names]
    for (const name of BELOW[each.kind] ?? []) {
      const at = missing.indexOf(name)
      if (at === -1) fault(`no ${name} among ${names.join(', ')}`)
      else missing.splice(at, 1)
    }
    if (ALONE.test(each.kind) && names.length > 0) fault(`has ${names.join(', ')}`)
    if (each.status !== (STATUS[each.kind] ?? 200)) fault(`is answered with ${each.status}`)
    const due = owed.get(String(own.attributes['gateway.generation_id'])) ?? 0
    if (costOf(all) !== due) fault(`costs ${costOf(all)}, and its records ${due}`)
    if (faults.length === before) good++
  }
  return [good, faults]
}

function placeFaults({ caller, refused, told }: Sent, own: CollectedSpan): readonly string[] {
  const faults: string[] = []
  if (caller !== null && own.traceId !== caller.traceId) faults.push('is not in the trace of its caller')
  if (own.traceId === refused) faults.push('is in a trace that no rule allows')
  if (own.parentSpanId !== (caller?.spanId ?? '')) faults.push(`has the parent ${own.parentSpanId}`)
  if (own.state !== '' && caller === null) faults.push(`has the state ${own.state}`)
  if (told !== null && told !== `00-${own.traceId}-${own.spanId}-01`) faults.push(`is told as ${told}`)
  return faults
}

/** Providers are told of the attempt that asks them, and of nothing else. */
function checkAsked(t: Test, { provider }: TracedWorld, spans: readonly CollectedSpan[]): void {
  const attempts = new Map(spans.filter(({ kind }) => kind === CLIENT).map(span => [span.spanId, span]))
  const faults: string[] = []
  const seen = new Set<string>()
  let states = 0
  for (const { model, traceparent = '', tracestate, baggage } of provider.asked) {
    const [version, traceId, spanId = '', flags] = traceparent.split('-')
    const attempt = attempts.get(spanId)
    seen.add(spanId)
    if (version !== '00' || flags !== '01' || attempt?.traceId !== traceId)
      faults.push(`${model} is asked with ${traceparent}`)
    if (baggage !== undefined) faults.push(`${model} gets baggage`)
    if (tracestate !== undefined) states++
    if (tracestate !== undefined && (!model.endsWith('-two') || tracestate !== attempt?.state))
      faults.push(`${model} gets the state ${tracestate}`)
  }
  for (const { spanId, name, attributes } of attempts.values())
    if (attributes['http.response.status_code'] !== undefined && !seen.has(spanId))
      faults.push(`${name} was answered and never asked`)
  t.same(faults.slice(0, 20), [], `${provider.asked.length} requests to providers name their attempts`)
  t.ok(states > 0, 'the state of a caller goes to the provider that takes part')
}

/** All spans together. */
function checkWhole(t: Test, spans: readonly CollectedSpan[], records: readonly UsageRecord[]): void {
  const known = new Map(spans.map(span => [span.spanId, span]))
  t.equal(known.size, spans.length, 'no two spans have one id')
  const lost = spans.filter(
    ({ kind, traceId, parentSpanId }) => kind !== SERVER && known.get(parentSpanId)?.traceId !== traceId,
  )
  t.same(
    lost.map(({ name }) => name),
    [],
    'each span has its parent in its trace',
  )
  const above = (span: CollectedSpan): string => known.get(span.parentSpanId)?.name.split(' ')[0] ?? ''
  const attempts = spans.filter(({ kind }) => kind === CLIENT)
  t.same(
    [...new Set(attempts.map(above))].toSorted(),
    ['BATCH', 'POST', 'ask'],
    'attempts belong to a request',
  )
  t.same(
    spans.filter(({ attributes }) => Number(attributes[COST] ?? 0) < 0),
    [],
    'nothing costs less than nothing',
  )
  t.equal(
    costOf(spans),
    records.reduce((sum, { cost }) => sum + cost, 0),
    'all spans cost what all records cost',
  )
}

function checkContent(t: Test, { keys }: TracedWorld, bodies: readonly Buffer[]): void {
  const found = new Set<string>()
  for (const body of bodies) {
    const text = body.toString('latin1')
    for (const [word] of text.matchAll(new RegExp(`.{0,60}${CANARY}.{0,40}`, 'gi'))) found.add(word)
    for (const key of keys) if (text.includes(key)) found.add('a key')
  }
  t.same([...found].slice(0, 10), [], 'no span has what was said')
}
