/** Values that are at hand or promised. */
import t from 'tap'
import { isPending, whenReady } from '../../src/base/maybe-promise.ts'

t.test('a value that is at hand is passed on at once', async t => {
  t.equal(
    whenReady(20, value => value + 1),
    21,
  )
  t.equal(isPending(20), false)
  t.throws(
    () =>
      whenReady(20, () => {
        throw new Error('no')
      }),
    { message: 'no' },
  )
})

t.test('a promised value is passed on when it is there', async t => {
  const later = whenReady(Promise.resolve(20), value => value + 1)
  t.equal(isPending(later), true)
  t.equal(await later, 21)
  const failing = Promise.reject(new Error('no'))
  await t.rejects(Promise.resolve(whenReady(failing, () => t.fail())), { message: 'no' })
})
