/** Rules of strict providers for requests that others accept, in both wire formats. Pure. */
import { fields, list, string } from './sse.ts'

type Fields = Readonly<Record<string, unknown>>

/** The allowed alphabet and length of function names at OpenAI and Anthropic. */
const FUNCTION_NAME = /^[a-zA-Z0-9_-]{1,64}$/

interface Step {
  readonly kind: 'call' | 'output' | 'message'
  /** The shared id of a call and its output. */
  readonly id: string
}

/**
 * The first reason to refuse a request; null: none.
 * @param text the unchanged body
 */
export function strictFault(body: Fields, text: string, isChat: boolean): string | null {
  const tools = list(body['tools']).map(tool => fields(isChat ? fields(tool)['function'] : tool))
  const names = tools.map(({ name }) => string(name))
  const badName = names.find(name => !FUNCTION_NAME.test(name))
  if (badName !== undefined) return `Invalid tool name: it must match ${FUNCTION_NAME.source}`
  if (new Set(names).size !== names.length) return 'Tool names must be unique'
  if (/\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])/.test(text))
    return 'The body has half a surrogate pair'
  const history = isChat ? chatHistory(body) : responsesHistory(body)
  return strayFault(history) ?? (isChat ? orderFault(history) : uniqueFault(history))
}

function strayFault(history: readonly Step[]): string | null {
  const ids = new Set(history.filter(({ kind }) => kind === 'call').map(({ id }) => id))
  const isStray = history.some(({ kind, id }) => kind === 'output' && !ids.has(id))
  return isStray ? 'An output has no tool call' : null
}

function uniqueFault(history: readonly Step[]): string | null {
  const ids = history.filter(({ kind }) => kind === 'call').map(({ id }) => id)
  return new Set(ids).size === ids.length ? null : 'Ids of tool calls must be unique'
}

/** Outputs must directly follow their calls. */
function orderFault(history: readonly Step[]): string | null {
  const open = new Set<string>()
  for (const { kind, id } of history) {
    if (kind === 'call') open.add(id)
    else if (kind === 'output') open.delete(id)
    else if (open.size > 0) return 'Tool calls must be followed by their outputs'
  }
  return null
}

function chatHistory(body: Fields): readonly Step[] {
  return list(body['messages'])
    .map(fields)
    .flatMap((message): Step[] => {
      if (message['role'] === 'tool') return [{ kind: 'output', id: string(message['tool_call_id']) }]
      const calls = list(message['tool_calls']).map(fields)
      return [
        { kind: 'message', id: '' },
        ...calls.map(call => ({
          kind: 'call' as const,
          id: string(call['id']),
        })),
      ]
    })
}

function responsesHistory(body: Fields): readonly Step[] {
  return list(body['input'])
    .map(fields)
    .map((item): Step => {
      const kind =
        item['type'] === 'function_call'
          ? 'call'
          : item['type'] === 'function_call_output'
            ? 'output'
            : 'message'
      return { kind, id: string(item['call_id']) }
    })
}
