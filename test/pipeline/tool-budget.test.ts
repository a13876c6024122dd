import t from 'tap'
import { parseUsd } from '../../src/base/money.ts'
import { Bill } from '../../src/exchange/bill.ts'
import type { Finish } from '../../src/exchange/exchange.ts'
import { budgetOf, type ToolTurn } from '../../src/pipeline/tool-calls/tool-calls.ts'
import type { StopCondition } from '../../src/protocol/request.ts'
import { parseResponsesRequest } from '../support/dialects.ts'

const FINISH: Finish = { reason: 'tool_calls', native: 'tool_use', serviceTier: null }

const budgetFor = (fields: object = {}) =>
  budgetOf(parseResponsesRequest({ model: 'acme/fast-1', input: 'hi', ...fields }))

interface Spent {
  readonly turns?: number
  /** Of each turn. */
  readonly inputTokens?: number
  readonly outputTokens?: number
  readonly cost?: number
  readonly toolCost?: number
  readonly called?: readonly string[]
  readonly finish?: Finish
}

function turnAfter(spent: Spent = {}): ToolTurn {
  const { turns = 1, inputTokens = 0, outputTokens = 0, cost = 0, toolCost = 0 } = spent
  const bill = new Bill()
  for (let turn = 0; turn < turns; turn++) {
    const usage = {
      inputTokens,
      cachedTokens: inputTokens,
      cacheWriteTokens: 0,
      outputTokens,
      reasoningTokens: outputTokens,
      webSearchRequests: 0,
    }
    bill.charge({ usage, inputCost: cost, outputCost: 0, cost, isExact: true, isUnpriced: false })
    bill.closeTurn()
  }
  bill.addToolCall(true, toolCost)
  return { bill, finish: spent.finish ?? FINISH, calledNames: spent.called ?? [] }
}

/** Both forms of the field, which mean the same. */
function stopsAfter(condition: StopCondition, spent: Spent): boolean {
  const [single, list] = [condition, [condition]].map(stop_server_tools_when =>
    budgetFor({ stop_server_tools_when }).isSpent(turnAfter(spent)),
  )
  if (single !== list) throw new Error('the two forms differ')
  return single === true
}

/** Calls that run, and the count of them after which the next turn has to be the last. */
function callsOf(budget: ReturnType<typeof budgetFor>): { ran: number; spentAfter: number | null } {
  let spentAfter: number | null = null
  for (let ran = 0; ran < 1_000; ran++) {
    if (spentAfter === null && budget.isSpent(turnAfter())) spentAfter = ran
    if (!budget.takeCall()) return { ran, spentAfter }
  }
  throw new Error('calls have no bound')
}

t.test('max_tool_calls bounds the calls; 30 without it', async t => {
  for (const [fields, calls] of [
    [{}, 30],
    [{ max_tool_calls: null }, 30],
    [{ max_tool_calls: 30 }, 30],
    [{ max_tool_calls: 3 }, 3],
    [{ max_tool_calls: 1 }, 1],
  ] as const) {
    t.same(callsOf(budgetFor(fields)), { ran: calls, spentAfter: calls })
  }
})

t.test('no more calls run once the bound is reached, however often one asks', async t => {
  const budget = budgetFor({ max_tool_calls: 1 })
  t.equal(budget.isSpent(turnAfter()), false)
  t.equal(budget.takeCall(), true)
  t.equal(budget.takeCall(), false)
  t.equal(budget.takeCall(), false)
  t.equal(budget.isSpent(turnAfter()), true)
})

t.test('conditions replace max_tool_calls, and still have a bound of their own', async t => {
  const stop_server_tools_when = [{ type: 'step_count_is', step_count: 1_000 }]
  t.same(callsOf(budgetFor({ max_tool_calls: 1, stop_server_tools_when })), { ran: 120, spentAfter: 120 })
})

t.test('step_count_is: after so many model calls', async t => {
  const condition = { type: 'step_count_is', step_count: 2 } as const
  t.equal(stopsAfter(condition, { turns: 1 }), false)
  t.equal(stopsAfter(condition, { turns: 2 }), true)
  t.equal(stopsAfter(condition, { turns: 3 }), true, 'a turn that was asked again may have skipped the count')
})

t.test('has_tool_call: the turn has called that tool', async t => {
  const condition = { type: 'has_tool_call', tool_name: 'gateway:datetime' } as const
  t.equal(stopsAfter(condition, { called: [] }), false)
  t.equal(stopsAfter(condition, { called: ['datetime'] }), false)
  t.equal(stopsAfter(condition, { called: ['search', 'gateway:datetime'] }), true)
})

t.test('max_tokens_used: input and output of all turns together', async t => {
  const condition = { type: 'max_tokens_used', max_tokens: 100 } as const
  t.equal(stopsAfter(condition, { inputTokens: 60, outputTokens: 39 }), false)
  t.equal(stopsAfter(condition, { inputTokens: 60, outputTokens: 40 }), true)
  t.equal(stopsAfter(condition, { turns: 2, inputTokens: 30, outputTokens: 20 }), true)
  t.equal(budgetFor({ stop_server_tools_when: condition }).isSpent(turnAfter({ turns: 0 })), false)
})

t.test('max_cost: tokens and fees of tools together', async t => {
  const condition = { type: 'max_cost', max_cost_in_dollars: 0.5 } as const
  const half = parseUsd('0.5')
  t.equal(stopsAfter(condition, { cost: half - 1 }), false)
  t.equal(stopsAfter(condition, { cost: half }), true)
  t.equal(stopsAfter(condition, { turns: 2, cost: half / 2 }), true)
  t.equal(stopsAfter(condition, { cost: half - 1, toolCost: 1 }), true)
  t.equal(stopsAfter({ type: 'max_cost', max_cost_in_dollars: 0 }, {}), true)
})

t.test('max_cost holds to the smallest unit, although dollars are no binary fractions', async t => {
  for (const dollars of ['0.017', '0.034', '0.067', '0.07', '1.1', '0.000000000001']) {
    const condition = { type: 'max_cost', max_cost_in_dollars: Number(dollars) } as const
    t.equal(stopsAfter(condition, { cost: parseUsd(dollars) }), true, dollars)
    t.equal(stopsAfter(condition, { cost: parseUsd(dollars) - 1 }), false, dollars)
  }
})

t.test('finish_reason_is: our word or that of the provider', async t => {
  const stops = (reason: string) => stopsAfter({ type: 'finish_reason_is', reason }, {})
  t.equal(stops('tool_calls'), true)
  t.equal(stops('tool_use'), true)
  t.equal(stops('stop'), false)
  const finish = { ...FINISH, native: null }
  t.equal(stopsAfter({ type: 'finish_reason_is', reason: 'null' }, { finish }), false)
})

t.test('one of several conditions is enough', async t => {
  const stop_server_tools_when = [
    { type: 'step_count_is', step_count: 9 },
    { type: 'has_tool_call', tool_name: 'search' },
  ]
  const budget = budgetFor({ stop_server_tools_when })
  t.equal(budget.isSpent(turnAfter({ turns: 8 })), false)
  t.equal(budget.isSpent(turnAfter({ turns: 9 })), true)
  t.equal(budget.isSpent(turnAfter({ called: ['search'] })), true)
})
