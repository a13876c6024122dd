/** The runner of the stages of an exchange: order, waiting, time, and errors. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import type { Stage } from '../../src/base/metrics/stages.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../src/pipeline/answer/response-object.ts'
import { FinalSink } from '../../src/pipeline/answer/sink.ts'
import {
  type ExchangeStage,
  RunningExchange,
  runStages,
  SKIPPED,
} from '../../src/pipeline/exchange-stages.ts'
import { scriptedExchange } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

type Deps = { readonly clock: TestClock }

/** Stages that take a time by the clock, and an exchange for them. */
function world() {
  const clock = new TestClock()
  const { clientRequest } = scriptedExchange({})
  const echo = echoRequest(clientRequest.request, { id: 'gen-1-x', createdAt: 1, model: '' })
  const exchange = new RunningExchange(clientRequest, 1, new Answer(new FinalSink(), echo))
  const ran: string[] = []
  const stage = (
    name: string,
    timed: Stage | null,
    ms: number,
    result?: () => unknown,
  ): ExchangeStage<Deps, RunningExchange> => ({
    label: timed,
    run: () => {
      ran.push(name)
      clock.advance(ms)
      return result?.()
    },
  })
  const run = (stages: readonly ExchangeStage<Deps, RunningExchange>[]) =>
    runStages(stages, { clock }, exchange)
  const times = () => exchange.watch.times(clock.monotonicMs())
  return { clock, ran, stage, run, times }
}

t.test('stages that do not wait run in order, at once, without a promise', async t => {
  const { ran, stage, run } = world()
  t.equal(run([stage('one', 'guard', 1), stage('two', 'route', 2)]), undefined)
  t.same(ran, ['one', 'two'])
})

t.test('a stage that waits holds up the following ones alone', async t => {
  const { ran, stage, run } = world()
  const waiting = Promise.withResolvers<void>()
  const running = run([
    stage('one', 'guard', 1),
    stage('two', 'route', 1, () => waiting.promise),
    stage('three', 'admit', 1),
  ])
  t.ok(running instanceof Promise)
  t.same(ran, ['one', 'two'])
  waiting.resolve()
  await running
  t.same(ran, ['one', 'two', 'three'])
})

t.test('each stage is timed by itself, and one that had nothing to do leaves no time', async t => {
  const { stage, run, times } = world()
  await run([
    stage('one', 'guard', 5),
    stage('two', 'tools', 0, () => SKIPPED),
    stage('three', 'route', 7, () => Promise.resolve()),
    stage('four', 'admit', 0, () => Promise.resolve(SKIPPED)),
    stage('five', null, 11),
  ])
  // A stage without a label counts towards the stage before it.
  t.same(
    [...times()].filter(([name]) => name !== 'parse'),
    [
      ['guard', 5],
      ['route', 18],
    ],
  )
})

t.test('an error ends the run: at once, or where it was waited for', async t => {
  const { ran, stage, run } = world()
  const error = new GatewayError('invalid_request', 'no')
  const throws = () => {
    throw error
  }
  t.throws(() => run([stage('one', 'guard', 1, throws), stage('two', 'route', 1)]), error)
  await t.rejects(
    run([
      stage('three', 'guard', 1, () => Promise.reject(error)),
      stage('four', 'route', 1),
    ]) as Promise<void>,
    error,
  )
  t.same(ran, ['one', 'three'])
})
