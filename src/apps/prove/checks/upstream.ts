/** Checks of how the gateway handles its provider's replies, good and bad. They need the scripted provider. */
import {
  BASIS,
  BOTH,
  type Check,
  type CheckRow,
  type CheckVerdict,
  checksOf,
  fail,
  faultless,
  pass,
  statusOf,
} from '../check.ts'
import type { Dialect } from '../dialects.ts'
import { piecesFor, type Script } from '../provider.ts'
import { DONE, readStream } from '../sse.ts'
import { type AskOptions, newId, type ProbeAnswer, type Tester } from '../tester.ts'

type Row = CheckRow & {
  /** The provider fails, so the gateway may avoid it for a while. The check ends once the gateway calls it again. */
  readonly fails?: true
}

const TRUNCATION_HARM = 'clients mistake half an answer for a whole one'
const END_BASIS = `${BASIS.api}: a stream ends with a terminal event, or a finish_reason and [DONE]`

const ROWS: readonly Row[] = [
  {
    name: 'text',
    asserts: 'the text of a whole reply is exactly what the provider said',
    matters: 'answers are altered in transit',
    sends: 0,
    run: async (tester, dialect) => judgeText(await tester.sample(dialect, 'whole')),
  },
  {
    name: 'stream-text',
    asserts: 'the text of a stream is exactly what the provider said',
    matters: 'answers are altered in transit',
    sends: 0,
    run: async (tester, dialect) => judgeText(await tester.sample(dialect, 'stream')),
  },
  {
    name: 'usage',
    asserts: 'the usage is what the provider reported',
    matters: 'callers are billed, and set limits, by these numbers',
    sends: 0,
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'whole')
      const { usage } = answer.understood
      const output = piecesFor('plain', answer.id).length
      if (usage === null) return fail('there is no usage')
      return usage[1] === output
        ? pass(`${output} output tokens`)
        : fail(`${usage[1]} output tokens, not ${output}`)
    },
  },
  {
    name: 'at-once',
    asserts: 'each piece of text reaches the client before the provider writes the next one',
    matters: 'a stream that arrives late, or all at once, is useless to its reader',
    run: checkDelivery,
  },
  {
    name: 'odd-bytes',
    asserts: 'events that arrive split at any byte, even within characters, are passed on unchanged',
    matters: 'letters beyond ASCII break at random times',
    run: checkIntact('odd-bytes'),
  },
  {
    name: 'comments',
    asserts: 'comments between events, and CRLF line ends, change nothing',
    matters: 'providers keep silent connections alive with comments',
    run: checkIntact('comments'),
  },
  {
    name: 'huge-event',
    asserts: 'an event of 512 KiB is passed on unchanged',
    matters: 'images, and arguments of functions, arrive in one event',
    run: checkIntact('huge'),
  },
  {
    name: 'failure',
    fails: true,
    asserts: 'status 500 from the provider becomes a status of 500 or above, in the error format',
    matters: 'clients retry on 5xx, and show the message',
    run: checkRefusal({ script: 'fails' }),
  },
  {
    name: 'failure-stream',
    fails: true,
    asserts: 'a stream whose provider refuses with 500 is refused with an error status',
    matters: 'clients recognize failures before a stream by the status',
    run: checkRefusal({ script: 'fails', stream: true }),
  },
  {
    name: 'garbage',
    fails: true,
    asserts:
      'a reply from the provider that is not JSON becomes an error with status 500 or above, in the error format',
    matters: 'clients mistake it for an answer, or cannot say what went wrong',
    run: checkRefusal({ script: 'garbage' }),
  },
  {
    name: 'cut',
    fails: true,
    basis: END_BASIS,
    asserts: 'a connection that the provider cuts in the middle of a stream does not look like a normal end',
    matters: TRUNCATION_HARM,
    run: checkReportedFailure('cut'),
  },
  {
    name: 'stops',
    fails: true,
    basis: END_BASIS,
    asserts: 'a stream that the provider ends before its last event does not look like a normal end',
    matters: TRUNCATION_HARM,
    run: checkReportedFailure('stops'),
  },
  {
    name: 'error-event',
    fails: true,
    basis: END_BASIS,
    asserts: 'an error that the provider reports in a stream reaches the client',
    matters: TRUNCATION_HARM,
    run: checkReportedFailure('error-event'),
  },
  {
    name: 'broken-event',
    fails: true,
    asserts: 'an event from the provider that is not JSON does not reach the client',
    matters: "the client's parser throws, in the middle of an answer",
    async run(tester, dialect) {
      const answer = await tester.ask(dialect, { script: 'broken-event', stream: true })
      if (answer.reply.status !== 200) return pass(statusOf(answer))
      const badEvent = answer.stream.events.find(({ json, data }) => json === undefined && data !== DONE)
      if (badEvent !== undefined) return fail(`the client gets: ${badEvent.data.slice(0, 60)}`)
      return judgeEnd(answer)
    },
  },
  {
    name: 'silence',
    asserts: 'while a provider is silent, other requests are answered',
    matters: 'one slow model stops all others',
    sends: 2,
    async run(tester, dialect) {
      const connection = await tester.open()
      tester.deps.ration.spend(1)
      connection.send(tester.bytes(dialect.path, tester.body(dialect, { script: 'silent' }, newId())))
      const answer = await tester.ask(dialect)
      return answer.reply.status === 200 ? pass('200 alongside it') : fail(statusOf(answer))
    },
  },
  {
    name: 'rate-limit',
    fails: true,
    asserts: 'status 429 from the provider becomes 429 (or 503)',
    matters: 'clients slow down on 429, and give up on other statuses',
    async run(tester, dialect) {
      const answer = await limitedAnswer(tester, dialect)
      return judgeRefusal(answer, status => status === 429 || status === 503)
    },
  },
  {
    name: 'retry-after',
    weight: 'should',
    asserts: 'the answer at the limit of the provider has Retry-After',
    matters: 'SDKs wait as long as Retry-After says, and otherwise guess',
    async run(tester, dialect) {
      const { reply } = await limitedAnswer(tester, dialect)
      const after = reply.headers.get('retry-after') ?? reply.headers.get('retry-after-ms')
      return after === undefined ? fail(`${reply.status} without Retry-After`) : pass(`Retry-After: ${after}`)
    },
  },
]

