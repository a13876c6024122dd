/** Sentences of an explanation: over all combinations of its facts, no two of them contradict each other. */
import t from 'tap'
import { ENDPOINT_CHOICES } from '../../../src/base/metrics/table.ts'
import type { Explanation } from '../../../src/features/explanations/explanation.ts'
import { reasonsOf } from '../../../src/features/explanations/reasons.ts'

type Attempt = Explanation['attempts'][number]

const E = { provider: 'e', model: 'm' }
const F = { provider: 'f', model: 'm' }
const ATTEMPT: Attempt = {
  ...E,
  start_ms: 1,
  end_ms: 2,
  kind: 'first',
  turn: 0,
  status: 200,
  error: null,
  cause: null,
  outrun: false,
  cost: 0,
}

const NOTHING: Explanation = {
  source: 'whole',
  id: 'gen-1-x',
  parent: null,
  request_id: null,
  created_at: '2026-01-02T03:04:05.000Z',
  organization_id: null,
  workspace_id: null,
  key: null,
  key_hash: null,
  method: 'POST',
  route: '/responses',
  status: 200,
  outcome: 'completed',
  streamed: false,
  requested_model: 'm',
  model: 'm',
  provider: 'e',
  router: null,
  strategy: null,
  data_region: null,
  duration_ms: 5,
  first_token_ms: null,
  input_tokens: null,
  output_tokens: null,
  cost: null,
  finish: null,
  error: null,
  stages_ms: null,
  choice: null,
  rather: null,
  attempts: [],
  passed_over: [],
  not_reached: [],
  excluded: [],
  preferences: {},
  skipped_models: [],
  actions: [],
  tools: [],
  inner_calls: [],
  unkept_before: 0,
}

/** Everything that may be known of the endpoint E, each alone; a record may hold any set of them. */
const FACTS: readonly ((explanation: Explanation) => Explanation)[] = [
  was => ({ ...was, attempts: [...was.attempts, ATTEMPT] }),
  was => ({
    ...was,
    attempts: [...was.attempts, { ...ATTEMPT, status: 500, error: 'provider_unavailable' }],
  }),
  was => ({ ...was, attempts: [...was.attempts, { ...ATTEMPT, kind: 'hedge', outrun: true }] }),
  was => ({ ...was, attempts: [...was.attempts, { ...ATTEMPT, ...F }] }),
  was => ({ ...was, passed_over: [...was.passed_over, { ...E, state: 'breaker_open', wait_ms: 5 }] }),
  was => ({ ...was, passed_over: [...was.passed_over, { ...E, state: 'rate_limited', wait_ms: 5 }] }),
  was => ({ ...was, passed_over: [...was.passed_over, { ...F, state: 'breaker_open', wait_ms: 5 }] }),
  was => ({ ...was, not_reached: [...was.not_reached, { ...E, breaker_open: true }] }),
  was => ({ ...was, not_reached: [...was.not_reached, { ...E, breaker_open: false }] }),
  was => ({ ...was, not_reached: [...was.not_reached, { ...F, breaker_open: false }] }),
  was => ({ ...was, excluded: [...was.excluded, { ...E, by: 'max_price' }] }),
]

const CALLED = /^(?:Attempt \d+ (?:at|asked) e m|Hedged: e m|Answered by e with m)/
const UNCALLED = /^Not (?:called|reached) e m/
/** Pairs that cannot both be true of one endpoint. */
const CONTRADICTIONS: readonly (readonly [RegExp, RegExp])[] = [
  [CALLED, UNCALLED],
  [/^Not called e m/, /^Not reached e m/],
  [/^Left out e m/, CALLED],
  [/^Left out e m/, UNCALLED],
  [/^Left out e m/, /^Passed over e m/],
  [/^Left out e m/, /^First choice e m/],
  [/^First choice e m: .*tested whether it works/, UNCALLED],
  [/^First choice e m: .*healthy/, UNCALLED],
  [/^First choice e m/, /^Not reached e m: it came later/],
  [/^First choice e m: .*Otherwise it would have been e m/, /^/],
  [/No other endpoint was left/, /^Not reached/],
  [/^Refused before any model was called/, CALLED],
]

t.test('no two sentences about an endpoint contradict each other', async t => {
  const failed: Explanation = {
    ...NOTHING,
    outcome: 'failed',
    status: 503,
    error: {
      code: 'provider_overloaded',
      message: null,
      field: null,
      cause: null,
      limit: null,
      retry_after_seconds: null,
      excluded_by: [],
      guardrail_id: null,
    },
  }
  let combinations = 0
  const wrong = new Set<string>()
  for (const ended of [NOTHING, failed]) {
    for (let set = 0; set < 2 ** FACTS.length; set++) {
      const facts = withAnswerer(FACTS.reduce((was, fact, at) => ((set >> at) & 1 ? fact(was) : was), ended))
      if (ended === NOTHING && facts.attempts.every(({ error, outrun }) => error !== null || outrun)) continue
      for (const choice of [null, ...ENDPOINT_CHOICES]) {
        for (const first of [undefined, null, E, F]) {
          for (const rather of [null, E, F]) {
            combinations++
            // A first endpoint was a candidate.
            const isLeftOut = facts.excluded.length > 0 && !hasE(facts)
            if (first === E && isLeftOut) continue
            const told = reasonsOf({ ...facts, choice, rather, ...(first === undefined ? {} : { first }) })
            for (const [a, b] of CONTRADICTIONS) {
              const one = told.find(sentence => a.test(sentence))
              const other = told.find(sentence => sentence !== one && b.test(sentence))
              if (one !== undefined && other !== undefined) wrong.add(`${one} / ${other}`)
            }
          }
        }
      }
    }
  }
  t.same([...wrong], [])
  t.comment(`${combinations} combinations`)
})

/** The provider of the answer is that of the last attempt that answered. */
function withAnswerer(explanation: Explanation): Explanation {
  const last = explanation.attempts.findLast(({ error, outrun }) => error === null && !outrun)
  return { ...explanation, provider: last?.provider ?? null, model: last?.model ?? null }
}

function hasE({ attempts, passed_over: passed, not_reached: later }: Explanation): boolean {
  return [attempts, passed, later].flat().some(({ provider }) => provider === 'e')
}

t.test('with all breakers open, the first endpoint was not tested', async t => {
  const told = reasonsOf({
    ...NOTHING,
    choice: 'probe',
    first: E,
    passed_over: [
      { ...E, state: 'breaker_open', wait_ms: 618 },
      { ...F, state: 'breaker_open', wait_ms: 700 },
    ],
  })
  t.match(
    told.find(sentence => sentence.startsWith('First choice')),
    'First choice e m: it came first in the order, although its breaker was open.',
  )
  t.ok(told.includes('Not called e m: its breaker was open, for another 618 ms.'))
})
