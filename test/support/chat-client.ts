/** A client of POST /chat/completions that also reads the fields which the official client does not know. */
import { chunksOf, gathered, type Loose } from '../dialects/chat-stream.ts'
import type { TestGateway } from './gateway.ts'

export const METADATA = { 'x-gateway-metadata': 'enabled' }
export const HELLO = [{ role: 'user', content: 'Hello' }]
export function post(to: TestGateway, body: Loose, headers: Readonly<Record<string, string>> = {}) {
  return fetch(`${to.url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${to.apiKey}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ messages: HELLO, ...body }),
  })
}

/** The completion, also of a stream, whose chunks are then checked for their order. */
export async function complete(to: TestGateway, body: Loose, headers?: Readonly<Record<string, string>>) {
  const reply = await post(to, body, headers)
  const text = await reply.text()
  if (reply.status !== 200) throw new Error(`${reply.status}: ${text}`)
  if (body['stream'] !== true) return JSON.parse(text) as Loose
  const chunks = chunksOf(withoutPads(text))
  if (chunks.at(-1)?.['usage'] == null) throw new Error('no usage in the last chunk')
  return gathered(chunks)
}

/** The blank lines and comments between frames, which every reader skips, are cut out. */
export function withoutPads(text: string): string {
  return text
    .replace(/^: .*\n/gm, '')
    .replace(/\n{2,}/g, '\n\n')
    .replace(/^\n+/, '')
}

export const choiceOf = (completion: Loose): Loose => (completion['choices'] as Loose[])[0] ?? {}
export const messageOf = (completion: Loose): Loose => choiceOf(completion)['message'] as Loose
