/**
 * Reads what a model said out of a reply in a client's dialect, in words that all dialects share: text, refusal, tool
 * calls, usage, finish, error. Knows the public shapes only. Pure.
 */

export interface SaidCall {
  readonly name: string
  /** Arguments of a function, input of a custom tool. */
  readonly text: string
}

export interface Said {
  readonly text: string
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

type Fields = Readonly<Record<string, unknown>>

const NOTHING: Said = { text: '', refusal: '', calls: [], usage: null, finish: 'none', error: null }

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
  let said = NOTHING
  const calls: { name: string; text: string }[] = []
  for (const chunk of framesOf(told.body)) {
    const choice = list(chunk['choices'])[0] ?? {}
    for (const call of list(fields(choice['delta'])['tool_calls'])) addCall(calls, call)
    const more = saidInChoice(chunk, choice, 'delta')
    said = {
      text: said.text + more.text,
      refusal: said.refusal + more.refusal,
      calls,
      usage: more.usage ?? said.usage,
      finish: more.finish === 'none' ? said.finish : more.finish,
      error: more.error ?? said.error,
    }
  }
  return said
}

/** @param where the choice's field that holds what was said */
function saidInChoice(whole: Fields, choice: Fields, where: 'message' | 'delta'): Said {
  const said = fields(choice[where])
  const usage = whole['usage'] == null ? null : fields(whole['usage'])
  return {
    text: text(said['content']),
    refusal: text(said['refusal']),
    calls: list(said['tool_calls']).map(callOf),
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

function isFailure({ status }: Told): boolean {
  return status < 200 || status > 299
}

function failed(told: Told): Said {
  const error = fields(fields(JSON.parse(told.body))['error'])
  return { ...NOTHING, finish: 'error', error: `${told.status} ${text(error['message'])}` }
}

/** The data of all frames but the closing mark. */
function framesOf(body: string): Fields[] {
  return body
    .split('\n')
    .filter(line => line.startsWith('data: ') && line !== 'data: [DONE]')
    .map(line => fields(JSON.parse(line.slice('data: '.length))))
}

function tokens(usage: Fields, input: string, output: string): [number, number, number] {
  return [Number(usage[input]), Number(usage[output]), Number(usage['total_tokens'])]
}

function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {}
}

function list(value: unknown): Fields[] {
  return Array.isArray(value) ? value.map(fields) : []
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
