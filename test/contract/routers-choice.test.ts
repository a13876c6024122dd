/**
 * The choices of routers over real HTTP, compared with the documented rules: 60 models, 500 prompts. The rules are
 * written a second time in support/router-oracle.ts.
 */
import t from 'tap'
import {
  autoBand,
  bandOrder,
  globMatches,
  jevBand,
  jevLevel,
  type OracleModel,
  paretoChoice,
} from '../support/router-oracle.ts'
import { askRouter, createNumbers, labelledPrompts, startRouterWorld } from '../support/router-world.ts'

const PATTERNS: readonly { allowed_models?: string[]; excluded_models?: string[] }[] = [
  {},
  { allowed_models: ['ash/*', '*/model-1*', 'oak/model-5'] },
  { excluded_models: ['*-2*', 'elm/*'] },
  { allowed_models: ['*i*r*/*'], excluded_models: ['*/model-*3'] },
  { allowed_models: ['birch/model-1'] },
]
const COSTS: readonly { cost_tier?: string; cost_quality_tradeoff?: number }[] = [
  {},
  ...['low', 'medium', 'high', 'xhigh', 'max'].map(cost_tier => ({ cost_tier })),
  ...[0, 3, 5, 9, 10].map(cost_quality_tradeoff => ({ cost_quality_tradeoff })),
  { cost_tier: 'high', cost_quality_tradeoff: 0 },
]

function wanted(
  models: readonly OracleModel[],
  { allowed_models: allowed, excluded_models: excluded = [] }: (typeof PATTERNS)[number],
) {
  return models.filter(
    ({ id }) =>
      (allowed?.some(pattern => globMatches(pattern, id)) ?? true) &&
      !excluded.some(pattern => globMatches(pattern, id)),
  )
}

t.test('auto routers choose by the documented rule, for 500 prompts', async t => {
  const world = await startRouterWorld(t)
  const prompts = labelledPrompts()
  let equal = 0
  for (const [at, { text }] of prompts.entries()) {
    const id = at % 2 === 0 ? 'auto-router' : 'auto-beta-router'
    const patterns = PATTERNS[at % PATTERNS.length] ?? {}
    const costs = COSTS[at % COSTS.length] ?? {}
    const slug = at % 2 === 0 ? 'gateway/auto' : 'openrouter/auto-beta'
    const { status, body, data, named } = await askRouter(world, {
      model: slug,
      input: text,
      plugins: [{ id, ...patterns, ...costs }],
    })
    const task = world.tasks[String(data['task_type'])]
    if (task === undefined) throw new Error(`${status}: no type of task`)
    const left = wanted(world.models, patterns)
    const pool = patterns.allowed_models === undefined ? left.filter(each => each.id in task.models) : left
    const expected = bandOrder(pool, pool, task, autoBand(costs)).slice(0, 8)
    const isEqual = JSON.stringify(named) === JSON.stringify(expected) && body.model === expected[0]
    if (isEqual) equal++
    else t.same(named, expected, `${text}: ${JSON.stringify({ ...patterns, ...costs })}`)
    if (body.gateway_metadata?.strategy !== 'auto') t.fail('the strategy is auto')
  }
  t.comment(`auto: ${equal}/${prompts.length}`)
  t.equal(equal, 500)
})

t.test('the Pareto router chooses by the documented rule', async t => {
  const world = await startRouterWorld(t)
  const next = createNumbers(5)
  const scored = world.models.filter(({ coding }) => coding > 0)
  let equal = 0
  const settings = Array.from({ length: 120 }, (_, at) => ({
    ...(at % 3 === 0
      ? {}
      : at % 3 === 1
        ? { min_coding_score: Math.round(next() * 100) / 100 }
        : { max_price: 0.2 + next() * 4 }),
    ...(at % 4 === 0 ? {} : { price_source: at % 4 === 1 ? 'prompt' : 'weighted_avg' }),
  }))
  for (const each of settings) {
    const { status, body, named } = await askRouter(world, {
      model: 'gateway/pareto-code',
      plugins: [{ id: 'pareto-router', ...each }],
    })
    const expected = paretoChoice(scored, each)
    if (expected.length === 0) {
      if (status === 404) equal++
      else t.equal(status, 404)
      continue
    }
    const isEqual = JSON.stringify(named) === JSON.stringify(expected) && body.model === expected[0]
    if (isEqual) equal++
    else t.same(named, expected, JSON.stringify(each))
  }
  t.comment(`pareto: ${equal}/${settings.length}`)
  t.equal(equal, settings.length)
})

