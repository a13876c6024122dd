import t from 'tap'
import { byokFee, priceUsage } from '../../../src/gateway/accounting/cost.ts'

t.test('tokens of the cache are charged at their own prices, each token once', async t => {
  const usage = {
    inputTokens: 100,
    cachedTokens: 30,
    cacheWriteTokens: 20,
    outputTokens: 10,
    reasoningTokens: 5,
    webSearchRequests: 0,
  }
  const pricing = { prompt: 10, completion: 100, request: 7, inputCacheRead: 1, inputCacheWrite: 13 }
  t.same(priceUsage(usage, pricing), { input: 500 + 30 + 260, output: 1_000, total: 1_797 })
  t.match(priceUsage(usage, { ...pricing, inputCacheRead: null, inputCacheWrite: null }), { input: 1_000 })
})

t.test('a fee on an own credential is never more than its share of the price', async t => {
  t.equal(byokFee(1_000, 5), 50)
  t.equal(byokFee(19, 5), 0)
  t.equal(byokFee(39, 5), 1)
})
