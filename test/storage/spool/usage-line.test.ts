/** The text of a usage record: small, whole again when it is read, and readable by other versions. */
import t from 'tap'
import {
  lineOf,
  parseLine,
  parseLines,
  type UsageLine,
  wholeRecord,
} from '../../../src/storage/spool/usage-line.ts'
import type { UsageAttempt, UsageRecord } from '../../../src/storage/usage.ts'
import { someUsage } from '../usage.ts'

const again = (record: UsageRecord): UsageRecord => wholeRecord(JSON.parse(lineOf(record)) as UsageLine)

const ANSWERED: UsageAttempt = {
  provider: 'acme',
  providerName: 'Acme',
  model: 'acme/fast-1',
  status: 200,
  error: null,
  isByok: false,
}
const ATTEMPTS: readonly UsageAttempt[] = [
  ANSWERED,
  { ...ANSWERED, isByok: true },
  { ...ANSWERED, status: 201 },
  { ...ANSWERED, status: null },
  { ...ANSWERED, status: 429, error: 'rate_limited' },
  {
    ...ANSWERED,
    provider: 'other',
    providerName: 'Other',
    model: 'other/slow',
    status: null,
    error: 'timeout',
  },
]

/** Values of each field that may be left out, its default first. */
const VALUES: Readonly<Partial<Record<keyof UsageRecord, readonly unknown[]>>> = {
  workspaceId: [null, 'ws'],
  memberId: [undefined, 'member'],
  parent: [undefined, 'gen-parent'],
  apiType: [undefined, 'embeddings'],
  router: [undefined, 'gateway/auto'],
  model: [null, 'acme/fast-1', ''],
  provider: [null, 'acme'],
  providerName: [null, 'Acme', 'Other'],
  upstreamId: [null, 'x', ''],
  streamed: [false, true],
  cancelled: [false, true],
  error: [null, 'upstream_timeout'],
  finishReason: [null, 'stop'],
  nativeFinishReason: [null, ''],
  cachedTokens: [0, 1e12],
  cacheWriteTokens: [0, 1],
  reasoningTokens: [0, 7],
  webSearchRequests: [0, 1],
  isByok: [false, true],
  serviceTier: [null, 'flex'],
  dataRegion: [null, 'eu'],
  endUser: [null, 'ü 日本 \n "'],
  sessionId: [null, ''],
  latencyMs: [0, 1234.567],
  generationMs: [null, 0, 0.001],
  attempts: [[], [ANSWERED], ...ATTEMPTS.map(one => [one]), ...ATTEMPTS.map(one => [one, ANSWERED])],
}

/** The same numbers in each run. */
function* draws(): Generator<number, never> {
  for (let state = 20_261_123; ; state = (state * 48_271) % 2_147_483_647) yield state
}

function withFields(fields: Record<string, unknown>): UsageRecord {
  const record: Record<string, unknown> = { ...someUsage(), ...fields }
  for (const [name, value] of Object.entries(record)) if (value === undefined) delete record[name]
  return record as unknown as UsageRecord
}

t.test('whatever a record says, its line says it, on one line', async t => {
  const random = draws()
  for (let round = 0; round < 2_000; round++) {
    const fields = Object.entries(VALUES).map(([name, values]) => [
      name,
      values[random.next().value % values.length],
    ])
    const record = withFields(Object.fromEntries(fields) as Record<string, unknown>)
    const line = lineOf(record)
    if (line.includes('\n') || line.includes('null')) t.fail(`a line end or a null in ${line}`)
    t.strictSame(again(record), { ...again(record), ...record })
    t.strictSame(record, { ...record, ...again(record) })
  }
})

t.test('what has its default is left out, and no field is said twice', async t => {
  const names = (record: UsageRecord) => Object.keys(JSON.parse(lineOf(record)) as object)
  const plain = someUsage({
    streamed: false,
    serviceTier: null,
    nativeFinishReason: null,
    finishReason: null,
    generationMs: null,
    latencyMs: 0,
    workspaceId: null,
  })
  t.same(names(plain), [
    'id',
    'createdAt',
    'organizationId',
    'keyHash',
    'outcome',
    'accounting',
    'inputTokens',
    'outputTokens',
    'cost',
    'model',
    'provider',
    'providerName',
  ])
  t.notOk(
    names(withFields({ model: null, provider: null, providerName: null, attempts: [] })).includes('attempts'),
  )
  t.same(
    JSON.parse(lineOf(someUsage({ id: 'gen-1', attempts: [...ATTEMPTS.slice(4), ANSWERED] }))),
    {
      ...JSON.parse(lineOf(someUsage({ id: 'gen-1' }))),
      attempts: [
        { status: 429, error: 'rate_limited' },
        { provider: 'other', providerName: 'Other', model: 'other/slow', error: 'timeout' },
        { status: 200 },
      ],
    },
    'attempts leave out what they share with the record',
  )
})

t.test('a line with all its fields reads the same as one without', async t => {
  const record = someUsage()
  t.strictSame(wholeRecord(JSON.parse(JSON.stringify(record)) as UsageLine), record)
})

t.test('a field of a newer version stays', async t => {
  const line = parseLine(JSON.stringify({ ...JSON.parse(lineOf(someUsage())), tomorrow: { a: 1 } }))
  t.match(line, { tomorrow: { a: 1 } })
  t.match(wholeRecord(line as UsageLine), { tomorrow: { a: 1 } })
})

t.test('lines that the ledger cannot store are no records', async t => {
  const good = JSON.parse(lineOf(someUsage())) as Record<string, unknown>
  const bad: Record<string, unknown>[] = [
    { ...good, id: 1 },
    { ...good, createdAt: undefined },
    { ...good, cost: 0.5 },
    { ...good, inputTokens: '1' },
    { ...good, outputTokens: 2 ** 53 },
    { ...good, reasoningTokens: 1.5 },
    { ...good, isByok: 1 },
    { ...good, endUser: {} },
    { ...good, memberId: 1 },
  ]
  for (const fields of bad) t.equal(parseLine(JSON.stringify(fields)), null)
  const text = `${JSON.stringify(good)}\n\n{"id":"gen-\n5\nnull\n${JSON.stringify(good)}\n`
  t.match(parseLines(text), { records: [good, good], invalidLines: 3 })
})
