import t from 'tap'
import { CallWindow } from '../../../src/providers/health/failure-windows.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import type { HealthNote } from '../../../src/providers/health/notes.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

t.test('a tenth of faulty calls is too many, and few calls say nothing', async t => {
  const window = new CallWindow(0)
  window.add(0, 0, 9)
  t.equal(window.share(0), null)
  t.notOk(window.isPoor(0))
  window.add(0, 0, 1)
  t.equal(window.share(0), 0)
  t.ok(window.isPoor(0))
  window.add(0, 90, 0)
  t.equal(window.share(0), 0.9)
  t.notOk(window.isPoor(0), 'exactly a tenth is allowed')
  window.add(0, 0, 2)
  t.ok(window.isPoor(0))
})

t.test('calls are forgotten while nobody asks', async t => {
  const window = new CallWindow(0)
  window.add(0, 0, 40)
  t.ok(window.isPoor(250_000))
  t.notOk(window.isPoor(400_000), 'too few are left to judge by')
  window.add(400_000, 40, 0)
  t.notOk(window.isPoor(400_000) && window.share(400_000) === 0)
})

t.test('other threads learn of faulty calls', async t => {
  const clock = new TestClock()
  const sent: HealthNote[] = []
  const endpoint = scriptedEndpoint('openai-chat')
  const here = new EndpointHealth({ clock, send: notes => void sent.push(...notes) })
  const there = new EndpointHealth({ clock })
  const entry = here.begin(here.of(endpoint, null))
  entry?.noteFirstContent(0)
  entry?.countCalls(0, 2, 10)
  here.flush()
  t.match(sent, [{ goodCalls: 2, faultyCalls: 10 }])
  there.apply(sent)
  t.ok(there.of(endpoint, null).calls?.isPoor(0))
})
