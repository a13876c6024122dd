/** How many batches of one key arrive at once, and which idempotency keys they hold. */
import t from 'tap'
import { AcceptanceSlots } from '../../src/batches/acceptance-slots.ts'

const ONE = 'a'.repeat(64)
const OTHER = 'b'.repeat(64)

t.test('a key has four places, and others have their own', async t => {
  const places = new AcceptanceSlots()
  const leaves = Array.from({ length: 4 }, () => places.enter(ONE, null))
  t.throws(() => places.enter(ONE, null), { code: 'rate_limit_exceeded', retryAfterSeconds: 1 })
  const other = places.enter(OTHER, null)
  leaves[0]?.()
  const again = places.enter(ONE, null)
  t.throws(() => places.enter(ONE, null), { code: 'rate_limit_exceeded' })
  for (const leave of [...leaves.slice(1), again, other]) leave()
  for (let count = 0; count < 4; count++) places.enter(ONE, null)
})

t.test('an idempotency key is held once by its API key, until the place is given back', async t => {
  const places = new AcceptanceSlots()
  const leave = places.enter(ONE, 'k')
  t.throws(() => places.enter(ONE, 'k'), { code: 'conflict', retryAfterSeconds: 1 })
  places.enter(OTHER, 'k')
  places.enter(ONE, 'K')
  leave()
  places.enter(ONE, 'k')()
})

t.test('no idempotency key is not the key null', async t => {
  const places = new AcceptanceSlots()
  const leave = places.enter(ONE, null)
  const held = places.enter(ONE, 'null')
  leave()
  t.throws(() => places.enter(ONE, 'null'), { code: 'conflict' })
  held()
})
