/** Plays every reply to clients of several dialects and compares what they understand of it. */
import { asksForStream, type Case } from './cases.ts'
import { bodyText, Client } from './client.ts'
import { eachOf } from './compare.ts'
import { API_KEY, modelOf, type ParityGateway } from './gateway.ts'
import { chatStreamFlaws, type Said, saidInChat, saidInResponses, type Told } from './said.ts'
import { asMessagesSay, messagesStreamFlaws, saidInMessages } from './said-messages.ts'

/** One item in both dialects: without usage of the provider, input is estimated by the length of its items. */
const MESSAGE = { role: 'user', content: 'Say it again.' }
/** The same in all, because one of them demands it: what is sent decides how much input a provider can have read. */
const OUTPUT_TOKENS = 100_000

/** How one kind of client asks and reads. */
interface DialectReader {
  readonly name: string
  readonly path: string
  body(model: string, stream: boolean): unknown
  read(told: Told): Said
  /** The same in words that this dialect has; absent: it has them all. */
  inItsWords?(said: Said): Said
  /** What is wrong with the reply whatever was said; empty: nothing. */
  flaws(told: Told): readonly string[]
}

const RESPONSES: DialectReader = {
  name: 'responses',
  path: '/responses',
  body: (model, stream) => ({
    model,
    stream,
    max_output_tokens: OUTPUT_TOKENS,
    input: [{ type: 'message', ...MESSAGE }],
  }),
  read: saidInResponses,
  flaws: () => [],
}

/** Each is compared with Responses. */
const OTHERS: readonly DialectReader[] = [
  {
    name: 'chat-completions',
    path: '/chat/completions',
    body: (model, stream) => ({ model, stream, max_completion_tokens: OUTPUT_TOKENS, messages: [MESSAGE] }),
    read: saidInChat,
    flaws: chatStreamFlaws,
  },
  {
    name: 'messages',
    path: '/messages',
    body: (model, stream) => ({ model, stream, max_tokens: OUTPUT_TOKENS, messages: [MESSAGE] }),
    read: saidInMessages,
    inItsWords: asMessagesSay,
    flaws: messagesStreamFlaws,
  },
]

export interface DialectResult {
  readonly case: Case
  readonly dialect: string
  /** What differs, by field; empty: nothing. */
  readonly differences: readonly string[]
}

/** Each reply is played once, in the way in which it was recorded. */
export function dialectCases(cases: readonly Case[]): readonly Case[] {
  return cases.filter(
    ({ play, way }) => play.source !== 'foreign' && way === (play.streamed ? 'streamed' : 'whole'),
  )
}

/** @throws Error when the gateway has no operation of a dialect */
export async function compareDialects(
  cases: readonly Case[],
  gateway: ParityGateway,
  done: (count: number) => void,
): Promise<readonly DialectResult[]> {
  const client = new Client()
  const ask = async (dialect: DialectReader, one: Case): Promise<Told> => {
    const stream = asksForStream(one)
    const reply = await client.ask({
      url: gateway.url + dialect.path,
      headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
      body: dialect.body(modelOf(one), stream),
    })
    if (reply.status === 404 || reply.status === 405)
      throw new Error(`POST ${dialect.path} is answered with ${reply.status}: it is not served`)
    return { status: reply.status, body: bodyText(reply.body), streamed: stream }
  }
  const results: DialectResult[] = []
  try {
    await eachOf(
      cases,
      async one => {
        const expected = RESPONSES.read(await ask(RESPONSES, one))
        for (const dialect of OTHERS) {
          const told = await ask(dialect, one)
          const inItsWords = dialect.inItsWords ?? (said => said)
          const unequal = unlike(inItsWords(expected), inItsWords(dialect.read(told)))
          const differences = [...unequal, ...dialect.flaws(told)]
          results.push({ case: one, dialect: dialect.name, differences })
        }
      },
      done,
    )
  } finally {
    client.close()
  }
  return results
}

/** The fields in which two readings differ, each with both values. Pure. */
export function unlike(expected: Said, actual: Said): readonly string[] {
  return (Object.keys(expected) as (keyof Said)[]).flatMap(field => {
    const [left, right] = [JSON.stringify(expected[field]), JSON.stringify(actual[field])]
    return left === right ? [] : [`${field}: ${left} became ${right}`]
  })
}
