/** Work that may wait has a part of each turn of the event loop, in its order. */
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { LoopShare } from '../../../src/base/fairness/loop-share.ts'

/** A clock that only work and others move on, and what the work has done. */
function bench() {
  let nowMs = 0
  const done: string[] = []
  const share = new LoopShare({ monotonicMs: () => nowMs })
  const pass = (ms: number): void => {
    nowMs += ms
  }
  const work = (name: string, ms: number, then?: () => void) => ({
    proceed() {
      done.push(name)
      pass(ms)
      then?.()
    },
  })
  return { share, done, pass, work }
}

t.test('work is done in the next turn, in its order', async t => {
  const { share, done, work } = bench()
  for (const name of ['a', 'b', 'c']) share.add(work(name, 0.1), 'start')
  t.same(done, [], 'not at once')
  await turn()
  t.same(done, ['a', 'b', 'c'])
  share.add(work('d', 50), 'start')
  await turn()
  t.same(done, ['a', 'b', 'c', 'd'])
})

t.test('a turn has two milliseconds for it, and what is left keeps its place', async t => {
  const { share, done, work } = bench()
  for (let at = 0; at < 6; at++) share.add(work(`early ${at}`, 0.9), 'start')
  await turn()
  t.same(done, ['early 0', 'early 1', 'early 2'])
  share.add(work('late', 0.9), 'start')
  await turn()
  t.same(done.slice(3), ['early 3', 'early 4', 'early 5'])
  await turn()
  t.same(done.slice(6), ['late'])
})

t.test('work that had to wait has a third of a loop that is busy with other things', async t => {
  const { share, done, pass, work } = bench()
  for (let at = 0; at < 100; at++) share.add(work(String(at), 1), 'start')
  await turn()
  t.equal(done.length, 2)
  pass(40)
  await turn()
  t.equal(done.length, 2 + 20)
  pass(1)
  await turn()
  t.equal(done.length, 2 + 20 + 2, 'at least two milliseconds')
})

t.test('one piece of work is done however long it takes', async t => {
  const { share, done, work } = bench()
  share.add(work('long', 100), 'start')
  share.add(work('next', 1), 'start')
  await turn()
  t.same(done, ['long'])
  await turn()
  t.same(done, ['long', 'next'])
})

t.test('what work adds itself comes in a later turn, after all that waits', async t => {
  const { share, done, work } = bench()
  share.add(
    work('one', 3, () => share.add(work('one, second part', 0.1), 'start')),
    'start',
  )
  share.add(work('two', 0.1), 'start')
  await turn()
  t.same(done, ['one'])
  await turn()
  t.same(done, ['one', 'two', 'one, second part'])
})

t.test('a start waits for one piece of a long stream, not for all of them', async t => {
  const { share, done, work } = bench()
  for (let at = 0; at < 4; at++) share.add(work(`piece ${at}`, 1.5), 'piece')
  share.add(work('start', 0.1), 'start')
  await turn()
  t.same(done, ['start', 'piece 0', 'piece 1'])
  for (let at = 0; at < 9; at++) share.add(work(`start ${at}`, 1.5), 'start')
  await turn()
  t.same(done.slice(3), ['start 0', 'piece 2'], 'and a piece does not wait for all starts')
  await turn()
  t.same(done.slice(5), ['start 1', 'piece 3'])
  await turn()
  t.same(done.slice(7), ['start 2', 'start 3'])
})
