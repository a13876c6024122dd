/** The race of two attempts, without sockets. test/contract/hedging.test.ts has the whole of it. */
import t from 'tap'
import type { GatewayError } from '../../../src/base/errors.ts'
import type { AttemptTarget } from '../../../src/pipeline/turn/attempt-target.ts'
import { Race } from '../../../src/pipeline/turn/hedge.ts'
import { scriptedRecord } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const TEXT = { kind: 'text', item: 0, part: 0, text: 'x', logprobs: null } as const

function setup() {
  const clock = new TestClock()
  const second = Promise.withResolvers<string>()
  const told: string[] = []
  const records = { first: scriptedRecord(), second: scriptedRecord() }
  const race = new Race<string>({
    clock,
    afterMs: 100,
    begin: () => second.promise,
    onWon: winner => void told.push(winner === records.first ? 'first won' : 'second won'),
  })
  const enter = (name: 'first' | 'second'): AttemptTarget => {
    const fail = (error: GatewayError) => void told.push(`${name} closed: ${error.metadata?.['reason']}`)
    const says = (what: string) => () => void told.push(`${name} ${what}`)
    const target = {
      sink: { cork: says('hold'), flush: () => true },
      receive: says('take'),
      message: says('message'),
      end: says('end'),
      close: says('close'),
    }
    const lead = () => void told.push(`${name} leads`)
    return race.enter(records[name], { fail, lead }, () => target)
  }
  return { clock, race, second, told, records, enter }
}

t.test(
  'nothing reaches the answer before the first content, and nothing of the slower one after it',
  async t => {
    const { clock, race, told, records, enter } = setup()
    const first = enter('first')
    t.equal(first.sink, null)
    clock.advance(100)
    const second = enter('second')
    t.equal(second.sink, null)
    t.same(told, [])
    second.receive(TEXT)
    t.same(told, ['second won', 'first closed: outrun', 'second leads', 'second hold', 'second take'])
    first.receive(TEXT)
    first.end(() => t.fail('it has lost'))
    first.close()
    t.equal(told.length, 5)
    t.equal(records.first.isOutrun, true)
    t.equal(records.second.isOutrun, undefined)
    t.ok(race.isDecided)
  },
)

t.test(
  'a second attempt that is still being prepared is not waited for once the first has content',
  async t => {
    const { clock, race, enter, told, records } = setup()
    const first = enter('first')
    clock.advance(100)
    first.receive(TEXT)
    t.equal(await race.end(), null)
    t.ok(race.isDecided)
    t.notOk(race.hasEntered(records.second))
    t.same(told, ['first won', 'first leads', 'first hold', 'first take'])
  },
)

t.test('a second attempt is waited for where the first has failed, and none begins after that', async t => {
  const late = setup()
  late.enter('first')
  late.clock.advance(100)
  late.second.resolve('answered')
  t.equal(await late.race.end(), 'answered')

  const early = setup()
  early.enter('first')
  t.equal(await early.race.end(), null)
  t.equal(early.clock.armed, 0, 'no timer is left')
  t.ok(early.race.isDecided)
})
