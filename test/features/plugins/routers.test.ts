/** The parts of routers: patterns, bands, tiers of scores, signals, the files, and the classifier by weights. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import type { Exchange } from '../../../src/exchange/exchange.ts'
import { createBodyBuilder, isRequests } from '../../../src/features/plugins/bodybuilder.ts'
import { byTier, underPrice } from '../../../src/features/plugins/pareto-router.ts'
import { ceilingOf, orderByBand, TIER_BANDS } from '../../../src/features/plugins/routers/bands.ts'
import { readTaskType } from '../../../src/features/plugins/routers/classifier.ts'
import {
  instructionsOf,
  isToolTurn,
  recentResults,
  userWords,
} from '../../../src/features/plugins/routers/conversation.ts'
import { readVerdict } from '../../../src/features/plugins/routers/judge.ts'
import { createLinearClassifier } from '../../../src/features/plugins/routers/linear.ts'
import { patternsOf } from '../../../src/features/plugins/routers/patterns.ts'
import { RankingsError, readRankings } from '../../../src/features/plugins/routers/rankings.ts'
import { sideOf } from '../../../src/features/plugins/routers/stage-signals.ts'
import { TASK_TYPES } from '../../../src/features/plugins/routers/task-types.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { routerOf, routerSlug, withVariants } from '../../../src/protocol/routers.ts'
import { globMatches } from '../../support/router-oracle.ts'
import { labelledPrompts } from '../../support/router-world.ts'

const ROUTERS = join(import.meta.dirname, '../../../src/features/plugins/routers')

t.test('a pattern matches as a glob does', async t => {
  for (const [pattern, id, matches] of [
    ['anthropic/*', 'anthropic/claude', true],
    ['anthropic/*', 'openai/anthropic/x', false],
    ['*/claude-*', 'anthropic/claude-4', true],
    ['openai/gpt-5*', 'openai/gpt-5', true],
    ['*', '', true],
    ['a*a', 'a', false],
    ['a*b*c', 'a-c-b-c', true],
    ['a**b', 'ab', true],
    ['openai/gpt-5', 'openai/gpt-5-mini', false],
    ['.*', 'anything', false],
  ] as const) {
    t.equal(patternsOf([pattern])?.matches(id), matches, `${pattern} ${id}`)
  }
  t.equal(patternsOf([], null, undefined), null)
  const text = fc.string({ unit: fc.constantFrom('a', 'b', '/', '*'), maxLength: 12 })
  const id = fc.string({ unit: fc.constantFrom('a', 'b', '/'), maxLength: 12 })
  fc.assert(
    fc.property(text, id, (pattern, name) => {
      // An empty pattern is the name of no model.
      return patternsOf([pattern])?.matches(name) === globMatches(pattern, name)
    }),
  )
})

t.test('slugs of routers are known in both spellings, with variants', async t => {
  t.match(routerSlug('gateway/auto'), { name: 'auto', variants: '' })
  t.match(routerSlug('openrouter/pareto-code:nitro:thinking'), {
    name: 'pareto-code',
    variants: ':nitro:thinking',
  })
  t.match(routerSlug('nvidia/switchyard'), { name: 'nvidia/switchyard' })
  for (const model of ['auto', 'gateway/nvidia/switchyard', 'gateway/autos', 'acme/auto', 'gateway/', '']) {
    t.equal(routerSlug(model), null, model)
  }
  t.match(routerOf({ model: 'a/b', models: ['c/d', 'openrouter/free'] }), {
    name: 'free',
    slug: 'openrouter/free',
  })
  t.equal(routerOf({ models: ['a/b'] }), null)
  t.equal(withVariants('a/b:free', ':free:nitro'), 'a/b:free:nitro')
})

const model = (id: string, cost: number | null, share = 0) => ({ id, cost, share })

