/**
 * Checks of a gateway under stress: clients that disconnect, that do not read, or that never finish their request; and
 * a restart.
 */
import { BASIS, BOTH, byStatus, type Check, checksOf, fail, pass, statusOf } from '../check.ts'
import { objectOf } from '../sse.ts'
import { type AskOptions, newId, type ProbeAnswer } from '../tester.ts'
import { restarted } from './restart.ts'

const ABORT_COUNT = 8
const SAMPLE_COUNT = 3
/** A gateway that is this much slower after aborts has lost resources; less may be chance. */
const SLOWDOWN_LIMIT = { factor: 5, ms: 1_500 } as const
const PARALLEL_REQUESTS = 3
const COMMON = {
  group: 'chaos',
  dialects: BOTH,
  basis: `${BASIS.http1}, 9.5; ${BASIS.api}`,
  sends: 2,
} as const

/** A client that leaves at the first event of a stream. */
const LEAVING_CLIENT: AskOptions = { stream: true, script: 'slow', onText: text => text.includes('\n\n') }

export const CHAOS_CHECKS: readonly Check[] = checksOf('chaos', COMMON, [
  {
    name: 'abort',
    asserts: 'after a client disconnects in the middle of a stream, the next request works',
    matters: 'people close windows all the time',
    async run(tester, dialect) {
      await tester.ask(dialect, LEAVING_CLIENT)
      const answer = await tester.ask(dialect, { stream: true })
      return answer.reply.status === 200 && answer.understood.end === 'ended'
        ? pass('200')
        : fail(statusOf(answer))
    },
  },
  {
    name: 'aborts',
    asserts: `${ABORT_COUNT} clients that disconnect in the middle of a stream do not slow down later ones`,
    matters: 'small losses with each client add up to an outage',
    sends: ABORT_COUNT + 2 * SAMPLE_COUNT,
    async run(tester, dialect) {
      const firstMs = async (): Promise<number> => {
        const times: number[] = []
        for (let index = 0; index < SAMPLE_COUNT; index++) {
          const answer = await tester.ask(dialect, { stream: true })
          if (answer.reply.status !== 200) return Number.POSITIVE_INFINITY
          times.push(answer.reply.firstMs)
        }
        return median(times)
      }
      const before = await firstMs()
      for (let remaining = ABORT_COUNT; remaining > 0; remaining -= tester.others) {
        const leaving = Array.from({ length: Math.min(remaining, tester.others) }, () =>
          tester.ask(dialect, LEAVING_CLIENT),
        )
        await Promise.all(leaving)
      }
      const after = await firstMs()
      const observation = `first bytes after ${before.toFixed(0)} ms before, ${after.toFixed(0)} ms after`
      if (!Number.isFinite(after)) return fail('requests fail after the aborts')
      return after > before * SLOWDOWN_LIMIT.factor + SLOWDOWN_LIMIT.ms
        ? fail(observation)
        : pass(observation)
    },
  },
  {
    name: 'slow-reader',
    asserts: 'while a client does not read its stream, others get theirs',
    matters: 'one phone in a tunnel stops everybody',
    sends: 1 + PARALLEL_REQUESTS,
    async run(tester, dialect) {
      const slow = await tester.open()
      tester.deps.ration.spend(1)
      slow.pause()
      const body = tester.body(dialect, { stream: true, script: 'flood' }, newId())
      slow.send(tester.bytes(dialect.path, body))
      for (let index = 0; index < PARALLEL_REQUESTS; index++) {
        const answer = await tester.ask(dialect, { stream: true })
        if (answer.understood.end !== 'ended')
          return fail(`request ${index + 1} beside the slow reader: ${statusOf(answer)}`)
      }
      return pass(`${PARALLEL_REQUESTS} streams beside the slow reader`)
    },
  },
  {
    name: 'parallel',
    asserts: 'concurrent streams end properly, each with its own text',
    matters: 'one customer reads what another was told',
    sends: 8,
    async run(tester, dialect) {
      const answer = await Promise.all(
        Array.from({ length: tester.others }, () => tester.ask(dialect, { stream: true })),
      )
      const badAnswer = answer.find(({ understood }) => understood.end !== 'ended')
      if (badAnswer !== undefined) return fail(statusOf(badAnswer))
      const ids = new Set(answer.map(({ stream }) => idOf(stream.events[0]?.data ?? '')))
      if (ids.size < answer.length) return fail('two streams have the same id')
      const mixed =
        tester.deps.provider === null ? undefined : answer.find(ownAnswer => !hasOwnText(ownAnswer, answer))
      return mixed === undefined
        ? pass(`${answer.length} streams`)
        : fail('a stream contains text that belongs to another stream')
    },
  },
  {
    name: 'half-open',
    dialects: null,
    asserts: 'while some connections never finish their request, others are served',
    matters: 'a few slow clients could occupy all connections',
    sends: 9,
    async run(tester, dialect) {
      for (let index = 0; index < tester.others; index++) {
        const connection = await tester.open()
        const head = tester.head('POST', dialect.path)
        tester.sendRaw(
          connection,
          index % 2 === 0 ? head.slice(0, 20) : `${head}Content-Length: 1000\r\n\r\n{"model": `,
          1,
        )
      }
      const reply = await tester.request('GET', '/models', null)
      return reply.status < 500
        ? pass(`${reply.status} beside ${tester.others} unfinished requests`)
        : fail(`status ${reply.status}`)
    },
  },
  {
    name: 'leaving-body',
    dialects: null,
    asserts: 'after clients disconnect in the middle of their requests, the next one is served',
    matters: 'a broken upload must not take the server down',
    sends: 4,
    async run(tester, dialect) {
      for (let index = 0; index < 3; index++) {
        const connection = await tester.open()
        tester.sendRaw(connection, `${tester.head('POST', dialect.path)}Content-Length: 1000\r\n\r\n{"mod`, 1)
        tester.close(connection)
      }
      const reply = await tester.request('GET', '/models', null)
      return byStatus(reply, reply.status < 500)
    },
  },
  {
    name: 'restart',
    asserts: 'a restart ends no running stream silently, and new requests are answered again',
    matters: 'each deployment cuts answers in half',
    needs: 'restart',
    sends: 40,
    run: restarted,
  },
])

function idOf(data: string): unknown {
  const document = objectOf(data)
  const response = document?.['response'] as { id?: unknown } | undefined
  return response?.id ?? document?.['id']
}

/** The scripted provider repeats the mark of the prompt. */
function hasOwnText({ id, understood }: ProbeAnswer, answers: readonly ProbeAnswer[]): boolean {
  return (
    understood.text.includes(id) &&
    !answers.some(answer => answer.id !== id && understood.text.includes(answer.id))
  )
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  const [low = 0, high = 0] = [sorted[middle - 1], sorted[middle]]
  return sorted.length % 2 === 1 ? high : (low + high) / 2
}
