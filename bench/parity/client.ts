/**
 * The client of a parity run: sends one request, reads the complete reply, and turns it into text that can be compared.
 */
import { isUtf8 } from 'node:buffer'
import { Agent, request } from 'node:http'

/** A reply that takes longer has hung: every provider answers at once. */
const TIMEOUT_MS = 60_000
/** Date is the clock's; lengths follow from bodies, which are compared themselves. */
const HEADERS_LEFT_OUT = new Set(['date', 'content-length', 'keep-alive'])

export interface Reply {
  readonly status: number
  readonly statusText: string
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly body: Buffer
  /** False when the connection broke before the end of the reply. */
  readonly complete: boolean
}

export interface Question {
  /** Default: POST. */
  readonly method?: 'GET'
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: unknown
}

export class Client {
  readonly #agent = new Agent({ keepAlive: true })

  /** @throws Error when no reply begins, or its end does not come in time */
  ask(question: Question): Promise<Reply> {
    return this.#try(question, true)
  }

  /** A gateway may end an idle connection in the moment in which it is used again. */
  #try(question: Question, again: boolean): Promise<Reply> {
    const { method, url, headers, body } = question
    const agent = this.#agent
    return new Promise((resolve, reject) => {
      const outgoing = request(
        url,
        { agent, method: method ?? 'POST', headers, timeout: TIMEOUT_MS },
        incoming => {
          const chunks: Buffer[] = []
          incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
          incoming.on('error', () => undefined)
          incoming.on('close', () =>
            resolve({
              status: incoming.statusCode ?? 0,
              statusText: incoming.statusMessage ?? '',
              headers: pairs(incoming.rawHeaders),
              body: Buffer.concat(chunks),
              complete: incoming.complete,
            }),
          )
        },
      )
      outgoing.on('timeout', () => outgoing.destroy(new Error(`silent for ${TIMEOUT_MS} ms`)))
      outgoing.on('error', error =>
        again && outgoing.reusedSocket ? resolve(this.#try(question, false)) : reject(error),
      )
      outgoing.end(body === undefined ? undefined : JSON.stringify(body))
    })
  }

  close(): void {
    this.#agent.destroy()
  }
}

/** A reply as text: status line, headers by name, body, and whether it broke off. Pure. */
export function replyText(reply: Reply): string {
  const headers = reply.headers
    .map(([name, value]) => [name.toLowerCase(), value] as const)
    .filter(([name]) => !HEADERS_LEFT_OUT.has(name))
    .map(([name, value]) => `${name}: ${value}`)
    .toSorted()
  const end = reply.complete ? '' : '\n(the connection broke)'
  return `${reply.status} ${reply.statusText}\n${headers.join('\n')}\n\n${bodyText(reply.body)}${end}`
}

/** Bytes that are no UTF-8 stay apart from each other. Pure. */
export function bodyText(body: Buffer): string {
  return body.toString(isUtf8(body) ? 'utf8' : 'latin1')
}

function pairs(raw: readonly string[]): [string, string][] {
  const headers: [string, string][] = []
  for (let at = 0; at + 1 < raw.length; at += 2) headers.push([raw[at] ?? '', raw[at + 1] ?? ''])
  return headers
}
