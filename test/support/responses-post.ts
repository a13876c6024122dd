/** Sends POST /v1/responses with Node's client, for tests that read answers themselves. */
import type { Agent, RequestOptions } from 'node:http'

export interface Target {
  readonly port: number
  readonly apiKey: string
}

/** The head of the request; `text` is the body that is going to be sent. `false`: a connection of its own. */
export function responsesPost({ port, apiKey }: Target, agent: Agent | false, text: string): RequestOptions {
  return {
    host: '127.0.0.1',
    port,
    agent,
    method: 'POST',
    path: '/v1/responses',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
    },
  }
}
