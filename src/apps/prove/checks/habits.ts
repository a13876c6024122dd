/**
 * Checks how a gateway handles habits of real providers, and requests that a strict provider refuses. They need the
 * scripted provider.
 */
import { BOTH, type Check, type CheckVerdict, checksOf, fail, pass, skip, statusOf } from '../check.ts'
import type { Dialect } from '../dialects.ts'
import { HABITS, type Habit } from '../habits.ts'
import { objectOf } from '../sse.ts'
import { newId, type ProbeAnswer, type Tester } from '../tester.ts'
import { settled } from './upstream.ts'

export const HABIT_CHECKS: readonly Check[] = checksOf(
  'habits',
  { group: 'upstream', dialects: BOTH, basis: 'public reports about providers', sends: 1 },
  HABITS.map(habit => {
    const isFailure = habit.expected.end === 'failed'
    return {
      name: habit.name,
      asserts: habit.asserts,
      matters: habit.matters,
      needs: 'provider' as const,
      ...(isFailure ? { sends: 2 } : {}),
      async run(tester, dialect) {
        const verdict = await checkHabit(habit, tester, dialect)
        if (isFailure) await settled(tester, dialect)
        return verdict
      },
    }
  }),
)

async function checkHabit(habit: Habit, tester: Tester, dialect: Dialect): Promise<CheckVerdict> {
  const id = newId()
  const isStream = (habit.chat ?? habit.responses)?.events !== undefined
  const answer = await tester.ask(
    dialect,
    {
      script: `habit-${habit.name}`,
      stream: isStream,
      ...(habit.expected.calls === undefined ? {} : { calls: true }),
    },
    id,
  )
  const format = tester.deps.provider?.formatOf(id)
  if (format !== undefined && habit[format] === undefined)
    return skip(`the gateway asks this provider by ${format}, in which the habit is not known`)
  if (tester.deps.provider?.late(id) !== null && habit.expected.end === 'ended')
    return fail('the answer ends only once the provider closes the connection')
  return habit.expected.end === 'failed' ? judgeFailure(answer) : judgeAnswer(habit, answer, isStream)
}

function judgeFailure(answer: ProbeAnswer): CheckVerdict {
  const { status, end } = answer.reply
  if (status >= 500) return pass(statusOf(answer))
  if (status !== 200) return fail(statusOf(answer))
  if (answer.understood.end === 'failed') return pass('an event reports the failure')
  if (end === 'cut' || end === 'reset') return pass('the connection is cut, which clients report')
  return fail(answer.understood.end === 'ended' ? 'the client sees a normal end' : 'the stream just ends')
}

function judgeAnswer({ expected }: Habit, answer: ProbeAnswer, isStream: boolean): CheckVerdict {
  if (answer.reply.status !== 200) return fail(statusOf(answer))
  const { text, calls, end, usage } = answer.understood
  if (end !== 'ended')
    return fail(end === 'failed' ? 'the client is told of a failure' : 'the stream has no end')
  if (expected.text !== undefined && text !== expected.text)
    return fail(`${text.length} characters of text, not ${expected.text.length}: ${text.slice(0, 40)}`)
  if (expected.calls !== undefined) {
    if (calls.length !== expected.calls.length)
      return fail(`${calls.length} calls, not ${expected.calls.length}`)
    for (const [index, call] of calls.entries())
      if (JSON.stringify(objectOf(call.arguments)) !== JSON.stringify(expected.calls[index]))
        return fail(`the arguments of call ${index + 1} are ${call.arguments.slice(0, 60)}`)
    if (new Set(calls.map(({ id }) => id)).size !== calls.length) return fail('two calls have the same id')
    if (calls.some(({ id }) => id === '')) return fail('a call has no id')
  }
  if (
    expected.usage !== undefined &&
    (usage === null || usage[0] !== expected.usage[0] || usage[1] !== expected.usage[1])
  )
    return fail(
      usage === null
        ? 'there is no usage'
        : `usage is ${usage[0]} and ${usage[1]}, not ${expected.usage.join(' and ')}`,
    )
  return pass(isStream ? 'as the client should see it, streamed' : 'as the client should see it')
}
