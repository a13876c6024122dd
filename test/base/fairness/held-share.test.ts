/** What each key holds of a shared room: bounds, pressure, and the key that is refused first. */
import fc from 'fast-check'
import t from 'tap'
import { HeldShare, type Holder } from '../../../src/base/fairness/held-share.ts'

const KEYS = ['a', 'b', 'c', 'd', 'e'] as const

/** A key of an organization; of the only one unless told otherwise. */
const key = (hash: string, organizationId = 'one'): Holder => ({ hash, organizationId })

/** What happens in a room: somebody takes, adds, or gives back all or a part of what they hold. */
const event = fc.record({
  kind: fc.constantFrom('take', 'alone', 'add', 'give'),
  key: fc.constantFrom(...KEYS),
  amount: fc.integer({ min: 0, max: 60 }),
})

interface Room {
  readonly share: HeldShare
  readonly held: Map<string, number>
  /** Absent: all keys are of one. */
  readonly organizationOf?: (hash: string) => string
}

function run(room: Room, { kind, key: hash, amount }: { kind: string; key: string; amount: number }): void {
  const { share, held, organizationOf } = room
  const holder = key(hash, organizationOf?.(hash))
  const before = held.get(hash) ?? 0
  if (kind === 'give') {
    const given = Math.min(before, amount)
    share.release(holder, given)
    held.set(hash, before - given)
  } else if (kind === 'add') {
    share.add(holder, amount)
    held.set(hash, before + amount)
  } else if (share.reserve(holder, amount, kind === 'alone') === 'taken') held.set(hash, before + amount)
}

function sum(amounts: Iterable<number>): number {
  return [...amounts].reduce((total, amount) => total + amount, 0)
}

t.test('a room knows what each key holds, and forgets keys that hold nothing', async () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), events => {
      const room: Room = { share: new HeldShare({ total: 100, perKey: 40 }), held: new Map() }
      for (const each of events) run(room, each)
      const { share, held } = room
      for (const hash of KEYS) if (share.amountOf(key(hash)) !== (held.get(hash) ?? 0)) return false
      return (
        share.used === sum(held.values()) &&
        share.above === [...held.values()].filter(amount => amount > 40).length &&
        share.keys === [...held.values()].filter(amount => amount > 0).length
      )
    }),
  )
})

t.test('what is only taken never exceeds the room, nor a share but for one thing alone', async () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), events => {
      const room: Room = { share: new HeldShare({ total: 100, perKey: 40 }), held: new Map() }
      for (const each of events) {
        const before = room.held.get(each.key) ?? 0
        run(room, each.kind === 'add' ? { ...each, kind: 'take' } : each)
        const after = room.held.get(each.key) ?? 0
        if (after > before && after > 40 && !(each.kind === 'alone' && before === 0)) return false
        if (room.share.used > 100) return false
      }
      return true
    }),
  )
})

t.test('where the room fills up, a key that holds most has no one above twice its amount', async () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), events => {
      const room: Room = { share: new HeldShare({ total: 100, perKey: 60 }), held: new Map() }
      for (const each of events) run(room, each)
      const { share, held } = room
      const most = Math.max(0, ...held.values())
      for (const hash of KEYS) {
        const mine = held.get(hash) ?? 0
        if (share.used <= 75) {
          if (share.holdsMost(key(hash))) return false
        } else if (mine === most) {
          if (!share.holdsMost(key(hash))) return false
        } else if (share.holdsMost(key(hash)) && 2 * mine < most) return false
      }
      return true
    }),
  )
})

t.test('nobody else is told that the room is full while a key is above its share', async () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 25 }),
      fc.array(fc.integer({ min: 0, max: 200 }), { maxLength: 20 }),
      (mine, amounts) => {
        const share = new HeldShare({ total: 100, perKey: 25 })
        for (const amount of amounts) if (share.reserve(key('greedy'), amount) === 'room-full') return false
        return share.reserve(key('modest'), mine) === 'taken'
      },
    ),
  )
})

t.test('one thing alone may be larger than a share, but not than the room', async t => {
  const share = new HeldShare({ total: 100, perKey: 25 })
  t.equal(share.reserve(key('a'), 60), 'key-full')
  t.equal(share.reserve(key('a'), 60, true), 'taken')
  t.equal(share.reserve(key('a'), 1, true), 'key-full', 'it is not alone')
  t.equal(share.reserve(key('b'), 60, true), 'room-full')
  t.equal(share.reserve(key('b'), 25), 'taken')
})

