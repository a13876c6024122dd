/** The writer of explanations: what is kept of floods, and of plain requests. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { ExchangeLine } from '../../../src/base/log/log.ts'
import { STAGES, Stopwatch } from '../../../src/base/metrics/stages.ts'
import type { RequestEnd } from '../../../src/exchange/exchange.ts'
import type { Explanation } from '../../../src/features/explanations/explanation.ts'
import { ExplanationWriter } from '../../../src/features/explanations/writer.ts'
import type { NewExplanation } from '../../../src/storage/ledger.ts'
import { EXCHANGE_LINE } from '../../support/exchange-line.ts'
import { scriptedExchange, scriptedRecord } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

function setUp() {
  const clock = new TestClock()
  const sent: NewExplanation[] = []
  const counts = { kept: 0, dropped: 0 }
  const writer = new ExplanationWriter({
    clock,
    send: made => void sent.push(...made),
    count: outcome => counts[outcome]++,
  })
  const refusal = new GatewayError('invalid_request', 'model: is required')
  const line = (fields: Partial<ExchangeLine>): ExchangeLine => ({ ...EXCHANGE_LINE, ...fields })
  let id = 0
  const take = (end: Pick<RequestEnd, 'line' | 'keyHash' | 'error' | 'exchange'>): void =>
    writer.write({
      ...end,
      watch: new Stopwatch(0),
      endedMs: clock.monotonicMs(),
      spentMs: new Float64Array(STAGES.length).fill(Number.NaN),
    })
  return {
    take,
    clock,
    sent,
    counts,
    writer,
    documents: () => sent.map(({ document }) => JSON.parse(document) as Explanation),
    refuse(keyHash: string | null, fields: Partial<ExchangeLine> = {}): void {
      const told = line({
        id: `gen-r${id++}`,
        status: 400,
        outcome: 'refused',
        error: 'invalid_request',
        ...fields,
      })
      take({ line: told, keyHash, error: refusal, exchange: undefined })
    },
    answer(
      organization: string,
      fields: Partial<ExchangeLine> = {},
      skippedModels: readonly string[] = [],
    ): void {
      const exchange = scriptedExchange()
      exchange.attempts.push(scriptedRecord())
      exchange.ranking = { ...exchange.ranking, skipped: skippedModels, choice: 'only' }
      const told = line({ id: `gen-p${id++}`, organization, attempts: 1, ...fields })
      take({ line: told, keyHash: 'k', error: null, exchange })
    },
  }
}

t.test('refusals have field, message and code; they are sent once a second', async t => {
  const { clock, sent, refuse, documents } = setUp()
  clock.advance(5)
  refuse('k', { organization: 'o', requestedModel: 'm/x', requestId: 'mine', durationMs: 5 })
  t.equal(sent.length, 0)
  clock.advance(1_000)
  t.match(sent, [{ organizationId: 'o', requestId: 'mine', isPlain: false }])
  t.match(documents(), [
    {
      source: 'whole',
      requested_model: 'm/x',
      key_hash: 'k',
      created_at: '2026-01-02T03:04:05.000Z',
      error: { code: 'invalid_request', field: 'model', message: 'model: is required' },
      attempts: [],
      unkept_before: 0,
    },
  ])
})

t.test('plain requests above the rate of a second do not hide one that passed over a model', async t => {
  const { clock, sent, answer } = setUp()
  for (let n = 0; n < 20; n++) answer('o')
  answer('o', {}, ['m/none'])
  clock.advance(1_000)
  t.same(
    sent.map(({ isPlain }) => isPlain),
    [...Array.from({ length: 8 }, () => true), false],
  )
})

t.test('a flood of one key is bounded, counted, and hides nobody', async t => {
  const { clock, writer, sent, counts, refuse, documents } = setUp()
  for (let n = 0; n < 1_000; n++) refuse('flood', { organization: 'o' })
  refuse('calm', { organization: 'o' })
  refuse('other', { organization: 'other' })
  writer.flush()
  t.equal(sent.length, 32)
  t.same(counts, { kept: 32, dropped: 970 })
  t.match(documents().slice(-2), [{ key_hash: 'calm' }, { key_hash: 'other' }])
  clock.advance(5_000)
  refuse('flood', { organization: 'o' })
  writer.flush()
  t.match(documents().at(-1), { key_hash: 'flood', unkept_before: 970 })
})

t.test('many keys of one organization, and many addresses, are bounded too', async t => {
  const { writer, sent, refuse } = setUp()
  for (let n = 0; n < 1_000; n++) refuse(`key ${n}`, { organization: 'o' })
  writer.flush()
  t.equal(sent.length, 100)
  for (let n = 0; n < 50; n++) refuse(null, { client: '10.0.0.1' })
  writer.flush()
  t.equal(sent.length, 110)
  for (let n = 0; n < 10_000; n++) refuse(null, { client: `10.0.1.${n}` })
  writer.flush()
  t.equal(sent.length, 200)
})

t.test('of plain requests a few of each second are kept, of several organizations', async t => {
  const { clock, sent, counts, answer } = setUp()
  for (let n = 0; n < 1_000; n++) answer('busy')
  answer('calm')
  clock.advance(1_000)
  t.same([sent.length, sent.every(({ isPlain }) => isPlain)], [9, true])
  t.equal(sent.at(-1)?.organizationId, 'calm')
  t.same(counts, { kept: 0, dropped: 0 })
  answer('busy')
  answer('busy', { durationMs: 31_000 })
  clock.advance(1_000)
  t.same(
    sent.slice(9).map(({ isPlain }) => isPlain),
    [true, false],
    'a slow one is none of them',
  )
})

t.test('what asks no model and is answered is not explained', async t => {
  const { clock, take, writer, sent } = setUp()
  take({ line: EXCHANGE_LINE, keyHash: 'k', error: null, exchange: undefined })
  writer.flush()
  t.equal(sent.length + clock.armed, 0)
})
