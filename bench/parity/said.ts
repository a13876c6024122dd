/**
 * Extracts what a model said from a reply in a client's dialect, in a vocabulary that all dialects share: text,
 * reasoning, refusal, tool calls, usage, finish, error. Knows only the public shapes. Pure.
 */

interface SaidCall {
  readonly name: string
  /** Arguments of a function, input of a custom tool. */
  readonly text: string
}

export interface Said {
  readonly text: string
  /** Raw thinking and summaries; a blank line between two pieces. */
  readonly reasoning: string
  readonly refusal: string
  readonly calls: readonly SaidCall[]
  /** Input, output and total tokens; null: not told. */
  readonly usage: readonly [input: number, output: number, total: number] | null
  readonly finish: 'stop' | 'tool_calls' | 'length' | 'content_filter' | 'error' | 'none'
  /** Message of the failure; null: none was told. */
  readonly error: string | null
}

/** What a client got. */
export interface Told {
  readonly status: number
  readonly body: string
  /** An event stream rather than one JSON document. */
  readonly streamed: boolean
}

export type Fields = Readonly<Record<string, unknown>>

export const NOTHING: Said = {
  text: '',
  reasoning: '',
  refusal: '',
  calls: [],
  usage: null,
  finish: 'none',
  error: null,
}

/** @throws SyntaxError when a frame or body is no JSON */
export function saidInResponses(told: Told): Said {
  if (isFailure(told)) return failed(told)
  if (!told.streamed) return saidInResponse(fields(JSON.parse(told.body)))
  let last = NOTHING
  for (const event of framesOf(told.body)) {
    const type = event['type']
    if (type === 'response.completed' || type === 'response.incomplete' || type === 'response.failed')
      last = saidInResponse(fields(event['response']))
    else if (type === 'error') last = { ...last, finish: 'error', error: text(event['message']) }
  }
  return last
}

function saidInResponse(response: Fields): Said {
  const output = list(response['output'])
  const parts = output.filter(item => item['type'] === 'message').flatMap(item => list(item['content']))
  const thoughts = output
    .filter(item => item['type'] === 'reasoning')
    .flatMap(item => [...list(item['content']), ...list(item['summary'])].map(part => text(part['text'])))
  const calls = output.flatMap(item => {
    if (item['type'] === 'function_call') return [{ name: text(item['name']), text: text(item['arguments']) }]
    if (item['type'] === 'custom_tool_call') return [{ name: text(item['name']), text: text(item['input']) }]
    return []
  })
  const reason = fields(response['incomplete_details'])['reason']
  const usage = response['usage'] == null ? null : fields(response['usage'])
  const error = response['error'] == null ? null : text(fields(response['error'])['message'])
  return {
    text: parts.map(part => text(part['text'])).join(''),
    reasoning: thoughts.filter(thought => thought !== '').join('\n\n'),
    refusal: parts.map(part => text(part['refusal'])).join(''),
    calls,
    usage: usage === null ? null : tokens(usage, 'input_tokens', 'output_tokens'),
    finish: finishOf(text(response['status']), text(reason), calls.length > 0),
    error,
  }
}

function finishOf(status: string, reason: string, calls: boolean): Said['finish'] {
  switch (status) {
    case 'completed':
      return calls ? 'tool_calls' : 'stop'
    case 'incomplete':
      return reason === 'content_filter' ? 'content_filter' : 'length'
    case 'failed':
      return 'error'
    default:
      return 'none'
  }
}

/** @throws SyntaxError when a frame or body is no JSON */
export function saidInChat(told: Told): Said {
  if (isFailure(told)) return failed(told)
  if (!told.streamed) {
    const whole = fields(JSON.parse(told.body))
    return saidInChoice(whole, list(whole['choices'])[0] ?? {}, 'message')
  }
  let answer = NOTHING
  const calls: { name: string; text: string }[] = []
  for (const chunk of framesOf(told.body)) {
    const choice = list(chunk['choices'])[0] ?? {}
    for (const call of list(fields(choice['delta'])['tool_calls'])) addCall(calls, call)
    const more = saidInChoice(chunk, choice, 'delta')
    answer = {
      text: answer.text + more.text,
      reasoning: answer.reasoning + more.reasoning,
      refusal: answer.refusal + more.refusal,
      calls,
      usage: more.usage ?? answer.usage,
      finish: more.finish === 'none' ? answer.finish : more.finish,
      error: more.error ?? answer.error,
    }
  }
  return answer
}

