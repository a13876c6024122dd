/** A stream says in pieces what the whole answer says: each golden reply of each format, and any other answer. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { chatCompletions, gemini, messages, parseResponsesRequest } from '../support/dialects.ts'
import { goldens } from '../support/goldens.ts'
import { search } from '../support/property.ts'
import { answer, deltas, finalOf, finish, secrets } from './answers.ts'
import * as chatStream from './chat-stream.ts'
import * as geminiStream from './gemini-stream.ts'
import * as messagesStream from './messages-stream.ts'

type Loose = Record<string, unknown>
type Tap = Pick<typeof t, 'match' | 'same'>

interface Golden {
  readonly format: FormatName
  readonly file: string
  readonly frames: string
  readonly response: ResponseResource
  /** Raw thinking and a summary in one item: their order is known in a stream only. */
  readonly thinksInBothForms: boolean
}

interface Row {
  readonly name: string
  framesOf(events: readonly StreamEvent[]): string
  body(response: ResponseResource): unknown
  /** The reply failed: how the stream tells it, and what its client throws. */
  failed(t: Tap, golden: Golden): Promise<void> | void
  same(t: Tap, golden: Golden, body: Loose): Promise<void> | void
}

const thrownBy = (work: Promise<unknown>): Promise<unknown> => work.catch((error: unknown) => error)
const asJson = (value: unknown): Loose => JSON.parse(JSON.stringify(value)) as Loose

const CHAT: Row = {
  name: 'chat completions',
  framesOf: chatStream.framesOf,
  body: response => chatCompletions.body(response, chatStream.REQUEST),
  async failed(t, { frames, response, file }) {
    const chunks = chatStream.chunksOf(frames)
    chatStream.gathered(chunks)
    t.match(
      chunks.findLast(chunk => 'error' in chunk),
      {
        error: { code: Number, message: String, type: response.error_type },
        choices: [{ finish_reason: 'error' }],
      },
    )
    const error = chunks.find(chunk => 'error' in chunk)?.['error'] as object
    t.match(await thrownBy(chatStream.throughClient(frames)), { error }, file)
  },
  async same(t, { frames, file, thinksInBothForms }, body) {
    const stream = chatStream.gathered(chatStream.chunksOf(frames))
    if (!thinksInBothForms) t.same(stream, body, file)
    t.same(chatStream.known(await chatStream.throughClient(frames)), chatStream.known(body), file)
  },
}

const MESSAGES: Row = {
  name: 'messages',
  framesOf: messagesStream.framesOf,
  body: response => messages.body(response, messagesStream.REQUEST),
  async failed(t, { frames, response, file }) {
    const last = messagesStream.eventsIn(frames).at(-1)
    t.match(last, {
      type: 'error',
      error: { type: String, message: String, error_type: response.error_type },
      request_id: response.id,
    })
    t.match(await thrownBy(messagesStream.throughClient(frames)), { error: last, type: String }, file)
  },
  async same(t, { frames, file, format, response, thinksInBothForms }, body) {
    const { gathered, eventsIn, joined, known, throughClient } = messagesStream
    const stream = withoutCut(gathered(eventsIn(frames)), response)
    if (thinksInBothForms) return
    t.same(joined(inOrder(stream)), joined(inOrder(body)), file)
    // Its own provider tells where a citation begins.
    if (format === 'anthropic-messages') t.same(stream, body, file)
    if (isUnreadable(response)) return
    t.same(known(joined(inOrder(await throughClient(frames)))), known(joined(inOrder(body))), file)
  },
}

/** Ids of calls that were cut: a stream has them as far as they came, a whole answer leaves them out. */
function cutCalls({ output }: ResponseResource): ReadonlySet<unknown> {
  return new Set(
    output.flatMap(item =>
      (item.type === 'function_call' || item.type === 'custom_tool_call') && item.status === 'incomplete'
        ? [item.call_id]
        : [],
    ),
  )
}

/** Anthropic's client gives up on the input of a call that was cut, or is no JSON. */
function isUnreadable(response: ResponseResource): boolean {
  const isOdd = response.output.some(
    item => item.type === 'function_call' && !item.arguments.trim().startsWith('{'),
  )
  return isOdd || cutCalls(response).size > 0
}

function withoutCut(message: Loose, response: ResponseResource): Loose {
  const cut = cutCalls(response)
  return { ...message, content: (message['content'] as Loose[]).filter(({ id }) => !cut.has(id)) }
}

/** A whole message has items in the order in which they began, a stream in the order in which they spoke. */
function inOrder(message: Loose): Loose {
  const content = message['content'] as Loose[]
  return {
    ...message,
    content: content.toSorted((a, b) => String(a['type']).localeCompare(String(b['type']))),
  }
}

const GEMINI: Row = {
  name: 'gemini',
  framesOf: geminiStream.framesOf,
  body: response => gemini.body(response, geminiStream.REQUEST),
  failed(t, { frames }) {
    t.match(geminiStream.chunksIn(frames).at(-1), {
      error: { code: Number, status: /^[A-Z_]+$/, message: String, details: Array },
    })
  },
  same(t, { frames, file, response, thinksInBothForms }, body) {
    const cut = cutCalls(response)
    const chunks = geminiStream.chunksIn(frames)
    const last = chunks.at(-1) ?? {}
    const { content: _, ...end } = geminiStream.candidateOf(last)
    const { content, logprobsResult: __, ...whole } = geminiStream.candidateOf(body)
    t.same(end, whole, file)
    t.same(last['usageMetadata'], body['usageMetadata'])
    const parts = chunks
      .flatMap(geminiStream.partsOf)
      .filter(({ functionCall }) => !cut.has((functionCall as Loose | undefined)?.['id']))
    if (!thinksInBothForms) t.same(sorted(parts), sorted(content?.parts ?? []), file)
  },
}

