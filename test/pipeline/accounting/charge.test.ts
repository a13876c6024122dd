import t from 'tap'
import { byokFee, priceUsage } from '../../../src/pipeline/accounting/charge.ts'
import { imagesIn } from '../../../src/pipeline/accounting/media.ts'

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

const USED = {
  inputTokens: 100,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 10,
  reasoningTokens: 0,
  webSearchRequests: 0,
}
const PRICING = { prompt: 10, completion: 100, request: 0, inputCacheRead: null, inputCacheWrite: null }

t.test('writes to the cache for an hour, audio, reasoning and images have prices of their own', async t => {
  const usage = {
    ...USED,
    cacheWriteTokens: 20,
    cacheWrite1hTokens: 15,
    audioTokens: 30,
    reasoningTokens: 4,
  }
  const pricing = {
    ...PRICING,
    inputCacheWrite: 12,
    inputCacheWrite1h: 20,
    audio: 50,
    internalReasoning: 7,
    image: 900,
  }
  const input = 50 * 10 + 30 * 50 + 5 * 12 + 15 * 20 + 2 * 900
  t.same(priceUsage(usage, pricing, 2), { input, output: 6 * 100 + 4 * 7, total: input + 628 })
  t.same(
    priceUsage(usage, { ...PRICING, inputCacheWrite: 12 }).input,
    80 * 10 + 20 * 12,
    'absent: as the plainer kind',
  )
  t.same(
    priceUsage({ ...usage, cacheWrite1hTokens: 999, audioTokens: 999, reasoningTokens: 999 }, pricing),
    { input: 20 * 20 + 80 * 50, output: 10 * 7, total: 20 * 20 + 80 * 50 + 70 },
    'parts are never more than the whole',
  )
})

t.test('prices of long prompts hold when there are strictly more tokens', async t => {
  const pricing = {
    ...PRICING,
    overrides: [
      { ...PRICING, minPromptTokens: 100, prompt: 20, completion: 150 },
      { ...PRICING, minPromptTokens: 200, prompt: 30, completion: 150 },
    ],
  }
  const costOf = (inputTokens: number) => priceUsage({ ...USED, inputTokens }, pricing)
  t.match(costOf(100), { input: 1_000, output: 1_000 })
  t.match(costOf(101), { input: 2_020, output: 1_500 })
  t.match(costOf(200), { input: 4_000 })
  t.match(costOf(201), { input: 6_030 })
})

t.test('the fee of a request is in its cost alone', async t => {
  t.same(priceUsage(USED, { ...PRICING, request: 5 }), { input: 1_000, output: 1_000, total: 2_005 })
})

t.test('images are counted in messages and in outputs of calls, where they have a price', async t => {
  const image = { type: 'input_image', image_url: 'https://x.test/a.png' }
  const input = [
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'x' }, image, image] },
    { type: 'function_call_output', call_id: 'c', output: [image] },
    { type: 'function_call_output', call_id: 'c', output: 'input_image' },
  ]
  t.equal(imagesIn({ image: 1 }, { input }), 3)
  t.equal(imagesIn({ image: 0 }, { input }), 0)
  t.equal(imagesIn({}, { input }), 0)
  t.equal(imagesIn({ image: 1 }, { input: 'text' }), 0)
})

t.test('a fee on a BYOK credential is never more than its share of the price', async t => {
  t.equal(byokFee(1_000, 5), 50)
  t.equal(byokFee(19, 5), 0)
  t.equal(byokFee(39, 5), 1)
})
