/** What servers are known to do in their replies, decoded at every border: one meaning, whatever the way of saying it. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import type { Format } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { decodeReply } from '../support/decode-reply.ts'
import { type Expected, type Habit, habits } from '../support/habits.ts'
import { arrivals } from '../support/recordings.ts'
import { collect } from './delta-items.ts'

const HABITS = habits()

function understood({ format, isStream, expect }: Habit, chunks: readonly Buffer[]): Expected {
  let got: ReturnType<typeof collect>
  try {
    got = collect(decodeReply((FORMATS as Record<string, Format>)[format] as Format, isStream, chunks))
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    const words = expect.words !== undefined && thrown.message.includes(expect.words)
    return {
      end: 'failed',
      ...(expect.code === undefined ? {} : { code: thrown.code }),
      ...(words ? { words: expect.words } : {}),
    }
  }
  const calls = got.items
    .filter(item => item['type'] === 'function_call')
    .map(({ name, arguments: input, status }): NonNullable<Expected['calls']>[number] => {
      const value = parsed(String(input))
      return status === 'incomplete' ? [String(name), value, status] : [String(name), value]
    })
  const ids = got.calls.map(call => call.callId)
  const { usage, finish } = got
  return {
    end: finish?.reason ?? 'none',
    ...(expect.calls === undefined ? {} : { calls }),
    ...(expect.text === undefined ? {} : { text: got.text }),
    ...(expect.usage === undefined || usage === null
      ? {}
      : { usage: [usage.inputTokens, usage.cachedTokens, usage.outputTokens] }),
    ...(expect.stopSequence === undefined ? {} : { stopSequence: finish?.stopSequence ?? '' }),
    ...(expect.noId === undefined || ids.includes(expect.noId) ? {} : { noId: expect.noId }),
  }
}

function parsed(input: string): unknown {
  try {
    return JSON.parse(input) as unknown
  } catch {
    return input
  }
}

t.test('each habit is understood in every format, whole and at every border of its bytes', async t => {
  let readings = 0
  for (const habit of HABITS) {
    for (const arrival of arrivals(habit.bytes)) {
      t.same(understood(habit, arrival.chunks), habit.expect, `${habit.name}, ${arrival.name}`)
      readings++
    }
  }
  t.comment(`${HABITS.length} replies, ${readings} readings`)
})
