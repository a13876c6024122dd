import t from 'tap'
import { EFFORT_SHARES, nearestEffort } from '../../src/formats/reasoning.ts'

t.test('a share is told as the nearest effort that is offered', async t => {
  const all = ['minimal', 'low', 'medium', 'high', 'xhigh'] as const
  for (const effort of all) t.equal(nearestEffort(EFFORT_SHARES[effort], all), effort)
  t.equal(nearestEffort(0, all), 'minimal')
  t.equal(nearestEffort(0.3, all), 'low')
  t.equal(nearestEffort(0.4, all), 'medium')
  t.equal(nearestEffort(7, all), 'xhigh')
  t.equal(nearestEffort(7, ['minimal', 'low', 'medium', 'high']), 'high')
  t.equal(nearestEffort(0.95, ['max', 'xhigh']), 'max', 'of two equally near, the first')
})
