/** Checks with the recorded traffic of a client: its requests, and its requirements for the answers. */
import { type Check, type CheckVerdict, checksOf, fail, faultless, pass } from '../check.ts'
import { type ClientReply, named, type ProvedClient } from '../clients/clients.ts'
import { UNKNOWN_KEY, UNKNOWN_MODEL } from '../provider.ts'
import type { SeenReply } from '../raw-reply.ts'
import { fields, objectOf, readStream, string } from '../sse.ts'
import { MAX_TOKENS, type Tester } from '../tester.ts'

interface ReplayedRequest {
  readonly reply: SeenReply
  readonly read: ClientReply
  /** Tools of the request, under the client's names. */
  readonly declared: readonly string[]
}

/** Lists the faults of one reply. */
type ReplyJudge = (replayed: ReplayedRequest) => readonly string[]

/** All checks of this client. */
export function clientChecks(client: ProvedClient): readonly Check[] {
  const modelRequests = client.requests.filter(({ body }) => body !== null)
  const basis = `what ${client.title} sends and reads`

  async function replay(
    tester: Tester,
    index: number,
    model: string,
    key?: string,
  ): Promise<ReplayedRequest> {
    const request = modelRequests[index]
    const body = client.bodyFor(request?.body ?? {}, model, MAX_TOKENS)
    const reply = await tester.request(
      request?.method ?? '',
      named(request?.path ?? '', model),
      JSON.stringify(body),
      {
        isRoot: true,
        keyHeader: client.keyHeader,
        headers: Object.entries(request?.headers ?? {}).map(([name, value]) => [
          name,
          named(String(value), model),
        ]),
        ...(key === undefined ? {} : { key }),
      },
    )
    return { reply, read: client.read(readStream(reply.text)), declared: client.declared(body) }
  }

  /** Sends each request once, even if several checks use its reply. */
  async function judgeAll(tester: Tester, judge: ReplyJudge, observation: string): Promise<CheckVerdict> {
    const faults: string[] = []
    for (const index of modelRequests.keys()) {
      const replayed = await tester.once(`${client.name} ${index}`, () =>
        replay(tester, index, tester.deps.target.model),
      )
      faults.push(
        ...judge(replayed).map(fault => `request ${index + 1} of ${modelRequests.length}: ${fault}`),
      )
    }
    return faultless(faults, observation)
  }

  /** Checks only successful replies: the others already count as failures. */
  const whenAnswered =
    (judge: ReplyJudge): ReplyJudge =>
    replayed =>
      replayed.reply.status === 200 ? judge(replayed) : []

  async function refusal(
    expected: readonly number[],
    ask: () => Promise<ReplayedRequest>,
  ): Promise<CheckVerdict> {
    const { reply } = await ask()
    if (!expected.includes(reply.status)) return fail(`status ${reply.status}`)
    const fault = client.errorFault(objectOf(reply.text))
    return fault === null ? pass(`status ${reply.status}`) : fail(fault)
  }

  return checksOf('client', { group: 'conformance', dialects: null, basis, sends: 0 }, [
    {
      name: 'accepted',
      asserts: 'each request of a recorded session is answered with 200 and a stream',
      matters: 'a refused request ends the session, or is sent again and again',
      sends: modelRequests.length,
      run: tester =>
        judgeAll(
          tester,
          ({ reply }) => {
            const type = reply.headers.get('content-type') ?? 'none'
            if (reply.status !== 200) return [`status ${reply.status}${messageOf(reply)}`]
            return /^text\/event-stream\b/i.test(type) ? [] : [`Content-Type is ${type}`]
          },
          `${modelRequests.length} requests`,
        ),
    },
    {
      name: 'stream',
      asserts: 'the streams have the events that the client waits for, and none that break it',
      matters:
        'otherwise the client stops in the middle of its work, or sends the request again and pays twice',
      run: tester =>
        judgeAll(
          tester,
          whenAnswered(({ read }) => read.faults),
          'all streams can be read to their end',
        ),
    },
    {
      name: 'calls',
      asserts: 'calls name tools exactly as the request declares them, and have an id and JSON arguments',
      matters: 'a call by another name, or without its namespace, cannot be run',
      run: tester =>
        judgeAll(
          tester,
          whenAnswered(({ read: { calls }, declared }) =>
            calls.flatMap(({ id, name, arguments: text }) => [
              ...(declared.includes(name) ? [] : [`the tool ${name} was never declared`]),
              ...(id === '' ? [`the call of ${name} has no id`] : []),
              ...(objectOf(text) === undefined ? [`the arguments of ${name} are not a JSON object`] : []),
            ]),
          ),
          'all calls can be run',
        ),
    },
    {
      name: 'usage',
      asserts: 'each reply reports its input and output tokens where the client looks for them',
      matters: 'the client uses these numbers to compact its conversation and to show costs',
      run: tester =>
        judgeAll(
          tester,
          whenAnswered(({ read: { usage } }) =>
            usage === null ? ['there is no usage'] : usage[0] > 0 ? [] : ['the prompt has no tokens'],
          ),
          'all replies have usage',
        ),
    },
    {
      name: 'unknown-model',
      asserts: 'a model that does not exist is refused with 400 or 404, in the form that the client shows',
      matters: 'otherwise the user sees no message, or a wrong one',
      sends: 1,
      run: tester => refusal([400, 404], () => replay(tester, 0, UNKNOWN_MODEL)),
    },
    {
      name: 'wrong-key',
      asserts: 'a wrong key is refused with 401 or 403, in the form that the client shows',
      matters: 'otherwise the client retries, or says that the network is down',
      sends: 1,
      run: tester => refusal([401, 403], () => replay(tester, 0, tester.deps.target.model, UNKNOWN_KEY)),
    },
  ])
}

function messageOf(reply: SeenReply): string {
  const message = string(fields(fields(objectOf(reply.text))['error'])['message'])
  return message === '' ? '' : `: ${message}`
}
