/** A client of POST /messages that also reads the fields which the official client does not know. */
import { eventsIn, gathered, type Loose } from '../dialects/messages-stream.ts'
import { withoutPads } from './chat-client.ts'
import type { TestGateway } from './gateway.ts'

export const HELLO = [{ role: 'user', content: 'Hello' }]

export function post(to: TestGateway, body: Loose, headers: Readonly<Record<string, string>> = {}) {
  return fetch(`${to.url}/messages`, {
    method: 'POST',
    headers: { 'x-api-key': to.apiKey, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ max_tokens: 4000, messages: HELLO, ...body }),
  })
}

/** The message, also of a stream, whose events are then checked for their order. */
export async function complete(to: TestGateway, body: Loose, headers?: Readonly<Record<string, string>>) {
  const reply = await post(to, body, headers)
  const text = await reply.text()
  if (reply.status !== 200) throw new Error(`${reply.status}: ${text}`)
  return body['stream'] === true ? gathered(eventsIn(withoutPads(text))) : (JSON.parse(text) as Loose)
}

export const contentOf = (message: Loose): Loose[] => message['content'] as Loose[]

/** The text of all text blocks. */
export const textOf = (message: Loose): string =>
  contentOf(message)
    .map(({ type, text }) => (type === 'text' ? text : ''))
    .join('')