t.test('the key that holds most is refused when the room fills up, others until it is full', async t => {
  const share = new HeldShare({ total: 16, perKey: 8 })
  t.equal(share.reserve(key('a'), 7), 'taken')
  t.equal(share.reserve(key('b'), 3), 'taken')
  t.notOk(share.holdsMost(key('a')), 'there is room')
  t.equal(share.reserve(key('c'), 3), 'taken')
  t.ok(share.holdsMost(key('a')))
  t.notOk(share.holdsMost(key('b')))
  t.equal(share.reserve(key('a'), 1), 'key-full')
  t.equal(share.reserve(key('b'), 1), 'taken')
  t.equal(share.reserve(key('d'), 2), 'taken')
  t.equal(share.reserve(key('e'), 1), 'room-full')
  share.release(key('a'), 4)
  t.equal(share.reserve(key('a'), 1), 'taken', 'another key holds most now')
})

t.test('what is held already counts whatever the limits say, and the next request is refused', async t => {
  const share = new HeldShare({ total: 100, perKey: 25 })
  t.equal(share.reserve(key('a'), 0), 'taken')
  share.add(key('a'), 90)
  t.equal(share.reserve(key('a'), 0), 'key-full')
  t.equal(share.reserve(key('b'), 0), 'taken')
  share.release(key('a'), 80)
  t.equal(share.reserve(key('a'), 0), 'taken')
})

/** Two organizations: one with the keys a and b, and another with the others. */
const organizationOf = (hash: string): string => (hash < 'c' ? 'one' : 'other')

t.test(
  'of several organizations only the largest gives way: its largest keys, then all of them',
  async () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 60 }), events => {
        const share = new HeldShare({ total: 100, perKey: 40 })
        const room: Room = { share, held: new Map(), organizationOf }
        for (const each of events) run(room, each)
        const amounts = new Map<string, number>()
        for (const [hash, amount] of room.held)
          if (amount > 0) amounts.set(organizationOf(hash), (amounts.get(organizationOf(hash)) ?? 0) + amount)
        const isOneOfSeveral = amounts.size > 1
        const counted = [...room.held.values(), ...(isOneOfSeveral ? amounts.values() : [])]
        if (share.above !== counted.filter(amount => amount > 40).length) return false
        const most = Math.max(0, ...amounts.values())
        return KEYS.every(hash => {
          const holder = key(hash, organizationOf(hash))
          const mine = amounts.get(organizationOf(hash)) ?? 0
          const isLargest = share.isLargest(holder)
          if (!isOneOfSeveral)
            return [false, true].every(tight => share.givesWay(holder, tight) === isLargest)
          const [early, late] = [share.givesWay(holder, false), share.givesWay(holder, true)]
          if (!late) return !early && mine < most
          return 2 * mine >= most && early === isLargest
        })
      }),
    )
  },
)

t.test('an organization of many keys is refused when little room is left, and others are not', async t => {
  const share = new HeldShare({ total: 100, perKey: 25 })
  const small = (at: number): Holder => key(`small ${at}`, 'many')
  for (let at = 0; at < 80; at++) share.add(small(at), 1)
  t.equal(share.reserve(key('a', 'few'), 2), 'taken', 'though no key holds more')
  t.equal(share.reserve(small(80), 1), 'taken', 'a key with nothing')
  t.equal(share.reserve(key('a', 'few'), 6), 'taken')
  t.equal(share.reserve(small(81), 1), 'organization-full')
  t.equal(share.reserve(small(0), 1), 'organization-full')
  t.equal(share.reserve(key('a', 'few'), 8), 'taken', 'the rest is for the others')
  t.equal(share.reserve(key('b', 'few'), 5), 'room-full')
  share.release(key('a', 'few'), 16)
  t.equal(share.reserve(small(82), 1), 'taken', 'it is alone again')
})

t.test('a key that holds most of a large organization is refused before the other keys of it', async t => {
  const share = new HeldShare({ total: 100, perKey: 60 })
  share.add(key('flood', 'many'), 50)
  for (let at = 0; at < 25; at++) share.add(key(`small ${at}`, 'many'), 1)
  t.equal(share.reserve(key('a', 'few'), 1), 'taken')
  t.equal(share.reserve(key('flood', 'many'), 1), 'key-full')
  t.equal(share.reserve(key('small 0', 'many'), 1), 'taken')
  t.equal(share.reserve(key('new', 'many'), 1), 'taken')
})
