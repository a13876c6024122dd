/**
 * Plays every reply to clients of several dialects, live and as batch requests, and compares what each client reads
 * from it.
 */
import { createLine, endedLine } from './batch-line.ts'
import { asksForStream, asksToWait, type Case, labelOf, type Play } from './cases.ts'
import { bodyText, Client } from './client.ts'
import { eachOf } from './compare.ts'
import { API_KEY, modelOf, type ParityGateway } from './gateway.ts'
import { chatStreamFlaws, type Said, saidInChat, saidInResponses, type Told } from './said.ts'
import { asGeminiSays, geminiStreamFlaws, saidInGemini } from './said-gemini.ts'
import { asMessagesSay, messagesStreamFlaws, saidInMessages } from './said-messages.ts'
import { wholeForm } from './whole-form.ts'

/** One item in both dialects: without usage of the provider, input is estimated by the length of its items. */
const MESSAGE = { role: 'user', content: 'Say it again.' }
/** The same in all, because one of them demands it: what is sent decides how much input a provider can have read. */
const OUTPUT_TOKENS = 100_000
/** Replies at the same time: as many batches as the gateway lets one key send at once. */
const CONCURRENCY = 4

/** How one kind of client asks and reads. */
export interface DialectReader {
  readonly name: string
  readonly path: string
  /** The path for a model, where that stands in it. */
  address?(model: string, stream: boolean): string
  /** False: it has no endpoint of batches. */
  readonly batches?: false
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
  {
    name: 'gemini',
    path: '/models/{model}',
    address: (model, stream) =>
      `/models/${model}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    batches: false,
    body: () => ({
      contents: [{ role: MESSAGE.role, parts: [{ text: MESSAGE.content }] }],
      generationConfig: {
        maxOutputTokens: OUTPUT_TOKENS,
        thinkingConfig: { includeThoughts: true },
      },
    }),
    read: saidInGemini,
    inItsWords: asGeminiSays,
    flaws: geminiStreamFlaws,
  },
]

/** How a client asks. A stream is also played as the whole reply that it would have been, since lines are whole. */
export const CHANNELS = [
  'live, as recorded',
  'live, streams as whole replies',
  'requests of batches',
] as const
export type Channel = (typeof CHANNELS)[number]

export interface DialectResult {
  readonly case: Case
  readonly channel: Channel
  readonly dialect: string
  /** What differs, by field; empty: nothing. */
  readonly differences: readonly string[]
}

/** One reply, as cases with models of their own: no failure of one changes how another is served. */
export interface DialectCase {
  readonly recorded: Case
  /** The reply as a whole one; null: a stream that has no such form. */
  readonly whole: Case | null
  /** The same for each kind of client; none without a whole form. */
  readonly lines: readonly (readonly [DialectReader, Case])[]
}

/** Each reply in the way in which it was recorded, and as a whole one. First are those that ask to wait. */
export function dialectCases(plays: readonly Play[]): readonly DialectCase[] {
  let count = 0
  const caseOf = (play: Play, channel: Channel): Case => ({
    id: `c${String(count++).padStart(5, '0')}`,
    label: `${labelOf(play)}, ${channel}`,
    play,
    way: play.streamed ? 'streamed' : 'whole',
  })
  return plays
    .filter(({ source }) => source !== 'foreign')
    .toSorted((a, b) => Number(asksToWait(b)) - Number(asksToWait(a)))
    .map(play => {
      const whole = wholeForm(play)
      const recorded = caseOf(play, 'live, as recorded')
      if (whole === null) return { recorded, whole, lines: [] }
      return {
        recorded,
        whole: play.streamed ? caseOf(whole, 'live, streams as whole replies') : recorded,
        lines: [RESPONSES, ...OTHERS.filter(({ batches }) => batches !== false)].map(
          reader => [reader, caseOf(whole, 'requests of batches')] as const,
        ),
      }
    })
}

export function casesIn(cases: readonly DialectCase[]): readonly Case[] {
  return cases.flatMap(({ recorded, whole, lines }) => [
    recorded,
    ...(whole === null || whole === recorded ? [] : [whole]),
    ...lines.map(([, one]) => one),
  ])
}

/** @throws Error when the gateway has no operation of a dialect */
export async function compareDialects(
  cases: readonly DialectCase[],
  gateway: ParityGateway,
  done: (count: number) => void,
): Promise<readonly DialectResult[]> {
  const client = new Client()
  const results: DialectResult[] = []
  const live = async (one: Case, channel: Channel): Promise<Told> => {
    const expected = await askLive(client, gateway, RESPONSES, one)
    for (const reader of OTHERS) {
      const answer = await askLive(client, gateway, reader, one)
      const unequal = inWordsOf(reader, RESPONSES.read(expected), reader.read(answer))
      results.push({
        case: one,
        channel,
        dialect: reader.name,
        differences: [...unequal, ...reader.flaws(answer)],
      })
    }
    return expected
  }
  try {
    await eachOf(
      cases,
      async ({ recorded, whole, lines }) => {
        const liveAnswer = await live(recorded, 'live, as recorded')
        if (whole === null) return
        const expected = whole === recorded ? liveAnswer : await live(whole, 'live, streams as whole replies')
        const ids: string[] = []
        for (const [reader, one] of lines) ids.push(await createLine(client, gateway, reader, one))
        await Promise.all(
          lines.map(async ([reader, one], at) => {
            const line = await endedLine(client, gateway, reader, ids[at] ?? '')
            const differences = inWordsOf(reader, withoutStatus(RESPONSES.read(expected)), line.said)
            const kind = errorTypeIn(expected)
            const kinds =
              kind === line.errorType ? [] : [`error_type: ${String(kind)} became ${String(line.errorType)}`]
            results.push({
              case: one,
              channel: 'requests of batches',
              dialect: reader.name,
              differences: [...differences, ...kinds],
            })
          }),
        )
      },
      done,
      CONCURRENCY,
    )
  } finally {
    client.close()
  }
  return results
}

async function askLive(
  client: Client,
  gateway: ParityGateway,
  reader: DialectReader,
  one: Case,
): Promise<Told> {
  const stream = asksForStream(one)
  const reply = await client.ask({
    url: gateway.url + (reader.address?.(modelOf(one), stream) ?? reader.path),
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: reader.body(modelOf(one), stream),
  })
  if (reply.status === 404 || reply.status === 405)
    throw new Error(`POST ${reader.path} is answered with ${reply.status}: it is not served`)
  return { status: reply.status, body: bodyText(reply.body), streamed: stream }
}

function inWordsOf(reader: DialectReader, expected: Said, actual: Said): readonly string[] {
  const inItsWords = reader.inItsWords ?? (said => said)
  return unlike(inItsWords(expected), inItsWords(actual))
}

/** Lines have no status of their own. */
function withoutStatus(said: Said): Said {
  return { ...said, error: said.error?.replace(/^\d{3} /, '') ?? null }
}

function errorTypeIn({ status, body }: Told): string | null {
  return status === 200 ? null : (/"error_type":"(\w+)"/.exec(body)?.[1] ?? null)
}

/** The fields in which two readings differ, each with both values. Pure. */
export function unlike(expected: Said, actual: Said): readonly string[] {
  return (Object.keys(expected) as (keyof Said)[]).flatMap(field => {
    const [left, right] = [JSON.stringify(expected[field]), JSON.stringify(actual[field])]
    return left === right ? [] : [`${field}: ${left} became ${right}`]
  })
}
