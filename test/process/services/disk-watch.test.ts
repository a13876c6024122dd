import t from 'tap'
import { watchDisk } from '../../../src/process/services/disk-watch.ts'
import { until } from '../../support/patience.ts'
import { TestClock } from '../../support/test-clock.ts'

t.test('a full disk is an error that names the folder, and its end is a notice', async t => {
  const clock = new TestClock()
  const lines: unknown[] = []
  let free = 0
  const watch = watchDisk({
    folder: '/data/spool',
    clock,
    log: {
      error: (...line) => void lines.push(['error', ...line]),
      notice: (...line) => void lines.push(['notice', ...line]),
    },
    freeBytes: async () => free,
  })
  clock.advance(0)
  await until('it is full', () => watch.isFull)
  clock.advance(2_000)
  free = 1e9
  await until('it has room', () => {
    clock.advance(2_000)
    return !watch.isFull
  })
  t.same(lines, [
    ['error', 'disk', 'the disk is full', { folder: '/data/spool' }],
    ['notice', 'disk', 'the disk has free space again'],
  ])
  watch.close()
})
