import t from 'tap'
import type { ExchangeLine } from '../../../src/base/log/log.ts'
import { Stopwatch } from '../../../src/base/metrics/stages.ts'
import type { EndedRequest } from '../../../src/protocol/ended-request.ts'
import { ConsoleFeed } from '../../../src/server/admission/console-feed.ts'
import { TestClock } from '../../support/test-clock.ts'

function setUp() {
  const clock = new TestClock()
  const sent: (readonly EndedRequest[])[] = []
  const ended = new ConsoleFeed(clock, requests => void sent.push(requests))
  ended.isWatched = true
  const watch = new Stopwatch(0)
  watch.enter('auth', 2)
  const add = (more: Partial<ExchangeLine> = {}) => {
    const line = {
      id: 'gen-1',
      method: 'POST',
      route: '/responses',
      status: 200,
      outcome: 'completed',
      durationMs: 5,
      organization: 'org_1',
      key: 'sk-gw-v1-abc...def',
      client: '10.0.0.1',
      ...more,
    }
    ended.add({ line, watch, endedMs: 5 })
  }
  return { clock, sent, ended, add }
}

t.test('requests are sent together, with their stages, and without key and address', async t => {
  const { clock, sent, add } = setUp()
  add()
  add({ id: 'gen-2' })
  t.same(sent, [])
  clock.advance(250)
  t.equal(sent.length, 1)
  t.same(
    sent[0]?.map(({ id }) => id),
    ['gen-1', 'gen-2'],
  )
  t.same(sent[0]?.[0]?.stages, { parse: 2, auth: 3 })
  t.notMatch(JSON.stringify(sent), /sk-gw|10\.0\.0\.1/)
  clock.advance(1_000)
  t.equal(sent.length, 1, 'nothing is sent without requests')
})

t.test('what has no organization, and what is only read, is not told', async t => {
  const { clock, add } = setUp()
  add({ organization: undefined })
  add({ method: 'GET' })
  t.equal(clock.armed, 0)
})

t.test('a message has at most two hundred, and none leaves once nobody watches', async t => {
  const { clock, sent, ended, add } = setUp()
  for (let at = 0; at < 300; at++) add()
  clock.advance(250)
  t.equal(sent[0]?.length, 200)
  add()
  ended.isWatched = false
  clock.advance(250)
  t.equal(sent.length, 1)
})
