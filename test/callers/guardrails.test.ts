import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { budgetsOf, Guardrails, type GuardrailsOptions } from '../../src/callers/guardrails.ts'
import { type AppliedGuardrail, defaultGuardrail } from '../../src/storage/guardrails.ts'
import { TestClock } from '../support/test-clock.ts'

/** What the pipeline would work with: here the names of what applies. */
interface Prepared {
  readonly names: string
}

const CREATED = '2026-01-01T00:00:00.000Z'

function applied(name: string, revision = 1): AppliedGuardrail {
  const guardrail = defaultGuardrail({ organizationId: 'o', id: name, createdAt: CREATED })
  return { scope: 'workspace', guardrail: { ...guardrail, name: `${name}${revision}`, revision } }
}

const callerOf = (keyHash: string, organizationId = 'o') => ({
  keyHash,
  organizationId,
  workspaceId: null,
  memberId: 'm',
})

function setup(settings: Partial<GuardrailsOptions<Prepared>> = {}) {
  const clock = new TestClock()
  const log: string[] = []
  const asked: string[] = []
  const prepared: string[] = []
  const state = {
    store: 'works' as 'works' | 'fails' | 'hangs',
    applied: [applied('a')] as readonly AppliedGuardrail[],
  }
  const guardrails = new Guardrails<Prepared>({
    store: {
      guardrails: {
        async guardrailsFor(...of) {
          asked.push(of.join('/'))
          if (state.store === 'fails') throw new Error('database is away: secret-detail')
          if (state.store === 'hangs') return new Promise<never>(() => undefined)
          return state.applied
        },
      },
    },
    clock,
    log: { fault: (_, message) => log.push(message), notice: (_, message) => log.push(message) },
    prepare(applied) {
      const names = applied.map(({ guardrail }) => guardrail.name).join('+')
      prepared.push(names)
      return names === 'empty1' ? null : { names }
    },
    ...settings,
  })
  return { guardrails, clock, log, asked, prepared, state }
}

/** What holds, `at once` when no promise was needed; or the code of the refusal. */
async function names(answer: Prepared | null | Promise<Prepared | null>): Promise<string> {
  try {
    return `${answer instanceof Promise ? '' : 'at once: '}${(await answer)?.names ?? 'nothing'}`
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error
    return error.code
  }
}

t.test('the store is asked once, however many wait; then it is known at once', async t => {
  const { guardrails, asked } = setup()
  t.same(await Promise.all([1, 2, 3].map(() => names(guardrails.of(callerOf('k'))))), ['a1', 'a1', 'a1'])
  t.equal(await names(guardrails.of(callerOf('k'))), 'at once: a1')
  t.same(asked, ['o/ws_default/k/m'])
})

t.test('a caller whom nothing guards costs one lookup', async t => {
  const { guardrails, asked, prepared, state } = setup()
  state.applied = []
  t.equal(await names(guardrails.of(callerOf('k'))), 'nothing')
  t.equal(await names(guardrails.of(callerOf('k'))), 'at once: nothing')
  state.applied = [applied('empty')]
  t.equal(await names(guardrails.of(callerOf('l'))), 'nothing')
  t.equal(await names(guardrails.of(callerOf('l'))), 'at once: nothing')
  t.same([asked.length, prepared], [2, ['empty1']])
})

t.test('what holds for many callers is prepared once, and anew after a change', async t => {
  const { guardrails, prepared, clock, state } = setup({ freshMs: 1000 })
  const first = await guardrails.of(callerOf('k'))
  t.equal(await guardrails.of(callerOf('l')), first)
  clock.advance(1000)
  t.equal(await guardrails.of(callerOf('k')), first, 'read anew and found the same')
  t.same(prepared, ['a1'])
  state.applied = [applied('a', 2), applied('b')]
  clock.advance(1000)
  t.equal(await names(guardrails.of(callerOf('k'))), 'a2+b1')
})

t.test('a change is seen when what is known is no longer fresh, or at once after word of it', async t => {
  const { guardrails, clock, state } = setup({ freshMs: 1000 })
  t.equal(await names(guardrails.of(callerOf('k'))), 'a1')
  state.applied = [applied('b')]
  clock.advance(999)
  t.equal(await names(guardrails.of(callerOf('k'))), 'at once: a1')
  guardrails.invalidate('other')
  t.equal(await names(guardrails.of(callerOf('k'))), 'at once: a1')
  clock.advance(1)
  t.equal(await names(guardrails.of(callerOf('k'))), 'b1')
  await Promise.all(['l', 'm', 'n'].map(key => guardrails.of(callerOf(key))))
  state.applied = [applied('c')]
  guardrails.invalidate('o')
  const all = ['k', 'l', 'm', 'n'].map(key => names(guardrails.of(callerOf(key))))
  t.same(await Promise.all(all), ['c1', 'c1', 'c1', 'c1'])
})

