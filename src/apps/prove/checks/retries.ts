/**
 * Checks of the header Idempotency-Key: a client that asks again gets the answer to its first request, which ran once.
 * No document demands it, so they are skipped at a gateway that runs such a request twice. They need the scripted
 * provider, which counts its runs.
 */
import {
  BOTH,
  type Check,
  type CheckRow,
  type CheckVerdict,
  checksOf,
  fail,
  faultless,
  pass,
  skip,
  statusOf,
  warn,
} from '../check.ts'
import type { Dialect } from '../dialects.ts'
import { piecesFor, type Script, UNKNOWN_KEY } from '../provider.ts'
import { fields } from '../sse.ts'
import { type AskOptions, newId, type ProbeAnswer, type Tester } from '../tester.ts'
import { settled } from './upstream.ts'

const DOUBLE_COST_HARM = 'a client that times out and asks again pays for both runs'
const LEAK_HARM = 'one customer reads the answer of another'
/** Requests of the survey, which the first of these checks sends. */
const SURVEY_SENDS = 3

/** A request, and another one with the same key. */
interface RetriedRequest {
  readonly first: ProbeAnswer
  readonly again: ProbeAnswer
  /** Of the provider, for both. */
  readonly runs: number
}

/** How the gateway treats the header. */
interface Survey extends RetriedRequest {
  readonly key: string
  /** The reason why nothing is checked; null: the gateway knows the header. */
  readonly why: string | null
}

type Row = Omit<CheckRow, 'run'> & {
  run(tester: Tester, dialect: Dialect, survey: Survey): Promise<CheckVerdict>
}

const ROWS: readonly Row[] = [
  {
    name: 'kept',
    asserts: 'the same request with the same Idempotency-Key gets the first answer, which ran once',
    matters: DOUBLE_COST_HARM,
    sends: SURVEY_SENDS,
    run: async (_, __, survey) => judgeSameAnswer(survey, 'plain'),
  },
  {
    name: 'kept-stream',
    asserts: 'a stream that is asked for again is the first one, from its first event',
    matters: DOUBLE_COST_HARM,
    run: async (tester, dialect) => {
      const retried = await askTwice(tester, dialect, { stream: true })
      const same = judgeSameAnswer(retried, 'plain')
      if (same.outcome !== 'pass') return same
      return faultless(
        dialect.violations(retried.again.stream.events).map(({ what }) => what),
        same.seen,
      )
    },
  },
  {
    name: 'running',
    asserts: 'a request that is sent again while the first one runs does not run a second time',
    matters: DOUBLE_COST_HARM,
    async run(tester, dialect) {
      const id = newId()
      const options = withKey(newId(), { script: 'late' })
      const [first, again] = await Promise.all([
        tester.ask(dialect, options, id),
        tester.ask(dialect, options, id),
      ])
      // Either may be the one that came later.
      const isRefused = first.reply.status === 409
      const retried = isRefused ? { first: again, again: first } : { first, again }
      return judgeWhileRunning({ ...retried, runs: runsOf(tester, id) }, 'late')
    },
  },
  {
    name: 'running-stream',
    asserts: 'a client that loses its stream and asks again gets it from the first event, of the same run',
    matters: DOUBLE_COST_HARM,
    run: async (tester, dialect) =>
      judgeWhileRunning(
        await askTwice(tester, dialect, { stream: true, script: 'slow' }, text => text.includes('\n\n')),
        'slow',
      ),
  },
  {
    name: 'other-body',
    asserts: 'another request under the same key is refused, and does not get the first answer',
    matters: 'a program with a wrong key takes the answer to one question for that to another',
    sends: 1,
    async run(tester, dialect, { first, key }) {
      const id = newId()
      const answer = await tester.ask(dialect, withKey(key), id)
      const { status } = answer.reply
      if (answer.understood.text !== '' && answer.understood.text === first.understood.text)
        return fail('it gets the answer to the first request')
      if (status >= 400 && status < 500) return pass(statusOf(answer))
      return runsOf(tester, id) > 0
        ? warn(`status ${status}: it runs as if its key were new`)
        : fail(statusOf(answer))
    },
  },
  {
    name: 'wrong-key',
    asserts: 'without a valid API key, an Idempotency-Key does not lead to the kept answer',
    matters: LEAK_HARM,
    sends: 1,
    run: (tester, dialect, survey) => judgeOtherKey(tester, dialect, survey, UNKNOWN_KEY),
  },
  {
    name: 'second-key',
    asserts: 'another API key with the same Idempotency-Key gets an answer of its own',
    matters: LEAK_HARM,
    needs: 'second-key',
    sends: 1,
    run: (tester, dialect, survey) => judgeOtherKey(tester, dialect, survey, tester.deps.secondKey),
  },
  {
    name: 'failure',
    weight: 'should',
    asserts: 'a failure of the provider is not kept: the next request with that key runs',
    matters: 'SDKs retry failures with the same key, and get the failure again',
    sends: 3,
    async run(tester, dialect) {
      const id = newId()
      const options = withKey(newId(), { script: 'broken' })
      const first = await tester.ask(dialect, options, id)
      if (first.reply.status < 500) return skip(`the failure does not arrive: ${statusOf(first)}`)
      tester.deps.provider?.mend(id)
      await settled(tester, dialect)
      const again = await tester.ask(dialect, options, id)
      return again.reply.status === 200 ? pass('200 after the failure') : fail(statusOf(again))
    },
  },
]

