/**
 * Checks of requests that clients send and strict providers refuse, although a gateway can write them in an accepted
 * form. They need the scripted provider.
 */
import { BOTH, type Check, type CheckVerdict, checksOf, fail, pass, statusOf } from '../check.ts'
import type { Dialect } from '../dialects.ts'
import { mark } from '../provider.ts'
import { newId, type Tester } from '../tester.ts'

interface Call {
  readonly id: string
  readonly arguments: string
}

/** One step of a conversation before the question. */
type Step = { readonly calls: readonly Call[] } | { readonly output: string } | { readonly user: string }

interface Row {
  readonly name: string
  readonly asserts: string
  readonly matters: string
  readonly history?: readonly Step[]
  readonly question?: string
}

const TOOL = {
  name: 'look_up',
  description: 'Looks something up',
  parameters: { type: 'object', properties: { location: { type: 'string' } } },
}
const REFUSAL_HARM = 'agents whose tools or histories look like this cannot use the model at all'
const call = (id: string, text = '{"location":"Oslo"}'): Call => ({ id, arguments: text })

const ROWS: readonly Row[] = [
  {
    name: 'call-ids-again',
    asserts: 'a history in which two calls have the same id is accepted',
    matters: REFUSAL_HARM,
    history: [
      { calls: [call('call_0')] },
      { output: 'call_0' },
      { user: 'And there?' },
      { calls: [call('call_0', '{"location":"Rome"}')] },
      { output: 'call_0' },
    ],
  },
  {
    name: 'message-between-outputs',
    asserts: 'a history with a message between the outputs of two parallel calls is accepted',
    matters: REFUSAL_HARM,
    history: [
      { calls: [call('call_0'), call('call_1')] },
      { output: 'call_0' },
      { user: 'By the way, hurry.' },
      { output: 'call_1' },
    ],
  },
  {
    name: 'half-a-character',
    asserts: 'text with half a surrogate pair is accepted, or refused with 400',
    matters: 'one broken file name ends a whole session',
    question: 'What is \ud83d?',
  },
]

export const RECEIVER_CHECKS: readonly Check[] = checksOf(
  'receivers',
  { group: 'upstream', dialects: BOTH, basis: 'public reports about clients', sends: 1 },
  ROWS.map(({ name, asserts, matters, ...row }) => ({
    name,
    asserts,
    matters,
    weight: 'should' as const,
    needs: 'provider' as const,
    run: (tester, dialect) => checkHistory(row, tester, dialect),
  })),
)

async function checkHistory(
  { history = [], question = 'Go on.' }: Omit<Row, 'name' | 'asserts' | 'matters'>,
  tester: Tester,
  dialect: Dialect,
): Promise<CheckVerdict> {
  const id = newId()
  const steps: readonly Step[] = [
    { user: 'What is it like in Oslo?' },
    ...history,
    { user: `${mark('strict', id)} ${question}` },
  ]
  const isChat = dialect.name === 'chat'
  const body = isChat
    ? { messages: steps.map(chatMessage), tools: [{ type: 'function', function: TOOL }] }
    : {
        input: steps.flatMap(responsesItems),
        tools: [{ type: 'function', ...TOOL }],
      }
  const { reply, document, understood } = await tester.ask(dialect, { body }, id)
  if (reply.status === 400 && question !== 'Go on.') return pass(statusOf({ reply, document }))
  if (reply.status !== 200) return fail(statusOf({ reply, document }))
  const [firstCall] = understood.calls
  return firstCall?.name === TOOL.name
    ? pass(`a call of ${TOOL.name}`)
    : fail(`a call of ${firstCall?.name ?? 'nothing'}, not of ${TOOL.name}`)
}

function chatMessage(step: Step): object {
  if ('user' in step) return { role: 'user', content: step.user }
  if ('output' in step) return { role: 'tool', tool_call_id: step.output, content: 'rain' }
  return {
    role: 'assistant',
    content: null,
    tool_calls: step.calls.map(({ id, arguments: text }) => ({
      id,
      type: 'function',
      function: { name: TOOL.name, arguments: text },
    })),
  }
}

function responsesItems(step: Step): readonly object[] {
  if ('user' in step) return [{ role: 'user', content: step.user }]
  if ('output' in step) return [{ type: 'function_call_output', call_id: step.output, output: 'rain' }]
  return step.calls.map(({ id, arguments: text }) => ({
    type: 'function_call',
    call_id: id,
    name: TOOL.name,
    arguments: text,
  }))
}
