/** Checks of replies that are not streamed. */
import {
  BASIS,
  BOTH,
  type Check,
  type CheckVerdict,
  checksOf,
  fail,
  faultless,
  pass,
  skip,
  statusOf,
} from '../check.ts'
import { FUNCTION_NAME, type UnderstoodCall } from '../dialects.ts'
import { objectOf } from '../sse.ts'
import type { ProbeAnswer, Tester } from '../tester.ts'

/** Checks of samples that several checks share. */
export const SAMPLED = { group: 'conformance', dialects: BOTH, basis: BASIS.api, sends: 0 } as const

export const REPLY_CHECKS: readonly Check[] = checksOf('reply', SAMPLED, [
  {
    name: 'status',
    asserts: 'a valid request is answered with 200 and an application/json body',
    matters: 'clients choose their parser by status and type',
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'whole')
      const type = answer.reply.headers.get('content-type') ?? 'none'
      if (answer.reply.status !== 200) return fail(statusOf(answer))
      return /^application\/json\b/i.test(type) ? pass(`200, ${type}`) : fail(`Content-Type is ${type}`)
    },
  },
  {
    name: 'schema',
    asserts: 'the reply has the fields that the reference requires, with their types',
    matters: 'typed clients read these fields without asking whether they are there',
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'whole')
      return whenOk(answer, () =>
        faultless(dialect.wholeFaults(answer.document), 'all required fields are there'),
      )
    },
  },
  {
    name: 'text',
    asserts: 'the reply has text, and its status says that it is finished',
    matters: 'clients show an empty answer with status 200 as what the model said',
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'whole')
      return whenOk(answer, ({ understood: { text, end } }) => {
        if (end !== 'ended') return fail('the reply says that it failed')
        // A thinking model may use up all its tokens before it writes text.
        if (text === '' && isCut(answer)) return skip('the model spent its tokens before its first word')
        return text === '' ? fail('the text is empty') : pass(`${text.length} characters`)
      })
    },
  },
  {
    name: 'usage',
    asserts: 'the reply has usage, and input and output tokens add up to the total',
    matters: 'callers are billed, and set limits, by these numbers',
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'whole')
      return whenOk(answer, ({ understood: { usage } }) => {
        if (usage === null) return fail('there is no usage')
        const [input, output, total] = usage
        const sum = `${input} + ${output}`
        return input + output === total && input > 0
          ? pass(`${sum} = ${total}`)
          : fail(`${sum}, total ${total}`)
      })
    },
  },
  {
    name: 'length',
    asserts: 'the body is as long as announced, and is UTF-8',
    matters: 'a body that ends early causes parse errors in clients, at random times',
    basis: BASIS.http1,
    async run(tester, dialect) {
      const { reply } = await tester.sample(dialect, 'whole')
      if (reply.end !== 'whole') return fail(`the end of the body: ${reply.end}`)
      return reply.isUtf8 ? pass('complete, UTF-8') : fail('the body is not UTF-8')
    },
  },
  {
    name: 'call',
    asserts: 'a forced function call arrives as a call, with its name and arguments that are JSON',
    matters: 'agents run what the arguments say',
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'called')
      return calling(tester, answer, ({ understood }) => [
        ...(dialect.wholeFaults(answer.document) ?? []),
        ...callFaults(understood.calls[0], isCut(answer)),
      ])
    },
  },
])

/** The gateway does not promise that a model obeys; the scripted provider always does. */
export const NO_CALLS = 'the model calls no functions: name another one, or start with --provider-port'

/** Judges a reply with status 200. Models and gateways without function calls are skipped. */
export function calling(
  { deps }: Tester,
  answer: ProbeAnswer,
  faults: (answer: ProbeAnswer) => readonly string[],
): CheckVerdict {
  if (answer.reply.status >= 400 && answer.reply.status < 500)
    return skip(`function calls are not supported here: ${statusOf(answer)}`)
  if (answer.reply.status === 200 && answer.understood.calls.length === 0 && deps.provider === null)
    return skip(NO_CALLS)
  return whenOk(answer, () => faultless(faults(answer), `a call of ${FUNCTION_NAME}`))
}

export function callFaults(call: UnderstoodCall | undefined, isCut: boolean): readonly string[] {
  if (isCut) return []
  if (call === undefined) return ['there is no call']
  return [
    ...(call.name === FUNCTION_NAME
      ? []
      : [`the call is for ${call.name || 'nothing'}, not for ${FUNCTION_NAME}`]),
    ...(objectOf(call.arguments) === undefined
      ? [`the arguments are not JSON: ${call.arguments.slice(0, 60)}`]
      : []),
  ]
}

export function whenOk(answer: ProbeAnswer, judge: (reply: ProbeAnswer) => CheckVerdict): CheckVerdict {
  return answer.reply.status === 200 ? judge(answer) : fail(statusOf(answer))
}

/** True if the token limit ended the reply. */
export function isCut({ reply }: ProbeAnswer): boolean {
  return /"finish_reason":\s*"length"|"status":\s*"incomplete"/.test(reply.text)
}
