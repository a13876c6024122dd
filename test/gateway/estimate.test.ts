import t from 'tap'
import { estimateRequest, estimateUsage } from '../../src/gateway/estimate.ts'
import { parseResponsesRequest } from '../../src/protocol/request.ts'
import { scriptedEndpoint } from '../support/scripted-attempt.ts'

const asked = (input: unknown, more: Record<string, unknown> = {}) =>
  parseResponsesRequest({ model: 'a/b', input, ...more })

t.test('four characters make a token, on both sides', async t => {
  t.match(estimateUsage(asked('x'.repeat(400)), null, 81), {
    inputTokens: 100,
    outputTokens: 21,
    cachedTokens: 0,
  })
  t.match(estimateUsage(asked('', { instructions: 'x'.repeat(40) }), null, 0), {
    inputTokens: 10,
    outputTokens: 0,
  })
})

t.test('what the provider told stays exact; only missing output is estimated', async t => {
  const told = {
    inputTokens: 7,
    cachedTokens: 3,
    cacheWriteTokens: 2,
    outputTokens: 1,
    reasoningTokens: 0,
    webSearchRequests: 1,
  }
  t.same(estimateUsage(asked('x'.repeat(400)), told, 400), { ...told, outputTokens: 100 })
  t.same(estimateUsage(asked('x'), { ...told, outputTokens: 500 }, 400), { ...told, outputTokens: 500 })
})

t.test('an attachment counts as one, however long its base64 is', async t => {
  const image = { type: 'input_image', image_url: `data:image/png;base64,${'A'.repeat(1_000_000)}` }
  const file = { type: 'input_file', filename: 'a.pdf', file_data: 'A'.repeat(1_000_000) }
  const { inputTokens } = estimateUsage(asked([{ role: 'user', content: [image, file] }]), null, 0)
  t.ok(inputTokens >= 2_000 && inputTokens < 2_100, String(inputTokens))
})

t.test('a request of very many parts takes bounded time', async t => {
  const request = asked(
    Array.from({ length: 100_000 }, () => ({
      role: 'user',
      content: [{ type: 'input_text', text: 'word' }],
    })),
  )
  const startedMs = performance.now()
  const { inputTokens } = estimateUsage(request, null, 0)
  const spentMs = performance.now() - startedMs
  t.ok(inputTokens > 5_000)
  t.ok(spentMs < 50, `${spentMs.toFixed(1)} ms`)
})

t.test('before anything is sent a request is worth what its dearest candidate may charge', async t => {
  const endpoint = (prompt: number, completion: number, request: number, maxOutputTokens: number | null) => ({
    ...scriptedEndpoint('openai-chat'),
    maxOutputTokens,
    pricing: { prompt, completion, request, inputCacheRead: 0, inputCacheWrite: null },
  })
  const shared = { endpoint: endpoint(1, 2, 5, null), credential: null }
  const own = { endpoint: endpoint(10, 20, 0, 50), credential: { id: 'c' } }
  const text = 'x'.repeat(400)
  t.same(estimateRequest(asked(text, { max_output_tokens: 60 }), [shared, own]), {
    cost: 100 * 10 + 50 * 20,
    ownCost: 100 * 1 + 60 * 2 + 5,
    tokens: 160,
  })
  t.same(estimateRequest(asked(text), [shared]), {
    cost: 100 + 1024 * 2 + 5,
    ownCost: 100 + 1024 * 2 + 5,
    tokens: 1124,
  })
  t.match(estimateRequest(asked(text), [own]), { ownCost: 0, tokens: 150 })
})