t.test('the Jev router chooses by the documented rule', async t => {
  const world = await startRouterWorld(t)
  const prompts = labelledPrompts().filter((_, at) => at % 4 === 0)
  const ranked = new Set(Object.values(world.tasks).flatMap(({ models }) => Object.keys(models)))
  const all = world.models.filter(({ id, coding }) => ranked.has(id) || coding > 0)
  const tiers = [undefined, 'low', 'medium', 'high']
  const efforts = [undefined, 'low', 'medium', 'high', 'minimal']
  let equal = 0
  for (const [at, { text }] of prompts.entries()) {
    const tier = tiers[at % tiers.length]
    const effort = efforts[at % efforts.length]
    const lists =
      [{}, { models: ['ash/*'], allowed_models: ['fir/*'] }, { excluded_models: ['cedar/*'] }][at % 3] ?? {}
    const { data } = await askRouter(world, {
      model: 'typesafe/jev-router',
      input: text,
      plugins: [{ id: 'jev-router', ...(tier === undefined ? {} : { cost_tier: tier }), ...lists }],
      ...(effort === undefined ? {} : { reasoning: { effort } }),
    })
    const task = world.tasks[String(data['task_type'])]
    if (task === undefined) throw new Error('no type of task')
    const excluded = at % 3 === 2 ? ['cedar/*'] : []
    const left = wanted(all, { excluded_models: excluded })
    const pool = at % 3 === 1 ? wanted(left, { allowed_models: ['ash/*', 'fir/*'] }) : left
    const band = jevBand(jevLevel(task, tier, effort))
    const expected = bandOrder(pool, left, task, band).slice(0, 8)
    if (JSON.stringify(data['resolved_models']) === JSON.stringify(expected)) equal++
    else t.same(data['resolved_models'], expected, text)
  }
  t.comment(`jev: ${equal}/${prompts.length}`)
  t.equal(equal, prompts.length)
})

t.test('the free router draws among the models that cost nothing', async t => {
  let drawn = 0
  const world = await startRouterWorld(t, { draw: () => drawn })
  const free = world.models.filter(({ prompt }) => prompt === 0).map(({ id }) => id)
  let equal = 0
  const draws = Array.from({ length: 24 }, (_, at) => at / 24)
  for (const each of draws) {
    drawn = each
    const { body, named } = await askRouter(world, { model: 'openrouter/free' })
    const left = [...free]
    const expected: string[] = []
    while (left.length > 0) expected.push(...left.splice(Math.floor(each * left.length), 1))
    const isEqual = JSON.stringify(named) === JSON.stringify(expected.slice(0, 8).map(id => `${id}:free`))
    if (isEqual && body.model === expected[0] && body.usage?.cost === 0) equal++
    else t.same(named, expected)
    t.match(body.gateway_metadata, { strategy: 'free', requested: 'openrouter/free' })
  }
  t.comment(`free: ${equal}/${draws.length}`)
  t.equal(equal, draws.length)
})

t.test('switchyard chooses by the documented rule', async t => {
  let drawn = 0
  const world = await startRouterWorld(t, { draw: () => drawn })
  const priced = world.models.filter(({ prompt }) => prompt !== null)
  const price = ({ prompt, completion }: OracleModel): number =>
    Math.round((prompt ?? 0) * 1e12) + Math.round((completion ?? 0) * 1e12)
  const next = createNumbers(3)
  const algorithms = ['passthrough', 'auto', 'random', 'capability', 'stage', 'composite', undefined]
  let equal = 0
  const rounds = 140
  for (let round = 0; round < rounds; round++) {
    const asked = Array.from(
      { length: 1 + (round % 3) },
      () => priced[Math.floor(next() * priced.length)] as OracleModel,
    )
    const unique = [...new Set(asked)]
    const algorithm = algorithms[round % algorithms.length]
    drawn = next()
    const { body, data, named } = await askRouter(world, {
      model: 'nvidia/switchyard',
      models: asked.map(({ id }) => id),
      ...(algorithm === undefined ? {} : { plugins: [{ id: 'switchyard-router', algorithm }] }),
    })
    const sorted = unique.toSorted((a, b) => price(a) - price(b))
    const isDegraded = price(sorted[0] as OracleModel) === price(sorted.at(-1) as OracleModel)
    // Without a judge every doubt is for the capable model.
    const isEfficient = algorithm === 'auto' || (algorithm === 'random' && drawn < 0.5)
    const expected =
      isDegraded || algorithm === 'passthrough' ? unique : isEfficient ? sorted : sorted.toReversed()
    const ids = expected.map(({ id }) => id)
    const strategy = isDegraded ? 'caller_order' : (algorithm ?? 'stage')
    const isEqual = JSON.stringify(named) === JSON.stringify(ids) && data['strategy'] === strategy
    if (isEqual && body.model === ids[0]) equal++
    else t.same([named, data['strategy']], [ids, strategy])
  }
  t.comment(`switchyard: ${equal}/${rounds}`)
  t.equal(equal, rounds)
})
