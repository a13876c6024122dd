/** What each key holds of a shared room: bounds, pressure, and the key that is refused first. */
import fc from 'fast-check'
import t from 'tap'
import { HeldShare } from '../../src/fairness/held-share.ts'

const KEYS = ['a', 'b', 'c', 'd', 'e'] as const

/** What happens in a room: somebody takes, adds, or gives back all or a part of what they hold. */
const event = fc.record({
  kind: fc.constantFrom('take', 'alone', 'add', 'give'),
  key: fc.constantFrom(...KEYS),
  amount: fc.integer({ min: 0, max: 60 }),
})

interface Room {
  readonly share: HeldShare
  readonly held: Map<string, number>
}

function run(room: Room, { kind, key, amount }: { kind: string; key: string; amount: number }): void {
  const { share, held } = room
  const before = held.get(key) ?? 0
  if (kind === 'give') {
    const given = Math.min(before, amount)
    share.give(key, given)
    held.set(key, before - given)
  } else if (kind === 'add') {
    share.add(key, amount)
    held.set(key, before + amount)
  } else if (share.take(key, amount, kind === 'alone') === 'taken') held.set(key, before + amount)
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
      for (const key of KEYS) if (share.held(key) !== (held.get(key) ?? 0)) return false
      return (
        share.used === sum(held.values()) &&
        share.keysAbove === [...held.values()].filter(amount => amount > 40).length &&
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
      for (const key of KEYS) {
        const mine = held.get(key) ?? 0
        if (share.used <= 75) {
          if (share.holdsMost(key)) return false
        } else if (mine === most) {
          if (!share.holdsMost(key)) return false
        } else if (share.holdsMost(key) && 2 * mine < most) return false
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
        for (const amount of amounts) if (share.take('greedy', amount) === 'room-full') return false
        return share.take('modest', mine) === 'taken'
      },
    ),
  )
})

t.test('one thing alone may be larger than a share, but not than the room', async t => {
  const share = new HeldShare({ total: 100, perKey: 25 })
  t.equal(share.take('a', 60), 'key-full')
  t.equal(share.take('a', 60, true), 'taken')
  t.equal(share.take('a', 1, true), 'key-full', 'it is not alone')
  t.equal(share.take('b', 60, true), 'room-full')
  t.equal(share.take('b', 25), 'taken')
})

t.test('the key that holds most is refused when the room fills up, others until it is full', async t => {
  const share = new HeldShare({ total: 16, perKey: 8 })
  t.equal(share.take('a', 7), 'taken')
  t.equal(share.take('b', 3), 'taken')
  t.notOk(share.holdsMost('a'), 'there is room')
  t.equal(share.take('c', 3), 'taken')
  t.ok(share.holdsMost('a'))
  t.notOk(share.holdsMost('b'))
  t.equal(share.take('a', 1), 'key-full')
  t.equal(share.take('b', 1), 'taken')
  t.equal(share.take('d', 2), 'taken')
  t.equal(share.take('e', 1), 'room-full')
  share.give('a', 4)
  t.equal(share.take('a', 1), 'taken', 'another key holds most now')
})

t.test('what is held already counts whatever the limits say, and the next request is refused', async t => {
  const share = new HeldShare({ total: 100, perKey: 25 })
  t.equal(share.take('a', 0), 'taken')
  share.add('a', 90)
  t.equal(share.take('a', 0), 'key-full')
  t.equal(share.take('b', 0), 'taken')
  share.give('a', 80)
  t.equal(share.take('a', 0), 'taken')
})
