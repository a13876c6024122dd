/**
 * A provider whose answer depends only on the name of the model, however many requests arrive at once: Chat Completions
 * and embeddings over real HTTP. It records the trace that each request names, and its answers contain words that no
 * span may repeat.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { closing, listening } from './listening.ts'

/** Part of everything that a span must not have: prompts, answers, arguments, keys, errors. */
export const CANARY = 'canary'

interface ChatBody {
  readonly model: string
  readonly stream?: boolean
  readonly messages?: readonly { readonly role: string }[]
  readonly tools?: readonly { readonly function: { readonly name: string } }[]
}

/** What asked: the headers of one request. */
interface AskedTrace {
  readonly model: string
  readonly traceparent: string | undefined
  readonly tracestate: string | undefined
  readonly baggage: string | undefined
}

/** Arguments of the tools of the gateway, by name. */
const ARGUMENTS: Readonly<Record<string, object>> = {
  advisor: { prompt: `${CANARY}-argument` },
  subagent: { task_name: `${CANARY}-task`, task_description: `${CANARY}-argument` },
  web_search: { query: `${CANARY}-query` },
  add: { a: `${CANARY}-argument` },
}

export class TracedProvider {
  readonly asked: AskedTrace[] = []
  readonly #server: Server = createServer((request, response) => void this.#answer(request, response))
  /** Ids of traces of which a request stays without an answer, and those who wait for one. */
  readonly #mute = new Set<string>()
  readonly #awaited = new Map<string, () => void>()
  #replies = 0

  async listen(): Promise<string> {
    return (await listening(this.#server)).url
  }

  close(): Promise<void> {
    return closing(this.#server)
  }

  /** Resolves once a request of this trace stays without an answer. @param header it names the trace */
  async muted(header: string): Promise<void> {
    const trace = traceOf(header)
    if (this.#mute.has(trace)) return
    await new Promise<void>(resolve => this.#awaited.set(trace, resolve))
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = ''
    for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
    const body = JSON.parse(text) as ChatBody
    const { traceparent, tracestate, baggage } = request.headers
    this.asked.push({
      model: body.model,
      traceparent: single(traceparent),
      tracestate: single(tracestate),
      baggage: single(baggage),
    })
    const [kind] = body.model.split('-')
    // Numbers that no two replies share, so that a cost at the wrong span shows.
    const number = this.#replies++
    const usage = { prompt_tokens: 7 + (number % 89), completion_tokens: 3 + (number % 41) }
    const authorization = String(request.headers.authorization)
    if (kind === 'mute') {
      const trace = traceOf(single(traceparent))
      this.#mute.add(trace)
      this.#awaited.get(trace)?.()
      return
    }
    if (kind === 'fail' || kind === 'busy') {
      const message = `${CANARY}-error of ${authorization}`
      response.writeHead(kind === 'fail' ? 500 : 429, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ error: { message, code: `${CANARY}_code` } }))
    } else if (kind === 'vectors') {
      const data = [{ object: 'embedding', index: 0, embedding: [0.25, 0.5] }]
      const told = { prompt_tokens: usage.prompt_tokens, total_tokens: usage.prompt_tokens }
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ object: 'list', data, model: 'vectors', usage: told }))
    } else if (body.stream === true) stream(response, body, kind, usage)
    else {
      const message = messageOf(body, kind)
      const finish_reason = message['tool_calls'] === undefined ? `${CANARY}_finish` : 'tool_calls'
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(
        JSON.stringify({ id: `reply-${number}`, choices: [{ index: 0, message, finish_reason }], usage }),
      )
    }
  }
}

function messageOf(body: ChatBody, kind: string | undefined): Readonly<Record<string, unknown>> {
  const calls = kind === 'call' && body.messages?.some(({ role }) => role === 'tool') !== true
  if (!calls) {
    const content =
      kind === 'email' ? `${CANARY}.reply@example.com` : kind === 'json' ? '{}' : `${CANARY}-reply`
    return { role: 'assistant', content }
  }
  const name = body.tools?.[0]?.function.name ?? ''
  const call = (id: string, called: string) => ({
    id,
    type: 'function',
    function: { name: called, arguments: JSON.stringify(ARGUMENTS[called] ?? {}) },
  })
  return { role: 'assistant', content: null, tool_calls: [call('call_1', name)] }
}

function stream(response: ServerResponse, body: ChatBody, kind: string | undefined, usage: object): void {
  const send = (choice: object | null, more: object = {}): void => {
    const choices = choice === null ? [] : [{ index: 0, finish_reason: null, ...choice }]
    response.write(`data: ${JSON.stringify({ id: 'reply', choices, ...more })}\n\n`)
  }
  const { tool_calls, ...said } = messageOf(body, kind) as { tool_calls?: readonly object[] }
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  send({
    delta:
      tool_calls === undefined ? said : { tool_calls: tool_calls.map((each, index) => ({ index, ...each })) },
  })
  // It says no more; its client leaves.
  if (kind === 'held') return
  if (kind === 'cut') {
    response.write(': the end\n\n', () => response.destroy())
    return
  }
  send({ delta: {}, finish_reason: tool_calls === undefined ? 'stop' : 'tool_calls' })
  send(null, { usage })
  response.end('data: [DONE]\n\n')
}

const single = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header.join(', ') : header

function traceOf(header: string | undefined): string {
  return header?.split('-')[1] ?? ''
}