/** What is wrong with the order or the common fields of a chat stream; empty: nothing. */
export function chatStreamFlaws(told: Told): readonly string[] {
  if (!told.streamed || isFailure(told)) return []
  const chunks = framesOf(told.body)
  const flaws: string[] = []
  for (const name of ['id', 'model', 'created', 'object']) {
    if (new Set(chunks.map(chunk => chunk[name])).size !== 1)
      flaws.push(`${name} is not the same in all chunks`)
  }
  const choices = chunks.flatMap(chunk => list(chunk['choices']))
  const finishes = choices.filter(choice => choice['finish_reason'] != null)
  if (finishes.length !== 1 || finishes[0] !== choices.at(-1))
    flaws.push('the last choice has no sole finish')
  if (finishes.some(choice => !('native_finish_reason' in choice))) flaws.push('the native finish is missing')
  const roles = choices.map(choice => fields(choice['delta'])['role'])
  if (roles[0] !== 'assistant' || roles.slice(1).some(role => role !== undefined))
    flaws.push('the role is not in the first delta alone')
  const failed = chunks.some(chunk => chunk['error'] != null)
  const counted = chunks.filter(chunk => chunk['usage'] != null)
  const apart = counted.every(chunk => chunk === chunks.at(-1) && list(chunk['choices']).length === 0)
  if (!apart || counted.length > 1 || (counted.length === 0 && !failed))
    flaws.push('usage does not stand in one last chunk without choices')
  if (!/\n\n+data: \[DONE\]\n+$/.test(told.body)) flaws.push('the stream does not end with [DONE]')
  return flaws
}

/** @param where the choice's field that holds what was said */
function saidInChoice(whole: Fields, choice: Fields, where: 'message' | 'delta'): Said {
  const part = fields(choice[where])
  const usage = whole['usage'] == null ? null : fields(whole['usage'])
  return {
    text: text(part['content']),
    reasoning: text(part['reasoning']),
    refusal: text(part['refusal']),
    calls: list(part['tool_calls']).map(callOf),
    usage: usage === null ? null : tokens(usage, 'prompt_tokens', 'completion_tokens'),
    finish: FINISHES.find(known => known === choice['finish_reason']) ?? 'none',
    error: whole['error'] == null ? null : text(fields(whole['error'])['message']),
  }
}

const FINISHES = ['stop', 'tool_calls', 'length', 'content_filter', 'error'] as const

function callOf(call: Fields): SaidCall {
  const kind = fields(call['function'] ?? call['custom'])
  return { name: text(kind['name']), text: text(kind['arguments'] ?? kind['input']) }
}

/** A piece of a call that a stream tells under the call's index. */
function addCall(calls: { name: string; text: string }[], piece: Fields): void {
  const at = Number(piece['index'] ?? 0)
  const more = callOf(piece)
  const known = calls[at] ?? { name: '', text: '' }
  calls[at] = { name: known.name + more.name, text: known.text + more.text }
}

export function isFailure({ status }: Told): boolean {
  return status < 200 || status > 299
}

export function failed(told: Told): Said {
  const error = fields(fields(JSON.parse(told.body))['error'])
  return { ...NOTHING, finish: 'error', error: `${told.status} ${text(error['message'])}` }
}

/** The data of all frames but the closing mark. */
export function framesOf(body: string): Fields[] {
  return body
    .split('\n')
    .filter(line => line.startsWith('data: ') && line !== 'data: [DONE]')
    .map(line => fields(JSON.parse(line.slice('data: '.length))))
}

function tokens(usage: Fields, input: string, output: string): [number, number, number] {
  return [Number(usage[input]), Number(usage[output]), Number(usage['total_tokens'])]
}

export function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {}
}

export function list(value: unknown): Fields[] {
  return Array.isArray(value) ? value.map(fields) : []
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
