/**
 * Checks of answers that outlive their provider: where a gateway lets a broken stream go on at another endpoint, the
 * client reads one answer. No document demands it, so they are skipped at a gateway that reports the failure. They need
 * the scripted provider at two endpoints of the model.
 */
import {
  BASIS,
  BOTH,
  type Check,
  type CheckRow,
  type CheckVerdict,
  checksOf,
  fail,
  pass,
  skip,
} from '../check.ts'
import type { Dialect } from '../dialects.ts'
import type { OutlivedName } from '../outlived.ts'
import { objectOf } from '../sse.ts'
import { type AskOptions, newId, type ProbeAnswer, type Tester } from '../tester.ts'
import { intactStream, settled } from './upstream.ts'

const GARBLED_HARM = 'the reader sees words twice, or misses some, in the middle of an answer'
const NOT_OFFERED = 'not offered here: a stream does not go on when its provider breaks off'
/** The second endpoint may be avoided after the failures of other checks. */
const MAX_SURVEY_ATTEMPTS = 3
const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string' }, rain: { type: 'boolean' } },
  required: ['city', 'rain'],
  additionalProperties: false,
}

interface Row {
  readonly name: string
  readonly asserts: string
  readonly matters: string
  readonly script: OutlivedName
  readonly options?: (dialect: Dialect) => AskOptions
  /** The result that a client must see. */
  judge(answer: ProbeAnswer, dialect: Dialect, script: OutlivedName): CheckVerdict
}

const ROWS: readonly Row[] = [
  {
    name: 'text',
    asserts:
      'a text that goes on after its provider cut the connection is one text, without a doubled or missing character',
    matters: GARBLED_HARM,
    script: 'outlived',
    judge: judgeText,
  },
  {
    name: 'end',
    asserts: 'the same, if the provider ended the stream before its last event',
    matters: GARBLED_HARM,
    script: 'outlived-end',
    judge: judgeText,
  },
  {
    name: 'repeated',
    asserts: 'if the next model repeats the last words, the client reads them once',
    matters: GARBLED_HARM,
    script: 'outlived-again',
    judge: judgeText,
  },
  {
    name: 'twice',
    asserts: 'a text that breaks a second time goes on again, or its failure is reported',
    matters: 'clients mistake half an answer for a whole one',
    script: 'outlived-twice',
    judge: (answer, ...rest) => reportedFailure(answer) ?? judgeText(answer, ...rest),
  },
  {
    name: 'call',
    asserts:
      'a tool call that breaks off is not put together from two replies: the call is right, or its failure is reported',
    matters: 'the tool runs with arguments that no model has written',
    script: 'outlived-call',
    options: () => ({ calls: true }),
    judge: answer => reportedFailure(answer) ?? judgeCall(answer),
  },
  {
    name: 'json',
    asserts:
      'a document by a strict schema is not put together from two replies: it is valid, or its failure is reported',
    matters: 'programs parse it, and were promised that they can',
    script: 'outlived-json',
    options: ({ name }) => ({
      body:
        name === 'chat'
          ? {
              response_format: {
                type: 'json_schema',
                json_schema: { name: 'weather', strict: true, schema: SCHEMA },
              },
            }
          : { text: { format: { type: 'json_schema', name: 'weather', strict: true, schema: SCHEMA } } },
    }),
    judge: (answer, ...rest) => reportedFailure(answer) ?? judgeText(answer, ...rest),
  },
]

export const CONTINUED_CHECKS: readonly Check[] = checksOf(
  'continued',
  { group: 'upstream', dialects: BOTH, basis: BASIS.api, sends: 2 },
  ROWS.map(
    ({ script, options, judge, ...row }): CheckRow => ({
      ...row,
      needs: 'provider',
      async run(tester, dialect) {
        if (!(await continues(tester, dialect))) {
          tester.repeat = ''
          return skip(NOT_OFFERED)
        }
        const answer = await tester.ask(dialect, { ...options?.(dialect), script, stream: true })
        const verdict = judge(answer, dialect, script)
        await settled(tester, dialect)
        return verdict
      },
    }),
  ),
)

/** True if the gateway calls its provider again when a text breaks off. */
async function continues(tester: Tester, dialect: Dialect): Promise<boolean> {
  return await tester.once(`${dialect.name} continued`, async () => {
    for (let attempt = 1; attempt <= MAX_SURVEY_ATTEMPTS; attempt++) {
      const id = newId()
      await tester.ask(dialect, { script: 'outlived', stream: true }, id)
      if ((tester.deps.provider?.runs(id) ?? 0) > 1) return true
      await settled(tester, dialect)
    }
    return false
  })
}

/** A failure that the client can see; null: the answer ends as if it were whole, or just stops. */
function reportedFailure({ reply, understood }: ProbeAnswer): CheckVerdict | null {
  if (understood.end === 'failed') return pass('an event reports the failure')
  if (understood.end === 'open' && (reply.end === 'cut' || reply.end === 'reset'))
    return pass('the connection is cut, so clients report an error')
  return null
}

function judgeText(answer: ProbeAnswer, dialect: Dialect, script: OutlivedName): CheckVerdict {
  const { end } = answer.understood
  if (answer.reply.status === 200 && end !== 'ended')
    return fail(end === 'failed' ? 'the client is told of a failure' : 'the stream has no end')
  return intactStream(answer, dialect, script)
}

function judgeCall({ understood: { calls } }: ProbeAnswer): CheckVerdict {
  const [call, ...others] = calls
  if (call === undefined || others.length > 0) return fail(`${calls.length} calls, not one`)
  return objectOf(call.arguments)?.['location'] === 'San Francisco'
    ? pass('the call is right')
    : fail(`the arguments of the call are ${call.arguments.slice(0, 60)}`)
}