t.test('a band is taken over the models that are left, and the nearest replace an empty one', async t => {
  const five = [
    model('a', 1, 0.1),
    model('b', 2, 0.5),
    model('c', 3, 0.2),
    model('d', 4, 0.1),
    model('e', 5, 0.9),
  ]
  for (const [tier, first] of [
    ['low', 'a'],
    ['medium', 'b'],
    ['high', 'c'],
    ['xhigh', 'd'],
    ['max', 'e'],
  ] as const) {
    t.equal(orderByBand(five, TIER_BANDS[tier]).ids[0], first)
  }
  t.same(orderByBand(five, TIER_BANDS.low), { ids: ['a', 'b', 'c', 'd', 'e'], top: 1 })
  t.same(orderByBand(five, ceilingOf(0)), { ids: ['e', 'b', 'c', 'a', 'd'], top: 5 })
  const two = [model('cheap', 1), model('dear', 9), model('secret', null, 1)]
  t.same(orderByBand(two, TIER_BANDS.max), { ids: ['dear', 'cheap', 'secret'], top: 1 })
  t.same(orderByBand([model('x', null, 0.1), model('y', null, 0.2)], TIER_BANDS.low), {
    ids: ['y', 'x'],
    top: 2,
  })
  t.same(orderByBand([], TIER_BANDS.low), { ids: [], top: 0 })
  t.equal(ceilingOf(9).to, 18)
  t.equal(ceilingOf(10).to, 10)
})

const coder = (id: string, score: number, price: number, throughput: number | null = null) => ({
  id,
  score,
  price,
  throughput,
})

t.test('a tier has its cheapest first, or its fastest, and an empty one gives way', async t => {
  const models = [
    coder('best', 0.9, 9, 20),
    coder('good', 0.7, 3, 90),
    coder('fair', 0.4, 1),
    coder('weak', 0.1, 0.1),
  ]
  t.same(byTier(models, 'high', false), { tier: 'high', ids: ['good', 'best'] })
  t.same(byTier([coder('slow', 0.9, 1, 5), ...models], 'high', true).ids, ['good', 'best', 'slow'])
  t.same(byTier(models.slice(2), 'high', false), { tier: 'medium', ids: ['fair'] })
  t.same(
    byTier(
      [models[0], models[3]].flatMap(each => each ?? []),
      'medium',
      false,
    ).tier,
    'high',
  )
  t.same(byTier([], 'low', false), { tier: 'low', ids: [] })
  t.same(underPrice([...models, coder('waste', 0.3, 2)], 3), ['good', 'fair', 'weak', 'waste'])
  t.same(underPrice(models, 0.05), [])
})

t.test('results of tools decide when they are clear', async t => {
  const results = (...texts: string[]) => texts.map(text => ({ name: 'run', text }))
  t.equal(sideOf(results('Error: exit code 2', 'Error: exit code 2')), 'capable')
  t.equal(sideOf(results('24 passed, 0 failed')), 'efficient')
  t.equal(sideOf(results('The file has been updated', 'The file has been updated')), 'efficient')
  t.equal(sideOf(results('error: one thing')), null)
  t.equal(sideOf(['a', 'b', 'c'].map(text => ({ name: 'search_files', text }))), 'capable')
  t.equal(sideOf([]), null)
})

