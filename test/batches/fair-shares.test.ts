import fc from 'fast-check'
import t from 'tap'
import { CheckTurns, type Sharer, shareOut } from '../../src/batches/fair-shares.ts'
import { search } from '../support/property.ts'

const anyRoom = () => Number.POSITIVE_INFINITY

function sharer(id: string, fields: Partial<Sharer> = {}): Sharer {
  return { id, keyHash: 'k', lane: 'l', heldSlots: 0, maxSlots: 1_000, ...fields }
}

t.test('batches of one key get the same, whatever their size', async t => {
  const given = shareOut([sharer('large'), sharer('small', { maxSlots: 3 })], 20, anyRoom)
  t.same(Object.fromEntries(given), { large: 17, small: 3 })
  t.same(Object.fromEntries(shareOut([sharer('a'), sharer('b')], 5, anyRoom)), { a: 3, b: 2 })
})

t.test('keys get the same, however many batches each has', async t => {
  const many = Array.from({ length: 9 }, (_, at) => sharer(`many-${at}`, { keyHash: 'x' }))
  const given = shareOut([...many, sharer('one', { keyHash: 'y' })], 20, anyRoom)
  t.equal(given.get('one'), 10)
  t.equal(
    [...given.values()].reduce((sum, count) => sum + count, 0),
    20,
  )
})

t.test('what runs already counts: who has less gets the next places', async t => {
  const sharers = [
    sharer('old', { keyHash: 'x', heldSlots: 100 }),
    sharer('new', { keyHash: 'y' }),
    sharer('newer', { keyHash: 'y', heldSlots: 2 }),
  ]
  t.same(Object.fromEntries(shareOut(sharers, 8, anyRoom)), { new: 5, newer: 3 })
})

t.test('a full lane gives its places to others', async t => {
  const sharers = [
    sharer('a', { lane: 'full' }),
    sharer('b', { lane: 'narrow' }),
    sharer('c', { lane: 'wide' }),
  ]
  const rooms: Record<string, number> = { full: 0, narrow: 2, wide: 100 }
  t.same(Object.fromEntries(shareOut(sharers, 10, lane => rooms[lane] ?? 0)), { b: 2, c: 8 })
})

t.test(
  'shares never exceed what is free, what a lane has, or what a batch can use, and leave nothing unused',
  async t => {
    const anySharer = fc.record({
      keyHash: fc.constantFrom('k1', 'k2', 'k3'),
      lane: fc.constantFrom('l1', 'l2'),
      heldSlots: fc.nat(20),
      maxSlots: fc.nat(20),
    })
    const rooms = fc.record({ l1: fc.nat(30), l2: fc.nat(30) })
    const holds = fc.property(
      fc.array(anySharer, { maxLength: 12 }),
      fc.nat(60),
      rooms,
      (fields, free, roomOf) => {
        const sharers = fields.map((each, at) => ({ id: String(at), ...each }))
        const given = shareOut(sharers, free, lane => roomOf[lane as 'l1' | 'l2'])
        const inLane = (lane: string) =>
          sharers.filter(each => each.lane === lane).reduce((sum, { id }) => sum + (given.get(id) ?? 0), 0)
        const total = inLane('l1') + inLane('l2')
        const isFull = ({ id, maxSlots, lane }: Sharer) =>
          (given.get(id) ?? 0) === maxSlots || inLane(lane) === roomOf[lane as 'l1' | 'l2']
        return (
          total <= free &&
          inLane('l1') <= roomOf.l1 &&
          inLane('l2') <= roomOf.l2 &&
          sharers.every(({ id, maxSlots }) => (given.get(id) ?? 0) <= maxSlots) &&
          (total === free || sharers.every(isFull))
        )
      },
    )
    fc.assert(holds, search(300))
    t.pass()
  },
)

t.test('a key has one batch checked at a time, and keys take turns at it', async t => {
  const turns = new CheckTurns()
  const batch = (keyHash: string, id: string) => ({ record: { keyHash, id } })
  let open = [batch('x', 'x1'), batch('x', 'x2'), batch('y', 'y1'), batch('y', 'y2'), batch('z', 'z1')]
  const begun: string[] = []
  const look = () => {
    for (const each of turns.inTurn(open)) {
      if (!turns.enter(each.record.keyHash)) continue
      begun.push(each.record.id)
      open = open.filter(other => other !== each)
    }
  }
  look()
  t.same(begun, ['x1', 'y1'])
  turns.leave('x')
  look()
  t.same(begun, ['x1', 'y1', 'z1'], 'before the older batches of the two')
  turns.leave('y')
  turns.leave('z')
  look()
  t.same(begun, ['x1', 'y1', 'z1', 'x2', 'y2'])
})
