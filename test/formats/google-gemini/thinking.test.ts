import t from 'tap'
import { thinkingConfig } from '../../../src/formats/google-gemini/model.ts'
import type { Endpoint } from '../../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'

function config(
  model: string,
  reasoning: ResponsesRequest['reasoning'],
  limits: { ask?: number; endpoint?: number } = {},
) {
  const request = {
    input: 'x',
    reasoning,
    ...(limits.ask === undefined ? {} : { max_output_tokens: limits.ask }),
  }
  return thinkingConfig(
    request as ResponsesRequest,
    { upstreamModel: model, maxOutputTokens: limits.endpoint ?? null } as Endpoint,
  )
}

const includeThoughts = true

t.test('models with levels', async t => {
  const flash = 'gemini-3-flash'
  const levels = {
    max: 'HIGH',
    xhigh: 'HIGH',
    high: 'HIGH',
    medium: 'MEDIUM',
    low: 'LOW',
    minimal: 'MINIMAL',
  } as const
  for (const [effort, thinkingLevel] of Object.entries(levels)) {
    t.strictSame(
      config(flash, { effort: effort as keyof typeof levels }),
      { includeThoughts, thinkingLevel },
      effort,
    )
  }
  t.strictSame(
    config('gemini-3-pro', { effort: 'minimal' }),
    { includeThoughts, thinkingLevel: 'LOW' },
    'the nearest level',
  )
  t.strictSame(
    config('gemini-3-pro', { effort: 'medium' }),
    { includeThoughts, thinkingLevel: 'HIGH' },
    'of two, the one that thinks more',
  )
  t.strictSame(config('gemini-3.1-pro', { effort: 'medium' }), { includeThoughts, thinkingLevel: 'MEDIUM' })
  t.strictSame(config(flash, { effort: 'none' }), { thinkingLevel: 'MINIMAL' }, 'it always thinks')
  t.strictSame(config('gemini-3.1-pro', { effort: 'none' }), { thinkingLevel: 'LOW' })
  t.strictSame(config('gemini-2.0-flash', { effort: 'high' }), null, 'a model without the setting')
  t.strictSame(
    config(flash, { enabled: true }),
    { includeThoughts, thinkingLevel: 'MEDIUM' },
    'enabled alone is medium',
  )
  t.strictSame(config(flash, { max_tokens: 1000 }, { ask: 10_000 }), {
    includeThoughts,
    thinkingLevel: 'MINIMAL',
  })
  t.strictSame(config(flash, { max_tokens: 2000 }, { ask: 10_000 }), {
    includeThoughts,
    thinkingLevel: 'LOW',
  })
  t.strictSame(config(flash, { max_tokens: 5000 }, { endpoint: 10_000 }), {
    includeThoughts,
    thinkingLevel: 'MEDIUM',
  })
  t.strictSame(config(flash, { max_tokens: 60_000 }), { includeThoughts, thinkingLevel: 'HIGH' })
  t.strictSame(
    config(flash, { max_tokens: 5, effort: 'high' }),
    { includeThoughts, thinkingLevel: 'HIGH' },
    'the effort is the finer word',
  )
})

t.test('models with a budget', async t => {
  const flash = 'gemini-2.5-flash'
  const budget = (thinkingBudget: number) => ({ includeThoughts, thinkingBudget })
  t.strictSame(config(flash, { effort: 'medium' }, { ask: 10_000 }), budget(5000))
  t.strictSame(config(flash, { effort: 'high' }, { endpoint: 10_000 }), budget(8000))
  t.strictSame(config(flash, { effort: 'minimal' }, { ask: 5000 }), budget(1024), 'not less than the floor')
  t.strictSame(config(flash, { effort: 'high' }, { ask: 800 }), budget(799), 'room is left for an answer')
  t.strictSame(config(flash, { effort: 'max' }), budget(24_576), 'not more than the model takes')
  t.strictSame(config('gemini-2.5-pro', { effort: 'max' }), budget(32_768))
  t.strictSame(config(flash, { max_tokens: 300 }), budget(300))
  t.strictSame(
    config(flash, { max_tokens: 300, effort: 'high' }),
    budget(300),
    'the budget is the finer word',
  )
  t.strictSame(config('gemini-2.5-pro', { max_tokens: 1 }), budget(128), 'not less than the model takes')
  t.strictSame(config(flash, { effort: 'none' }), { thinkingBudget: 0 })
  for (const reasoning of [
    { effort: 'none' },
    { enabled: false, effort: 'high' },
    { max_tokens: 0 },
  ] as const)
    t.strictSame(config('gemini-2.5-pro', reasoning), { thinkingBudget: 128 }, 'it refuses 0')
  t.strictSame(config('gemini-2.5-flash-lite', { effort: 'none' }), { thinkingBudget: 0 })
  t.strictSame(config(flash, { enabled: false, effort: 'high' }), { thinkingBudget: 0 })
  t.strictSame(config(flash, { max_tokens: 0 }), { thinkingBudget: 0 })
})

t.test('nothing is said when nothing was asked', async t => {
  t.equal(config('gemini-2.5-flash', null), null)
  t.equal(config('gemini-2.5-flash', {}), null)
  t.equal(config('gemini-2.5-flash', { effort: null, enabled: null, max_tokens: null }), null)
  t.strictSame(config('gemini-2.5-flash', { summary: 'auto' }), { includeThoughts })
})