export const UPSTREAM_CHECKS: readonly Check[] = checksOf(
  'upstream',
  { group: 'upstream', dialects: BOTH, basis: BASIS.api, sends: 1 },
  ROWS.map(({ fails = false, ...row }) => ({
    ...row,
    needs: 'provider',
    ...(fails ? { sends: 2 } : {}),
    async run(tester, dialect) {
      const verdict = await row.run(tester, dialect)
      if (fails) await settled(tester, dialect)
      return verdict
    },
  })),
)

const SETTLE_POLL = { tries: 6, pauseMs: 1_500 } as const

/** Waits until the gateway calls its provider again, but only a few seconds. */
export async function settled(tester: Tester, dialect: Dialect): Promise<void> {
  const { repeat } = tester
  for (let attempt = 1; attempt <= SETTLE_POLL.tries; attempt++) {
    const { reply } = await tester.ask(dialect)
    if (reply.status === 200) break
    await new Promise<void>(resolve => tester.deps.clock.after(SETTLE_POLL.pauseMs, resolve))
  }
  tester.repeat = repeat
}

function limitedAnswer(tester: Tester, dialect: Dialect): Promise<ProbeAnswer> {
  return tester.sample(dialect, 'limited', { script: 'limited' })
}

async function checkDelivery(tester: Tester, dialect: Dialect): Promise<CheckVerdict> {
  const id = newId()
  const pieces = piecesFor('gated', id)
  const ends = pieces.map((_, index) => pieces.slice(0, index + 1).join('').length)
  let eventCount = 0
  const onText = (text: string): undefined => {
    const length = dialect.stream(readStream(text)).text.length
    eventCount = Math.max(eventCount, ends.findLastIndex(end => length >= end) + 1)
    tester.deps.provider?.saw(id, eventCount)
  }
  const answer = await tester.ask(dialect, { script: 'gated', stream: true, onText }, id)
  if (answer.reply.status !== 200) return fail(statusOf(answer))
  const late = tester.deps.provider?.late(id) ?? null
  return late === null
    ? pass(`${pieces.length} pieces, each before the next`)
    : fail(`piece ${late} of ${pieces.length} was held back until the provider wrote more`)
}

function checkIntact(script: Script): Check['run'] {
  return async (tester, dialect) =>
    intactStream(await tester.ask(dialect, { script, stream: true }), dialect, script)
}

/** Judges a stream by its text, character by character, and by its events. */
export function intactStream(answer: ProbeAnswer, dialect: Dialect, script: Script): CheckVerdict {
  const verdict = judgeText(answer, script)
  if (verdict.outcome !== 'pass') return verdict
  return faultless(
    dialect.violations(answer.stream.events).map(({ what }) => what),
    verdict.seen,
  )
}

function judgeText(answer: ProbeAnswer, script: Script = 'plain'): CheckVerdict {
  if (answer.reply.status !== 200) return fail(statusOf(answer))
  const expectedText = piecesFor(script, answer.id).join('')
  const { text } = answer.understood
  if (text === expectedText) return pass(`${text.length} characters`)
  let index = 0
  while (index < expectedText.length && expectedText[index] === text[index]) index++
  const excerpt = text.slice(Math.max(0, index - 10), index + 20)
  return fail(
    `${text.length} characters, not ${expectedText.length}; from character ${index} on they differ: ${excerpt}`,
  )
}

function judgeRefusal(answer: ProbeAnswer, isRight: (status: number) => boolean): CheckVerdict {
  if (!isRight(answer.reply.status)) return fail(statusOf(answer))
  const error = answer.document?.['error'] as { message?: unknown } | undefined
  return typeof error?.message === 'string'
    ? pass(statusOf(answer))
    : fail(`${answer.reply.status} without error.message`)
}

function checkRefusal(options: AskOptions): Check['run'] {
  return async (tester, dialect) => judgeRefusal(await tester.ask(dialect, options), status => status >= 500)
}

function checkReportedFailure(script: Script): Check['run'] {
  return async (tester, dialect) => {
    const answer = await tester.ask(dialect, { script, stream: true })
    return answer.reply.status === 200 ? judgeEnd(answer) : pass(statusOf(answer))
  }
}

/** Checks the end of a stream whose provider failed: an event reports it, or the connection breaks. */
function judgeEnd({ understood, reply }: ProbeAnswer): CheckVerdict {
  if (understood.end === 'failed') return pass('an event reports the failure')
  if (understood.end === 'ended') return fail('the client sees a normal end')
  if (reply.end === 'cut' || reply.end === 'reset')
    return pass('the connection is cut, so clients report an error')
  return fail(
    reply.end === 'whole'
      ? 'the body ends properly, without any sign of the failure'
      : `the end: ${reply.end}`,
  )
}
