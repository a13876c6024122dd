/** Fair turns of reading: their order, and the bytes that one turn of the event loop may bring. */
import t from 'tap'
import { ReadTurns, TURN_BYTES } from '../../../src/providers/upstream/read-turns.ts'
import { turns } from './calls.ts'

const FULL = TURN_BYTES

/** Readers that tell their name when they are called, and come again so many times. */
function readers(readTurns: ReadTurns, told: string[]) {
  return (name: string, { again = 0, readBytes = FULL } = {}) => {
    let left = again
    const reader = {
      readBytes,
      readOn: () => {
        told.push(name)
        if (left-- > 0) readTurns.join(reader)
      },
    }
    return reader
  }
}

t.test('one with much to read is called in each turn of the event loop, in their order', async t => {
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

t.test('of those with less to read as many are called as a turn has bytes for', async t => {
  const told: string[] = []
  const readTurns = new ReadTurns()
  const reader = readers(readTurns, told)
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) readTurns.join(reader(name, { readBytes: FULL / 4 }))
  await turns(1)
  t.same(told, ['a', 'b', 'c', 'd'])
  await turns(1)
  t.same(told, ['a', 'b', 'c', 'd', 'e', 'f'])
})

t.test('where short reads bring more than that, those who wait are called for as many bytes', async t => {
  const told: string[] = []
  const readTurns = new ReadTurns()
  const reader = readers(readTurns, told)
  for (const name of ['a', 'b', 'c', 'd']) readTurns.join(reader(name))
  readTurns.shortBytes += 3 * FULL
  await turns(1)
  t.same(told, ['a', 'b', 'c'])
  await turns(1)
  t.same(told, ['a', 'b', 'c', 'd'], 'the short reads of one turn count in no other')
})

t.test('all reads of a turn count together, and the next turn begins with none', async t => {
  const readTurns = new ReadTurns()
  for (let turn = 0; turn < 3; turn++) {
    t.same(
      [1, 2, 3, 4, 5].map(() => readTurns.admits(FULL / 4)),
      [true, true, true, false, false],
    )
    await turns(1)
  }
})

t.test('who comes again waits behind all others', async t => {
  const told: string[] = []
  const readTurns = new ReadTurns()
  const reader = readers(readTurns, told)
  readTurns.join(reader('greedy', { again: 2 }))
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

t.test('who joins while it is called is called once a turn, however little it reads', async t => {
  for (const readBytes of [FULL, 1]) {
    const told: string[] = []
    const readTurns = new ReadTurns()
    readTurns.join(readers(readTurns, told)('alone', { again: 10, readBytes }))
    for (const calls of [1, 2, 3]) {
      await turns(1)
      t.equal(told.length, calls)
    }
    await turns(20)
    t.equal(told.length, 11)
  }
})
