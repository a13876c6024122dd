/** How a reply is watched while it runs, and what is sent of a cap. */
import t from 'tap'
import { admitCall, demandOf, Meter } from '../../../src/pipeline/accounting/allowance.ts'
import { chargeOf } from '../../../src/pipeline/accounting/charge.ts'
import { VisibleStreams } from '../../../src/pipeline/accounting/visible-streams.ts'
import type { Allowance } from '../../../src/protocol/records.ts'
import { scriptedEndpoint, scriptedExchange } from '../../support/scripted-attempt.ts'

const NOTHING_SHOWN = new VisibleStreams()
const OFFER = { base: 0, perToken: 1, isOwn: false, maxTokens: 10_000, first: 1_024, cappable: true }

/** An allowance of so much, with what it was asked to cover. */
function allowanceOf(amount: number, answer: (covered: boolean) => boolean | Promise<boolean> = is => is) {
  const asked: number[] = []
  const allowance: Allowance = {
    refusal: null,
    remaining: () => amount,
    cover(cost) {
      asked.push(cost)
      return answer(cost <= amount)
    },
  }
  return { allowance, asked }
}

const never = (): never => {
  throw new Error('nobody waits')
}

t.test('more is reserved before what is reserved is said', async t => {
  const { allowance, asked } = allowanceOf(2_500)
  const meter = new Meter(allowance, OFFER, 0, 10_000, true)
  t.equal(meter.nextCheckQuarters, 512 * 4)
  t.equal(meter.reach(512 * 4, never), 'go')
  t.same(asked, [2_048])
  t.equal(meter.nextCheckQuarters, (2_048 - 512) * 4)
  t.equal(meter.reach((2_048 - 512) * 4, never), 'go', 'what is refused is not needed yet')
  t.same(asked, [2_048, 3_072])
  t.equal(meter.nextCheckQuarters, 2_048 * 4)
  t.equal(meter.reach(2_048 * 4, never), 'stop')
  t.same(asked, [2_048, 3_072], 'a refusal is not asked again')
})

t.test('one long text is covered as a whole, or ends the reply', async t => {
  const enough = allowanceOf(100_000)
  t.equal(new Meter(enough.allowance, OFFER, 50, 1e6, false).reach(20_000 * 4, never), 'go')
  t.same(enough.asked, [50 + 20_000 + 1_024])
  const little = allowanceOf(3_000)
  t.equal(new Meter(little.allowance, OFFER, 0, 1e6, false).reach(20_000 * 4, never), 'stop')
})

t.test('nothing is reserved beyond a cap unless more is said', async t => {
  const { allowance, asked } = allowanceOf(1e9)
  const meter = new Meter(allowance, { ...OFFER, first: 100 }, 0, 100, true)
  t.equal(meter.nextCheckQuarters, 100 * 4)
  t.equal(meter.reach(100 * 4, never), 'go')
  t.same(asked, [100 + 1_024])
})

t.test('where the counters answer later, nothing is read that is not covered', async t => {
  for (const answer of [true, false]) {
    const late = Promise.withResolvers<boolean>()
    const { allowance } = allowanceOf(1e9, () => late.promise)
    const meter = new Meter(allowance, OFFER, 0, 10_000, true)
    let goes = 0
    const go = () => void goes++
    t.equal(meter.reach(600 * 4, go), 'go', 'some of it is left')
    t.equal(meter.nextCheckQuarters, 1_024 * 4)
    t.equal(meter.reach(1_030 * 4, go), 'wait')
    late.resolve(answer)
    await late.promise
    await Promise.resolve()
    t.equal(goes, 1)
    t.equal(meter.reach(1_030 * 4, go), answer ? 'go' : 'stop')
  }
})

t.test('a later call has what the earlier ones left, and its own cap', async t => {
  const endpoint = { ...scriptedEndpoint('openai-chat'), maxOutputTokens: 9_000 }
  const candidate = { endpoint, credential: null }
  const exchange = scriptedExchange({ input: 'x'.repeat(400), stream: false })
  const { allowance, asked } = allowanceOf(5_000)
  t.match(admitCall(exchange, allowance, exchange.prompt, candidate), { cap: 4_900 })
  t.same(asked, [5_000])
  const usage = {
    inputTokens: 1_000,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    outputTokens: 1_000,
    reasoningTokens: 0,
    webSearchRequests: 0,
  }
  exchange.bill.charge(chargeOf(usage, endpoint.pricing, true))
  exchange.bill.closeTurn()
  exchange.bill.addToolCall(true, 500)
  t.match(admitCall(exchange, allowance, exchange.prompt, candidate), { cap: 2_400 })
  exchange.bill.addToolCall(true, 2_400)
  t.equal(admitCall(exchange, allowance, exchange.prompt, candidate), null)
})

t.test('no cap is made up that a model may refuse', async t => {
  const exchange = scriptedExchange({ input: 'x' })
  exchange.trust = NOTHING_SHOWN.trustOf('a')
  const capOf = (more: object, rest: number, fields: object = {}) => {
    const endpoint = { ...scriptedEndpoint('openai-chat'), ...more }
    const prompt = { ...exchange.prompt, ...fields }
    const terms = admitCall(exchange, allowanceOf(rest).allowance, prompt, { endpoint, credential: null })
    return terms === null || terms instanceof Promise ? terms : terms.cap
  }
  t.equal(capOf({ thinks: false }, 1e9), null, 'a stream that is seen, of a model whose maximum is unknown')
  t.equal(capOf({ thinks: false }, 1_001), 1_000, 'unless the limit leaves little')
  t.equal(capOf({}, 1e9), 4_096, 'what may be hidden has a cap')
  t.equal(capOf({}, 1e9, { stream: false }), 4_096)
  t.equal(capOf({ maxOutputTokens: 32_000 }, 1e9), 32_000)
  t.equal(capOf({}, 1e9, { max_output_tokens: 70_000 }), 70_000)
  t.equal(capOf({ supportedParameters: new Set(['temperature']) }, 1e9), null)
  const free = { prompt: 1, completion: 0, request: 0, inputCacheRead: null, inputCacheWrite: null }
  t.equal(capOf({ pricing: free, maxOutputTokens: 9 }, 1e9), null)
})

t.test('what may be asked several times is reserved as a whole, a stream too', t => {
  const endpoint = {
    ...scriptedEndpoint('anthropic-messages'),
    maxOutputTokens: 9_000,
    thinks: false as const,
  }
  const { prompt } = scriptedExchange({ input: 'x'.repeat(400) })
  const candidates = [{ endpoint, credential: null }]
  t.match(demandOf(prompt, candidates, NOTHING_SHOWN), {
    offers: [{ base: 100, perToken: 1, maxTokens: 9_000, first: 1_024 }],
  })
  // What was withheld is read again: once by the second call, and twice by the third.
  t.match(demandOf(prompt, candidates, NOTHING_SHOWN, 3), {
    offers: [{ base: 300, perToken: 3 + 3, maxTokens: 9_000, first: 9_000 }],
  })
  t.end()
})
