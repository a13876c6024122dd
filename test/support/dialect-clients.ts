/** Clients of the dialects other than Responses: they send requests, and read answers with all of their fields. */
import * as chatStream from '../dialects/chat-stream.ts'
import * as geminiStream from '../dialects/gemini-stream.ts'
import * as messagesStream from '../dialects/messages-stream.ts'
import type { TestGateway } from './gateway.ts'
import type { FORMATS } from './provider.ts'

export type Loose = Record<string, unknown>
type Headers = Readonly<Record<string, string>>

export const METADATA = { 'x-gateway-metadata': 'enabled' }
/** A user turn of chat completions and of messages. */
export const HELLO = [{ role: 'user', content: 'Hello' }]

interface Dialect {
  readonly name: 'chat-completions' | 'messages' | 'gemini'
  /** The format that speaks the same API. */
  readonly format: (typeof FORMATS)[number]
  /** A body that says Hello: where it goes, and what it needs beside the fields of the test. */
  ask(to: TestGateway, body: Loose): { readonly url: string; readonly key: Headers; readonly body: Loose }
  /** The fields of a body with these turns; a text is what the user says. */
  conversation(...turns: readonly (string | Loose)[]): Loose
  /** The frames of a stream, without those that only keep it alive. */
  framesIn(stream: string): Loose[]
  /** The whole answer that frames make together. @throws AssertionError where they are out of order */
  gathered(frames: readonly Loose[]): Loose
  /** What frames tell of a failure that ended them. */
  failureIn(frames: readonly Loose[]): Loose
  /** All that an answer says. */
  textOf(answer: Loose): string
  /** The answer as the turn that its client sends back. */
  turnOf(answer: Loose): Loose
}

export interface DialectClient extends Dialect {
  post(to: TestGateway, body: Loose, headers?: Headers): Promise<Response>
  /** The answer, also of a stream, whose frames are then checked for their order. */
  complete(to: TestGateway, body: Loose, headers?: Headers): Promise<Loose>
}

function clientOf(dialect: Dialect): DialectClient {
  const post: DialectClient['post'] = (to, asked, headers = {}) => {
    const { url, key, body } = dialect.ask(to, asked)
    return fetch(url, {
      method: 'POST',
      headers: { ...key, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
  }
  return {
    ...dialect,
    post,
    async complete(to, body, headers) {
      const reply = await post(to, body, headers)
      const text = await reply.text()
      if (reply.status !== 200) throw new Error(`${reply.status}: ${text}`)
      return body['stream'] === true ? dialect.gathered(dialect.framesIn(text)) : (JSON.parse(text) as Loose)
    },
  }
}

/** The blank lines and comments between frames, which every reader skips, are cut out. */
function withoutPads(text: string): string {
  return text
    .replace(/^: .*\n/gm, '')
    .replace(/\n{2,}/g, '\n\n')
    .replace(/^\n+/, '')
}

const userTurn = (turn: string | Loose): Loose =>
  typeof turn === 'string' ? { role: 'user', content: [{ type: 'text', text: turn }] } : turn

export const choiceOf = (completion: Loose): Loose => (completion['choices'] as Loose[])[0] ?? {}
export const messageOf = (completion: Loose): Loose => choiceOf(completion)['message'] as Loose
export const contentOf = (message: Loose): Loose[] => message['content'] as Loose[]

export const chat = clientOf({
  name: 'chat-completions',
  format: 'openai-chat',
  ask: (to, body) => ({
    url: `${to.url}/chat/completions`,
    key: { authorization: `Bearer ${to.apiKey}` },
    body: { messages: HELLO, ...body },
  }),
  conversation: (...turns) => ({ messages: turns.map(userTurn) }),
  framesIn: stream => chatStream.chunksOf(withoutPads(stream)),
  gathered(chunks) {
    if (chunks.at(-1)?.['usage'] == null) throw new Error('no usage in the last chunk')
    return chatStream.gathered(chunks)
  },
  failureIn: chatStream.gathered,
  textOf: completion => String(messageOf(completion)['content']),
  turnOf: messageOf,
})

export const messages = clientOf({
  name: 'messages',
  format: 'anthropic-messages',
  ask: (to, body) => ({
    url: `${to.url}/messages`,
    key: { 'x-api-key': to.apiKey },
    body: { max_tokens: 4000, messages: HELLO, ...body },
  }),
  conversation: (...turns) => ({ messages: turns.map(userTurn) }),
  framesIn: stream => messagesStream.eventsIn(withoutPads(stream)),
  gathered: messagesStream.gathered,
  failureIn: events => events.at(-1) ?? {},
  textOf: message =>
    contentOf(message)
      .map(({ type, text }) => (type === 'text' ? text : ''))
      .join(''),
  turnOf: message => ({ role: 'assistant', content: contentOf(message) }),
})

export const gemini = clientOf({
  name: 'gemini',
  format: 'google-gemini',
  ask(to, { model, stream, ...body }) {
    const verb = stream === true ? 'streamGenerateContent?alt=sse' : 'generateContent'
    return {
      url: `http://127.0.0.1:${to.port}/v1beta/models/${model}:${verb}`,
      key: { 'x-goog-api-key': to.apiKey },
      body: { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }], ...body },
    }
  },
  conversation: (...turns) => ({
    contents: turns.map(turn =>
      typeof turn === 'string' ? { role: 'user', parts: [{ text: turn }] } : turn,
    ),
  }),
  framesIn: stream =>
    geminiStream
      .chunksIn(withoutPads(stream).replace(/^:\n\n/, ''))
      .filter(chunk => JSON.stringify(chunk['candidates']) !== SIGN_OF_LIFE),
  gathered: geminiStream.gathered,
  failureIn: chunks => chunks.at(-1) ?? {},
  textOf: answer =>
    geminiStream
      .partsOf(answer)
      .map(({ text, thought }) => (thought === true ? '' : (text ?? '')))
      .join(''),
  turnOf: answer => geminiStream.candidateOf(answer).content ?? {},
})
const SIGN_OF_LIFE = JSON.stringify([{ content: { parts: [{ text: '' }], role: 'model' }, index: 0 }])

export const CLIENTS: readonly DialectClient[] = [chat, messages, gemini]