export const RETRY_CHECKS: readonly Check[] = checksOf(
  'retries',
  {
    group: 'upstream',
    dialects: BOTH,
    basis: 'IETF draft, The Idempotency-Key HTTP Header Field',
    sends: 2,
  },
  ROWS.map(row => ({
    needs: 'provider',
    ...row,
    async run(tester, dialect) {
      const survey = await surveyOf(tester, dialect)
      if (survey.why === null) return await row.run(tester, dialect, survey)
      tester.repeat = ''
      return skip(survey.why)
    },
  })),
)

/** Sends one request twice with one key, and once with another key: two runs show that the key decides. */
async function surveyOf(tester: Tester, dialect: Dialect): Promise<Survey> {
  return await tester.once(`${dialect.name} Idempotency-Key`, async () => {
    const id = newId()
    const key = newId()
    const first = await tester.ask(dialect, withKey(key), id)
    const again = await tester.ask(dialect, withKey(key), id)
    const runs = runsOf(tester, id)
    const survey = { key, first, again, runs }
    if (first.reply.status !== 200) return { ...survey, why: `not offered here: ${statusOf(first)}` }
    if (runs > 1)
      return { ...survey, why: 'not offered here: requests with the same Idempotency-Key ran twice' }
    const { repeat } = tester
    await tester.ask(dialect, withKey(newId()), id)
    tester.repeat = repeat
    const isCache = runsOf(tester, id) === runs
    return {
      ...survey,
      why: isCache
        ? 'not run: the gateway caches answers, so a repeated request does not run again even with another Idempotency-Key'
        : null,
    }
  })
}

/** The options of a request with this key. */
function withKey(key: string, options: AskOptions = {}): AskOptions {
  return { ...options, headers: [['Idempotency-Key', key]] }
}

/** @param shouldLeave the first client disconnects once it has read this */
async function askTwice(
  tester: Tester,
  dialect: Dialect,
  options: AskOptions,
  shouldLeave?: (text: string) => boolean,
): Promise<RetriedRequest> {
  const id = newId()
  const keyedOptions = withKey(newId(), options)
  const first = await tester.ask(
    dialect,
    shouldLeave === undefined ? keyedOptions : { ...keyedOptions, onText: shouldLeave },
    id,
  )
  const again = await tester.ask(dialect, keyedOptions, id)
  return { first, again, runs: runsOf(tester, id) }
}

function runsOf(tester: Tester, id: string): number {
  return tester.deps.provider?.runs(id) ?? 0
}

function judgeSameAnswer({ first, again, runs }: RetriedRequest, script: Script): CheckVerdict {
  if (again.reply.status !== first.reply.status) return fail(statusOf(again))
  if (runs !== 1) return fail(`the request ran ${runs} times`)
  const expectedText = piecesFor(script, again.id).join('')
  if (again.understood.text !== expectedText)
    return fail(`${again.understood.text.length} characters, not ${expectedText.length}`)
  if (again.understood.end !== 'ended') return fail('the answer has no proper end')
  return idOf(again) === idOf(first) ? pass('one run, one answer') : fail('the answers have different ids')
}

function judgeWhileRunning(retried: RetriedRequest, script: Script): CheckVerdict {
  const { again, runs } = retried
  if (again.reply.status === 409 && runs === 1) return pass(statusOf(again))
  return judgeSameAnswer(retried, script)
}

/** Sends the first request with another API key: its answer must be another one, or a refusal. */
async function judgeOtherKey(
  tester: Tester,
  dialect: Dialect,
  { key, first }: Survey,
  apiKey: string | null,
): Promise<CheckVerdict> {
  const answer = await tester.ask(dialect, { ...withKey(key), key: apiKey }, first.id)
  if (answer.reply.status !== 200) return pass(statusOf(answer))
  return idOf(answer) === idOf(first) ? fail('it gets the first answer') : pass('an answer of its own')
}

/** The id of an answer or of the first event of a stream; both interfaces have one. */
function idOf({ document, stream }: ProbeAnswer): unknown {
  const json = document ?? stream.events[0]?.json
  return json?.['id'] ?? fields(json?.['response'])['id']
}
