/** Places of engines are shared: no customer can take all. */
import t from 'tap'
import { EnginePlaces } from '../../src/tools/web/engine-places.ts'

function fill(places: EnginePlaces, organization: string): number {
  let taken = 0
  while (places.take(organization)) taken++
  return taken
}

t.test('one customer gets half, and everybody who comes finds a place', t => {
  const places = new EnginePlaces(64)
  t.same(
    ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map(each => fill(places, each)),
    [32, 16, 8, 4, 2, 1, 1],
  )
  t.equal(places.take('h'), false, 'all are taken')
  t.end()
})

t.test('customers that come together get alike', t => {
  const places = new EnginePlaces(64)
  const held = new Map([
    ['a', 0],
    ['b', 0],
    ['c', 0],
  ])
  for (let more = true; more; ) {
    more = false
    for (const [name, count] of held) {
      if (!places.take(name)) continue
      held.set(name, count + 1)
      more = true
    }
  }
  t.same([...held.values()], [16, 16, 16])
  t.end()
})

t.test('what was left can be taken again', t => {
  const places = new EnginePlaces(4)
  t.equal(fill(places, 'a'), 2)
  t.equal(fill(places, 'b'), 1)
  places.leave('a')
  places.leave('a')
  t.equal(fill(places, 'b'), 1)
  places.leave('b')
  places.leave('b')
  t.equal(fill(places, 'a'), 2)
  t.end()
})
