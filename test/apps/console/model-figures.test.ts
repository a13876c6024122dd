/** Figures by model: names that no provider served have their rows, and never push serving models out. */
import t from 'tap'
import { FiguresByModel } from '../../../src/apps/console/model-figures.ts'
import { type RequestRow, rowOfRecord } from '../../../src/apps/console/request-row.ts'
import { someUsage } from '../../storage/usage.ts'

const NOW = Date.parse('2026-01-02T03:04:05.000Z')
const REFUSED = { model: null, provider: null, providerName: null, attempts: [], outcome: 'failed' } as const

function row(more: Parameters<typeof someUsage>[0]): RequestRow {
  return rowOfRecord(someUsage({ createdAt: new Date(NOW - 1_000).toISOString(), ...more }))
}

t.test('an outage of one model is the row of that model', async t => {
  const figures = new FiguresByModel()
  for (let n = 0; n < 3; n++) {
    figures.add(row({ ...REFUSED, error: 'service_unavailable', requestedModel: 'acme/fast' }), NOW)
  }
  t.match(figures.all(NOW), [{ model: 'acme/fast', requests: 3 }])
})

t.test('names of clients take a bounded part of the table', async t => {
  const figures = new FiguresByModel()
  for (let n = 0; n < 100; n++) figures.add(row({ ...REFUSED, requestedModel: `none/${n}` }), NOW)
  for (let n = 0; n < 20; n++) figures.add(row({ model: `acme/${n}` }), NOW)
  const models = figures.all(NOW).map(({ model }) => model)
  t.equal(models.filter(model => model?.startsWith('none/')).length, 10)
  t.equal(models.filter(model => model?.startsWith('acme/')).length, 20)
  t.ok(models.includes(null), 'the others are counted together')
})
