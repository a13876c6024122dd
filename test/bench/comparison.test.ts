/** Two revisions side by side. */
import t from 'tap'
import { comparison, told } from '../../bench/comparison.ts'
import type { SubjectName } from '../../bench/scenarios.ts'
import { spread } from '../../bench/stats.ts'
import { row, scenario } from './sample.ts'

t.test('a difference is told only when it stands out of what the same code shows', async t => {
  const noise = spread([0.97, 1, 1.04])
  t.equal(told(spread([1.1, 1.2, 1.3]), noise), 'more')
  t.equal(told(spread([0.7, 0.8, 0.9]), noise), 'less')
  t.equal(told(spread([0.98, 1.03, 1.2]), noise), 'not told apart')
  t.equal(told(spread([0.9, 1.2, 1.3]), noise), 'not told apart', 'one round says the opposite')
  t.equal(told(spread([1.2, 1.3]), noise), 'too few rounds')
  t.equal(told(null, noise), '–')
})

t.test('the page has a line per figure with both ratios, and the rejected rows', async t => {
  const cost = (subject: SubjectName, micros: readonly number[]) =>
    micros.map((each, round) => row({ subject, round, cpuMicros: each * 50_000 }))
  const rows = [
    ...cost('before', [20, 20, 20]),
    ...cost('after', [30, 40, 50]),
    ...cost('before-again', [20, 22, 21]),
    row({ subject: 'after', round: 3, cpuMicros: 1, rejected: ['1 events lost'] }),
  ]
  const page = comparison({ before: 'aaa', after: 'bbb' }, [scenario('relay-256-tls')], rows, ['x: y'])
  t.match(page, '# aaa (before) and bbb (after)')
  t.match(
    page,
    '| CPU µs per event or request | 20.0 (20.0–20.0) | 40.0 (30.0–50.0) | 2.00 (1.50–2.50) | 1.05 (1.00–1.10) | more |',
  )
  t.match(page, '- after, round 4: 1 events lost')
  t.match(page, 'Not measured: x: y')
})
