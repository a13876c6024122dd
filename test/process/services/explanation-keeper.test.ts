/** The keeper of explanations: batches, a store that is away, and what is removed. */
import t from 'tap'
import { ExplanationKeeper } from '../../../src/process/services/explanation-keeper.ts'
import type { NewExplanation } from '../../../src/storage/ledger.ts'
import { TestClock } from '../../support/test-clock.ts'

const some = (id: string): NewExplanation => ({
  id,
  organizationId: 'o',
  requestId: null,
  createdAt: '2026-01-02T03:04:05.000Z',
  isPlain: false,
  document: '{}',
})
const turns = async () => {
  for (let n = 0; n < 20; n++) await new Promise(resolve => setImmediate(resolve))
}

function setUp() {
  const clock = new TestClock()
  const added: string[][] = []
  const pruned: string[] = []
  const faults: string[] = []
  let isAway = false
  const keeper = new ExplanationKeeper({
    clock,
    log: { fault: (_, message) => void faults.push(message), notice: () => undefined },
    store: {
      explanations: {
        async add(explanations) {
          if (isAway) throw new Error('away')
          added.push(explanations.map(({ id }) => id))
        },
        async prune(before) {
          pruned.push(before)
          return 0
        },
        pruneBeyond: async () => 0,
      },
    },
  })
  return {
    clock,
    keeper,
    added,
    pruned,
    faults,
    away(away: boolean) {
      isAway = away
    },
  }
}

t.test('what threads bring is written together', async t => {
  const { clock, keeper, added } = setUp()
  keeper.add([some('a')])
  keeper.add([some('b')])
  t.same(added, [])
  clock.advance(500)
  await turns()
  t.same(added, [['a', 'b']])
  keeper.add([some('c')])
  await keeper.close()
  t.same(added, [['a', 'b'], ['c']], 'at the end too')
  t.equal(clock.armed, 0)
})

t.test('a store that is away is tried again, and the oldest ones are dropped', async t => {
  const { clock, keeper, added, faults, away } = setUp()
  away(true)
  keeper.add(Array.from({ length: 2_100 }, (_, n) => some(`e${n}`)))
  clock.advance(500)
  await turns()
  clock.advance(5_000)
  await turns()
  t.same(faults, ['cannot store explanations of requests'], 'told once')
  away(false)
  clock.advance(5_000)
  await turns()
  const all = added.flat()
  t.same([all.length, all[0], all.at(-1)], [2_000, 'e100', 'e2099'])
  t.ok(added.every(batch => batch.length <= 200))
  await keeper.close()
})

t.test('those of more than a day are removed each minute', async t => {
  const { clock, keeper, pruned } = setUp()
  clock.advance(60_000)
  await turns()
  t.same(pruned, ['2026-01-01T03:05:05.000Z'])
  clock.advance(60_000)
  await turns()
  t.equal(pruned.length, 2)
  await keeper.close()
  t.equal(clock.armed, 0)
})