/** Calls come at their end in a stream, and where they began in a whole answer. */
function sorted(parts: readonly geminiStream.Part[]): readonly string[] {
  const ranked = parts.toSorted((a, b) => rankOf(a) - rankOf(b))
  return joined(ranked)
    .map(part => JSON.stringify(part))
    .toSorted()
}

function rankOf(part: geminiStream.Part): number {
  if (part.thought === true) return 0
  return part.text === undefined ? 2 : 1
}

/** Neighbouring texts of one kind as one. Signatures stand apart: a stream has one with a piece of its text. */
function joined(parts: readonly geminiStream.Part[]): readonly Loose[] {
  const all: Loose[] = []
  for (const { thoughtSignature: _, ...part } of parts) {
    const last = all.at(-1)
    if (part.text === '') continue
    if (part.text !== undefined && last?.['text'] !== undefined && last['thought'] === part.thought)
      last['text'] = `${last['text']}${part.text}`
    else all.push({ ...part })
  }
  return all
}

const thinksInBothForms = ({ output }: ResponseResource): boolean =>
  output.some(item => item.type === 'reasoning' && item.summary.length > 0 && (item.content ?? []).length > 0)

for (const format of Object.keys(FORMATS) as FormatName[]) {
  const decoded = goldens(format).map(({ file, bytes, streamed }) => {
    const events = eventsOf(format, bytes, streamed)
    return { file, events, response: finalOf(events) }
  })
  for (const row of [CHAT, MESSAGES, GEMINI]) {
    t.test(`${format} goldens: the stream of ${row.name} equals the whole`, async t => {
      for (const { file, events, response } of decoded) {
        const both = thinksInBothForms(response)
        const golden = { format, file, frames: row.framesOf(events), response, thinksInBothForms: both }
        if (response.status === 'failed') await row.failed(t, golden)
        else await row.same(t, golden, asJson(row.body(response)))
      }
    })
  }

  t.test(`${format} goldens: an array of Gemini has the chunks of its event stream`, async t => {
    for (const { file, events } of decoded) {
      const array = geminiStream.framesOf(events, geminiStream.ARRAY)
      t.same(JSON.parse(array), geminiStream.chunksIn(geminiStream.framesOf(events)), file)
    }
  })
}

const EXCLUDING = chatCompletions.parse({
  model: 'acme/m',
  messages: [{ role: 'user', content: 'hi' }],
  reasoning: { exclude: true },
})

t.test('any answer of chat completions in pieces is the answer whole', async () => {
  const { chunksOf, framesOf, gathered, known, REQUEST, throughClient } = chatStream
  await fc.assert(
    fc.asyncProperty(deltas, finish, fc.boolean(), async (deltas, reason, exclude) => {
      const request = exclude ? EXCLUDING : REQUEST
      const events = answer(deltas, reason)
      const frames = framesOf(events, request)
      const body = asJson(chatCompletions.body(finalOf(events), request))
      assert.deepEqual(gathered(chunksOf(frames)), body)
      assert.deepEqual(known(await throughClient(frames)), known(body))
    }),
    search(200),
  )
})

/** The provider of the made-up answers never divides its texts. */
t.test('any answer of messages in pieces is the answer whole', async () => {
  const { eventsIn, framesOf, gathered, joined, known, throughClient } = messagesStream
  await fc.assert(
    fc.asyncProperty(deltas, finish, async (deltas, reason) => {
      const events = answer(deltas, reason)
      const frames = framesOf(events)
      const response = finalOf(events)
      const body = joined(asJson(MESSAGES.body(response)))
      assert.deepEqual(joined(withoutCut(gathered(eventsIn(frames)), response)), body)
      if (isUnreadable(response)) return
      assert.deepEqual(known(joined(await throughClient(frames))), known(body))
    }),
    search(200),
  )
})

/** How a client sends a whole answer back. */
const SENT_BACK: readonly (readonly [row: Row, send: (body: Loose) => ResponsesRequest])[] = [
  [
    CHAT,
    body => {
      const [choice] = body['choices'] as { message: Loose }[]
      return chatCompletions.parse({ model: 'acme/m', messages: [choice?.message] })
    },
  ],
  [
    MESSAGES,
    ({ content }) =>
      messages.parse({ model: 'acme/m', max_tokens: 5, messages: [{ role: 'assistant', content }] }),
  ],
]

const calls = (items: readonly { type?: string }[]) =>
  items
    .filter(item => item.type === 'function_call' || item.type === 'custom_tool_call')
    .map(item => ('call_id' in item ? item.call_id : null))

for (const [row, send] of SENT_BACK) {
  t.test(`any answer of ${row.name} can be sent back as a message`, async () => {
    fc.assert(
      fc.property(deltas, finish, (deltas, reason) => {
        const response = finalOf(answer(deltas, reason))
        const request = send(asJson(row.body(response)))
        parseResponsesRequest(row === CHAT ? request : asJson(request))
        const { input } = request
        assert(typeof input !== 'string')
        assert.deepEqual(calls(input), calls(response.output))
        assert.deepEqual(secrets(input), secrets(response.output))
      }),
      search(200),
    )
  })
}
