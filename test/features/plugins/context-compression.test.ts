/** How candidates are ordered and how much room an answer is left. */
import t from 'tap'
import type { Candidate } from '../../../src/exchange/exchange.ts'
import { createContextCompression } from '../../../src/features/plugins/context-compression.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { scriptedEndpoint, scriptedExchange } from '../../support/scripted-attempt.ts'

/** One token for each letter of the input. */
const plugin = createContextCompression({
  tokensOf: values => JSON.stringify(values).replace(/[^x]/g, '').length,
  truncates: format => format === 'openai-responses',
  modelFacts: { hasSmallContext: id => id === 'acme/small' },
})
const endpointOf = (contextLength: number | null) => ({ ...scriptedEndpoint('openai-chat'), contextLength })

function activeFor(input: string, more: object = {}) {
  const exchange = scriptedExchange()
  const request = { ...exchange.request, input, ...more }
  const active = plugin.activate({ id: 'context-compression' }, request)
  if (active === null) throw new Error('nothing to do')
  exchange.prompt = request
  return { active, exchange }
}

function orderOf(contexts: readonly (number | null)[], letters: number, more: object = {}) {
  const { active, exchange } = activeFor('x'.repeat(letters), more)
  const candidates: Candidate[] = contexts.map(context => ({
    endpoint: endpointOf(context),
    credential: null,
  }))
  return active.order?.(candidates, exchange).map(({ endpoint }) => endpoint.contextLength)
}

t.test('candidates that take half of the input go first, in their own order', async t => {
  t.same(orderOf([100, 1_000, 50, 600], 1_000), [1_000, 600, 100, 50])
  t.same(orderOf([1_000, null], 100), [1_000, null], 'when all do, nothing moves')
  t.same(orderOf([500, null], 2_000), [null, 500], 'an unknown context is no obstacle')
  t.same(orderOf([500, 1_000], 600, { max_output_tokens: 600 }), [1_000, 500], 'the answer counts')
})

t.test('when none does, the largest goes first', async t => {
  t.same(orderOf([100, 300, 200], 10_000), [300, 200, 100])
})

t.test('the answer keeps its room, but never more than half', async t => {
  const lengthFor = (more: object) => {
    const { active, exchange } = activeFor('x'.repeat(10_000), more)
    const fitted = active.fitTo?.(exchange, endpointOf(4_000)) as ResponsesRequest
    return JSON.stringify(fitted.input).replace(/[^x]/g, '').length
  }
  const room = (tokens: number, more: object) => {
    const length = lengthFor(more)
    t.ok(length <= tokens && length > tokens * 0.9, `${length} of ${tokens}`)
  }
  room(3_000, {})
  room(3_500, { max_output_tokens: 500 })
  room(2_000, { max_output_tokens: 100_000 })
})

t.test('what fits, and what has no known bound, stays as it is', async t => {
  for (const context of [20_000, null]) {
    const { active, exchange } = activeFor('x'.repeat(10_000))
    t.equal(active.fitTo?.(exchange, endpointOf(context)), undefined)
    t.same(exchange.pipeline, [])
  }
})

t.test('unasked it works for models with a small context alone', async t => {
  const { request } = scriptedExchange()
  t.equal(plugin.activate(null, { ...request, model: 'acme/large' }), null)
  t.ok(plugin.activate(null, { ...request, model: 'acme/small' }))
  const { model: _model, ...rest } = request
  t.ok(plugin.activate(null, { ...rest, models: ['acme/large', 'acme/small'] }))
  t.equal(plugin.activate(null, { ...rest, models: ['acme/large'] }), null)
})

t.test('unasked, the larger endpoint of a request is not compressed for', async t => {
  const exchange = scriptedExchange()
  const active = plugin.activate(null, { ...exchange.request, model: 'acme/small' })
  exchange.prompt = { ...exchange.prompt, input: 'x'.repeat(12_000) }
  void active?.fitTo?.(exchange, endpointOf(10_000))
  t.same(exchange.pipeline, [])
  void active?.fitTo?.(exchange, endpointOf(8_192))
  t.match(exchange.pipeline, [{ type: 'context_compression' }])
})