t.test('what routers read of a conversation', async t => {
  const request: ResponsesRequest = {
    instructions: 'Be brief',
    input: [
      { role: 'user', content: 'First' },
      { role: 'assistant', content: 'Yes' },
      { role: 'user', content: [{ type: 'input_text', text: 'Second' }] },
      { type: 'function_call', call_id: 'c', name: 'grep', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c', output: 'found' },
    ],
  }
  t.same(userWords(request), { first: 'First', latest: 'Second' })
  t.equal(instructionsOf(request), 'Be brief')
  t.equal(isToolTurn(request), true)
  t.same(recentResults(request), [{ name: 'grep', text: 'found' }])
  t.equal(userWords({ input: 'x'.repeat(100_000) }).latest.length, 4_000)
})

t.test('the body builder reads 8,000 characters of a wish', async t => {
  const deps = {} as Parameters<typeof createBodyBuilder>[0]
  const builder = createBodyBuilder(deps).activate(null, { model: 'gateway/bodybuilder', input: '' })
  for (const input of ['x'.repeat(100_000), [{ role: 'user', content: 'x'.repeat(100_000) }]] as const) {
    const prompt = await builder?.prepare?.({ prompt: { input } } as unknown as Exchange, async text => text)
    t.match(prompt, { input: [{ content: /^x{8000}$/ }] })
  }
})

t.test('answers of helpers are read strictly', async t => {
  t.equal(readTaskType(' {"task_type":"math"} '), 'math')
  for (const bad of [
    'math',
    '{}',
    '{"task_type":"maths"}',
    '{"task_type":"math"} ok',
    'null',
    '["math"]',
    '',
  ]) {
    t.equal(readTaskType(bad), null, bad)
  }
  const verdict = { crux: '', primary_rule: '', capability_boundary: 'uncertain', p_solve: 0.75 }
  t.equal(readVerdict(JSON.stringify(verdict)), 'efficient')
  t.equal(readVerdict(JSON.stringify({ ...verdict, p_solve: 0.74 })), 'capable')
  for (const bad of [{ p_solve: '1' }, { p_solve: -1 }, { capability_boundary: 'toString' }, { crux: 1 }]) {
    t.equal(readVerdict(JSON.stringify({ ...verdict, ...bad })), null)
  }
  t.ok(isRequests('{"requests":[{"model":"a/b","messages":[]}]}'))
  for (const bad of [
    '{"requests":[]}',
    '{"requests":[{"model":"a/b"}]}',
    '```json\n{}\n```',
    '{"a":1}',
    'x',
  ]) {
    t.notOk(isRequests(bad), bad)
  }
})

function faultsOf(text: string): string {
  try {
    readRankings(text)
  } catch (error) {
    if (error instanceof RankingsError) return error.message
    throw error
  }
  return ''
}

t.test('rankings are read with all their faults at once; the shipped file has none', async t => {
  const shipped = readRankings(readFileSync(join(ROUTERS, 'rankings.json'), 'utf8'))
  for (const type of TASK_TYPES) t.ok(shipped.task(type).shares.size > 10, type)
  t.ok(shipped.codingScore('openai/gpt-5') > 0.66)
  t.equal(shipped.overall('nobody/none'), 0)
  const bad = {
    tasks: { cooking: {}, math: { models: { 'a/b': 2 }, level: 'extreme', inputTokens: -1, speed: 1 } },
    coding: [],
    extra: 1,
  }
  const faults = faultsOf(JSON.stringify(bad))
  for (const part of [
    'extra: ',
    'tasks.cooking: ',
    'a/b: ',
    '.level: ',
    'inputTokens: ',
    'speed: ',
    'coding: ',
  ]) {
    t.ok(faults.includes(part), part)
  }
  t.equal(faultsOf('{'), 'expected JSON')
  t.equal(readRankings('{}').task('math').shares.size, 0)
})

t.test('the weights know the task of most of 500 prompts that they were not made from', async t => {
  const classify = createLinearClassifier()
  const prompts = labelledPrompts()
  t.equal(prompts.length, 500)
  const trained = new Set(
    readFileSync(join(import.meta.dirname, '../../../scripts/task-classifier/prompts.txt'), 'utf8').split(
      '\n',
    ),
  )
  const shared = prompts.filter(({ text }) => trained.has(text.replaceAll('\n', '\\n')))
  t.same(shared, [], 'no prompt is in both sets')
  const right = new Map<string, number>()
  for (const { type, text } of prompts) {
    if (classify({ text }) === type) right.set(type, (right.get(type) ?? 0) + 1)
  }
  const total = [...right.values()].reduce((sum, each) => sum + each, 0)
  t.comment(`accuracy: ${total}/${prompts.length}`)
  t.comment([...right].map(([type, count]) => `${type} ${count}`).join(', '))
  t.ok(total >= 400, 'four of five')
  for (const type of TASK_TYPES) t.ok((right.get(type) ?? 0) >= 8, `half of ${type}`)
})

t.test('hostile prompts have a type as well', async t => {
  const classify = createLinearClassifier()
  for (const text of [
    '',
    '\0',
    '\ud800',
    '('.repeat(100_000),
    'a_'.repeat(50_000),
    '*a'.repeat(50_000),
    '__proto__ constructor',
  ]) {
    t.ok(TASK_TYPES.includes(classify({ text })))
  }
})
