/** Every recorded reply of every format in the other dialects: streamed and whole, it says what Responses says. */
import t from 'tap'
import { unlike } from '../../bench/parity/dialects.ts'
import {
  chatStreamFlaws,
  type Said,
  saidInChat,
  saidInResponses,
  type Told,
} from '../../bench/parity/said.ts'
import { asGeminiSays, geminiStreamFlaws, saidInGemini } from '../../bench/parity/said-gemini.ts'
import { asMessagesSay, messagesStreamFlaws, saidInMessages } from '../../bench/parity/said-messages.ts'
import type { Dialect } from '../../src/dialects/dialect.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import {
  chatCompletions,
  gemini,
  messages,
  parseResponsesRequest,
  responsesDialect,
} from '../support/dialects.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'
import { finalOf } from './answers.ts'

const MESSAGES = [{ role: 'user', content: 'hi' }]
const SAME = (said: Said): Said => said

interface Reader {
  readonly dialect: Dialect
  readonly request: ResponsesRequest
  read(told: Told): Said
  /** In words that the dialect has. */
  inItsWords(said: Said): Said
  flaws(told: Told): readonly string[]
}

const RESPONSES = parseResponsesRequest({ model: 'acme/recorded', input: 'hi' })
const READERS: readonly Reader[] = [
  {
    dialect: chatCompletions,
    request: chatCompletions.parse({ model: 'acme/recorded', messages: MESSAGES }),
    read: saidInChat,
    inItsWords: SAME,
    flaws: chatStreamFlaws,
  },
  {
    dialect: messages,
    request: messages.parse({ model: 'acme/recorded', max_tokens: 9, messages: MESSAGES }),
    read: saidInMessages,
    inItsWords: asMessagesSay,
    flaws: messagesStreamFlaws,
  },
  {
    dialect: gemini,
    request: gemini.parse({
      model: 'acme/recorded',
      alt: 'sse',
      contents: [{ role: 'user', parts: [{ text: 'hi' }] }],
      generationConfig: { thinkingConfig: { includeThoughts: true } },
    }),
    read: saidInGemini,
    inItsWords: asGeminiSays,
    flaws: geminiStreamFlaws,
  },
]

/** What a client of the dialect gets, streamed; and whole, unless the reply fails. */
function toldIn(
  dialect: Dialect,
  request: ResponsesRequest,
  events: readonly StreamEvent[],
): readonly Told[] {
  const writer = dialect.frames(request)
  const frames = events.map(event => writer.write(event)).join('') + writer.end()
  const response = finalOf(events)
  const streamed = { status: 200, body: frames, streamed: true }
  if (response.status === 'failed') return [streamed]
  return [streamed, { status: 200, body: JSON.stringify(dialect.body(response, request)), streamed: false }]
}

/**
 * Messages and Gemini, whose arguments are objects, leave out a call that was cut: the first in whole answers, the
 * second also in streams, because it has each call in one piece.
 */
function withoutCut({ name }: Dialect, said: Said, events: readonly StreamEvent[]): Said {
  if (name === 'chat-completions') return said
  const cut = new Set(
    finalOf(events).output.flatMap(item =>
      item.type === 'function_call' && item.status === 'incomplete' ? [item.arguments] : [],
    ),
  )
  return { ...said, calls: said.calls.filter(({ text }) => !cut.has(text)) }
}

for (const format of Object.keys(FORMATS) as FormatName[]) {
  t.test(`recorded replies of ${format}`, { skip: withoutRecordings }, async t => {
    const replies = recordings(format).filter(({ httpStatus }) => httpStatus === 200 || httpStatus === null)
    for (const { dialect, request, read, inItsWords, flaws } of READERS) {
      let equal = 0
      for (const recording of replies) {
        const events = eventsOf(format, recording.bytes(), recording.streamed)
        const all = toldIn(responsesDialect, RESPONSES, events).map(saidInResponses)
        const expected = all.map((said, at) =>
          at === 0 && dialect.name !== 'gemini' ? said : withoutCut(dialect, said, events),
        )
        const told = toldIn(dialect, request, events)
        const differences = told.flatMap((one, at) => [
          ...unlike(inItsWords(expected[at] as Said), inItsWords(read(one))),
          ...flaws(one),
        ])
        t.same(differences, [], `${dialect.name}: ${recording.name}`)
        if (differences.length === 0) equal++
      }
      t.ok(replies.length >= (format === 'bedrock-converse' ? 17 : 51))
      t.comment(`${dialect.name}: ${equal}/${replies.length}`)
    }
  })
}