t.test('budgets are known with what holds, and asked for again after word of a change', async t => {
  const { guardrails, state, asked } = setup()
  const caller = callerOf('k')
  const [plain] = state.applied
  if (plain === undefined) return
  const guardrail = { ...plain.guardrail, limit: 5, resetInterval: 'daily' as const, revision: 2 }
  await guardrails.of(caller)
  t.equal(guardrails.budgets(caller), null, 'at once')
  t.equal(asked.length, 1)
  state.applied = [{ ...plain, guardrail }]
  guardrails.invalidate('o')
  const [first, second] = [guardrails.budgets(caller), guardrails.budgets(caller)]
  t.match(await first, [{ guardrailId: guardrail.id, amount: 5, reset: 'daily' }])
  t.match(await second, [{ amount: 5 }])
  t.equal(asked.length, 2, 'the store is asked once, however many wait')
  t.match(guardrails.budgets(caller), [{ amount: 5 }])
  state.store = 'fails'
  await t.rejects(Promise.resolve(guardrails.budgets(callerOf('unknown'))), { code: 'store_unavailable' })
})

t.test('what was read before a change is not kept after word of it', async t => {
  const { guardrails, asked, state } = setup()
  const early = names(guardrails.of(callerOf('k')))
  guardrails.invalidate('o')
  state.applied = [applied('b')]
  t.equal(await names(guardrails.of(callerOf('k'))), 'b1')
  await early
  t.equal(await names(guardrails.of(callerOf('k'))), 'at once: b1')
  t.equal(asked.length, 2)
})

t.test('while the store is away, known callers go on as they were and unknown ones are refused', async t => {
  const { guardrails, clock, log, state } = setup({ freshMs: 1000, staleMs: 60_000 })
  await guardrails.of(callerOf('k'))
  state.store = 'fails'
  clock.advance(1000)
  t.equal(await names(guardrails.of(callerOf('k'))), 'a1')
  t.equal(
    await names(guardrails.of(callerOf('k'))),
    'at once: a1',
    'and are not asked for with every request',
  )
  t.equal(await names(guardrails.of(callerOf('new'))), 'store_unavailable', 'a guardrail may forbid it')
  t.same(log, ['cannot read guardrails from the store'])
  clock.advance(60_000)
  t.equal(await names(guardrails.of(callerOf('k'))), 'store_unavailable', 'not for ever')
  state.store = 'works'
  t.equal(await names(guardrails.of(callerOf('k'))), 'a1')
  t.equal(log.at(-1), 'guardrails can be read from the store again')
})

t.test(
  'where word may have been missed, everything is read anew, and holds on if the store is away',
  async t => {
    const { guardrails, state } = setup()
    await guardrails.of(callerOf('k'))
    state.applied = [applied('b')]
    guardrails.invalidateAll()
    t.equal(await names(guardrails.of(callerOf('k'))), 'b1')
    guardrails.invalidateAll()
    state.store = 'fails'
    t.equal(await names(guardrails.of(callerOf('k'))), 'b1')
  },
)

t.test('a store that hangs counts as away, and only so many wait for it', async t => {
  const { guardrails, clock, state } = setup({ lookupMs: 500, maxLookups: 1 })
  state.store = 'hangs'
  const waiting = names(guardrails.of(callerOf('k')))
  t.equal(await names(guardrails.of(callerOf('l'))), 'store_unavailable')
  clock.advance(500)
  t.equal(await waiting, 'store_unavailable')
  t.equal(clock.armed, 0)
})

t.test('the budgets of what applies are in order, the smallest first', async t => {
  const guardrail = defaultGuardrail({ organizationId: 'o', id: 'w', createdAt: '2026-01-01T00:00:00.000Z' })
  const large = { ...guardrail, limit: 5, resetInterval: 'weekly' as const }
  const small = { ...guardrail, limit: 3, resetInterval: 'monthly' as const, includeByokInBudgets: true }
  t.equal(budgetsOf([{ scope: 'workspace', guardrail }]), null)
  t.same(
    budgetsOf([
      { scope: 'workspace', guardrail: large },
      { scope: 'member', guardrail },
      { scope: 'api-key', guardrail: small },
    ])?.map(({ amount, scope, reset, includeByok }) => [amount, scope, reset, includeByok]),
    [
      [3, 'api-key', 'monthly', true],
      [5, 'workspace', 'weekly', false],
    ],
  )
})

t.test('a changed guardrail is prepared anew, for everybody whom it guards', async t => {
  const { guardrails, prepared, state } = setup()
  t.equal(await names(guardrails.of(callerOf('k'))), 'a1')
  state.applied = [applied('a', 2)]
  guardrails.invalidate('o')
  t.equal(await names(guardrails.of(callerOf('k'))), 'a2')
  t.equal(await names(guardrails.of(callerOf('l'))), 'a2')
  t.same(prepared, ['a1', 'a2'])
})
