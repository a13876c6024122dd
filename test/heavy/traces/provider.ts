/**
 * A provider whose answer depends only on the name of the model, however many requests arrive at once. Its answers
 * contain words that no span may repeat.
 */
import { Provider, type ProviderRequest, type ScriptedReply } from '../../support/provider.ts'

/** Part of everything that a span must not have: prompts, answers, arguments, keys, errors. */
export const CANARY = 'canary'

/** Arguments of the tools of the gateway, by name. */
const ARGUMENTS: Readonly<Record<string, object>> = {
  advisor: { prompt: `${CANARY}-argument` },
  subagent: { task_name: `${CANARY}-task`, task_description: `${CANARY}-argument` },
  web_search: { query: `${CANARY}-query` },
  add: { a: `${CANARY}-argument` },
}

const kindOf = ({ model }: ProviderRequest): string | undefined => model.split('-')[0]
const traceOf = (header: string | undefined): string => header?.split('-')[1] ?? ''
const single = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header.join(', ') : header

export class TracedProvider extends Provider {
  #replies = 0

  constructor() {
    super(request => this.#reply(request))
  }

  /** Which trace each request names. */
  get asked() {
    return this.requests.map(({ model, headers }) => ({
      model,
      traceparent: single(headers['traceparent']),
      tracestate: single(headers['tracestate']),
      baggage: single(headers['baggage']),
    }))
  }

  /** Resolves once a request of this trace stays without an answer. @param header it names the trace */
  muted(header: string): Promise<void> {
    const trace = traceOf(header)
    return this.until(({ requests }) =>
      requests.some(
        each => kindOf(each) === 'mute' && traceOf(single(each.headers['traceparent'])) === trace,
      ),
    )
  }

  #reply(request: ProviderRequest): ScriptedReply | undefined {
    const kind = kindOf(request)
    // Numbers that no two replies share, so that a cost at the wrong span shows.
    const number = this.#replies++
    const tokens = { input: 7 + (number % 89), output: 3 + (number % 41) }
    switch (kind) {
      case 'mute':
        return { hangs: true }
      case 'fail':
      case 'busy': {
        const message = `${CANARY}-error of ${String(request.headers.authorization)}`
        return { status: kind === 'fail' ? 500 : 429, message, code: `${CANARY}_code` }
      }
      case 'vectors': {
        const data = [{ object: 'embedding', index: 0, embedding: [0.25, 0.5] }]
        const usage = { prompt_tokens: tokens.input, total_tokens: tokens.input }
        return { json: { object: 'list', data, model: 'vectors', usage } }
      }
      case 'held':
        // It says no more; its client leaves.
        request.say(messageOf(kind))
        return undefined
      case 'cut':
        return { text: `${CANARY}-reply`, breaks: true }
    }
    const name = kind === 'call' ? calledIn(request) : undefined
    if (name !== undefined)
      return { calls: [{ name, arguments: JSON.stringify(ARGUMENTS[name] ?? {}) }], tokens }
    const finish = request.body['stream'] === true ? 'stop' : `${CANARY}_finish`
    return { text: messageOf(kind).content, tokens, finish }
  }
}

function messageOf(kind: string | undefined) {
  const content =
    kind === 'email' ? `${CANARY}.reply@example.com` : kind === 'json' ? '{}' : `${CANARY}-reply`
  return { role: 'assistant', content }
}

/** The tool to call; undefined once one has been called. */
function calledIn({ body }: ProviderRequest): string | undefined {
  const messages = (body['messages'] ?? []) as readonly { readonly role: string }[]
  if (messages.some(({ role }) => role === 'tool')) return undefined
  const tools = (body['tools'] ?? []) as readonly { readonly function: { readonly name: string } }[]
  return tools[0]?.function.name ?? ''
}
