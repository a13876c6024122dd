import t from 'tap'
import { ReadTurns } from '../../src/upstream/read-turns.ts'
import { turns } from './calls.ts'

/** Readers that tell their name when they are called, and come again so many times. */
function readers(readTurns: ReadTurns, told: string[]) {
  return (name: string, again = 0) => {
    let left = again
    const reader = {
      readOn: () => {
        told.push(name)
        if (left-- > 0) readTurns.join(reader)
      },
    }
    return reader
  }
}

t.test('one is called in each turn of the event loop, in the order in which they came', async t => {
  const told: string[] = []
  const readTurns = new ReadTurns()
  const reader = readers(readTurns, told)
  for (const name of ['a', 'b', 'c']) readTurns.join(reader(name))
  t.same(told, [], 'nobody is called from inside')
  for (const sofar of [['a'], ['a', 'b'], ['a', 'b', 'c'], ['a', 'b', 'c']]) {
    await turns(1)
    t.same(told, sofar)
  }
  readTurns.join(reader('d'))
  await turns(1)
  t.equal(told.at(-1), 'd', 'it begins again after a rest')
})

t.test('who comes again waits behind all others', async t => {
  const told: string[] = []
  const readTurns = new ReadTurns()
  const reader = readers(readTurns, told)
  readTurns.join(reader('greedy', 2))
  for (const name of ['a', 'b', 'c']) readTurns.join(reader(name))
  await turns(10)
  t.same(told, ['greedy', 'a', 'b', 'c', 'greedy', 'greedy'])
})

t.test('who joins twice has one place', async t => {
  const told: string[] = []
  const readTurns = new ReadTurns()
  const reader = readers(readTurns, told)('once')
  readTurns.join(reader)
  readTurns.join(reader)
  await turns(3)
  t.same(told, ['once'])
})

t.test('who joins while it is called, and is alone, is called once a turn', async t => {
  const told: string[] = []
  const readTurns = new ReadTurns()
  readTurns.join(readers(readTurns, told)('alone', 10))
  for (const calls of [1, 2, 3]) {
    await turns(1)
    t.equal(told.length, calls)
  }
  await turns(20)
  t.equal(told.length, 11)
})
