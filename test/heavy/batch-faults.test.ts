/** Faults of the store at every call in the life of a batch. */
import t from 'tap'
import { faultPoints, isChargedOnce } from '../batches/batch-faults.ts'

t.setTimeout(1_800_000)

/** All verbs of a life. */
const VERBS = [
  'checked',
  'claimBatch',
  'claimLines',
  'counts',
  'finish',
  'giveBack',
  'move',
  'nextLineAt',
  'open',
  'unchecked',
]

t.test('every call of the store in the life of a batch may fail, alone or with others', async t => {
  const totals = await faultPoints(t, 1)
  t.comment(`${totals.points} points`)
  t.same(totals.broken, [])
  t.ok(totals.points >= 150)
  for (const verb of VERBS) t.ok(totals.verbs.has(`batches.work.${verb}`), verb)
  t.ok(await isChargedOnce(totals))
})
