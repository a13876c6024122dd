/**
 * Turns recorded streams into the complete replies that the same provider would have sent, because batch requests are
 * never streamed. Reads only the public shapes. Pure.
 */
import { SseParser } from '../../src/providers/upstream/sse.ts'
import type { Format, Play } from './cases.ts'
import { type Fields, fields, list, text } from './said.ts'

type Loose = Record<string, unknown>

/** The play as a whole reply; null: the stream has no end, or something that no whole reply has. */
export function wholeForm(play: Play): Play | null {
  if (!play.streamed) return play
  let body: Fields | null
  try {
    body = WHOLE[play.format](framesIn(play.bytes()))
  } catch {
    // A frame is no JSON.
    return null
  }
  if (body === null) return null
  const bytes = Buffer.from(JSON.stringify(body))
  return { ...play, streamed: false, contentType: 'application/json', bytes: () => bytes }
}

function framesIn(bytes: Buffer): readonly Fields[] {
  const frames: Fields[] = []
  const parser = new SseParser((_, data) => {
    if (data !== '[DONE]') frames.push(fields(JSON.parse(data)))
  }, bytes.length)
  parser.push(bytes)
  parser.end()
  return frames
}

const WHOLE: Readonly<Record<Format, (frames: readonly Fields[]) => Fields | null>> = {
  'openai-responses': wholeResponse,
  'openai-chat': wholeCompletion,
  'anthropic-messages': wholeMessage,
  'google-gemini': wholeContent,
}

const ENDS: readonly unknown[] = ['response.completed', 'response.incomplete', 'response.failed']

/** The last event has all; some providers leave out the items that they have told. */
function wholeResponse(events: readonly Fields[]): Fields | null {
  const end = events.findLast(({ type }) => ENDS.includes(type))
  if (end === undefined) return null
  const response = fields(end['response'])
  if (list(response['output']).length > 0) return response
  const items = events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item)
  return { ...response, output: items }
}

/** Fields of a message whose pieces follow each other. */
const PIECES = ['content', 'reasoning', 'reasoning_content', 'refusal']
/** Fields of a message whose elements follow each other. */
const LISTS = ['reasoning_details', 'annotations', 'images']

function wholeCompletion(chunks: readonly Fields[]): Fields | null {
  const message: Loose = { role: 'assistant', content: null }
  const choice: Loose = { index: 0, finish_reason: null, message }
  const calls: Loose[] = []
  let usage: unknown = null
  if (chunks.some(({ error }) => error != null)) return null
  for (const chunk of chunks) {
    usage = chunk['usage'] ?? fields(chunk['x_groq'])['usage'] ?? usage
    const part = list(chunk['choices']).find(({ index }) => (index ?? 0) === 0)
    if (part === undefined) continue
    const delta = fields(part['delta'] ?? part['message'])
    for (const [name, value] of Object.entries(part))
      if (name.endsWith('finish_reason') && value != null) choice[name] = value
    for (const name of PIECES) if (delta[name] != null) message[name] = joined(message[name], delta[name])
    for (const name of LISTS) {
      if (list(delta[name]).length > 0) message[name] = [...list(message[name]), ...list(delta[name])]
    }
    for (const call of list(delta['tool_calls'])) addCall(calls, call)
  }
  if (choice['finish_reason'] === null) return null
  if (calls.length > 0) message['tool_calls'] = calls.filter(call => call !== undefined)
  const [first = {}] = chunks
  return { ...first, object: 'chat.completion', choices: [choice], usage }
}

/** Texts, or lists of parts. */
function joined(before: unknown, more: unknown): unknown {
  if (before == null || before === '') return more
  if (typeof before === 'string' && typeof more === 'string') return before + more
  const parts = (value: unknown) => (Array.isArray(value) ? value : [{ type: 'text', text: value }])
  return [...parts(before), ...parts(more)]
}

function addCall(calls: Loose[], piece: Fields): void {
  const at = typeof piece['index'] === 'number' ? piece['index'] : calls.length
  const more = fields(piece['function'])
  const known = calls[at]
  if (known === undefined) {
    calls[at] = { ...piece, function: { ...more } }
    return
  }
  const call = known['function'] as Loose
  call['name'] = text(call['name']) || text(more['name'])
  call['arguments'] = text(call['arguments']) + text(more['arguments'])
}

/** Fields of a block whose pieces follow each other, by the type of the delta. */
const DELTAS: Readonly<Record<string, string>> = {
  text_delta: 'text',
  thinking_delta: 'thinking',
  signature_delta: 'signature',
  compaction_delta: 'content',
}

function wholeMessage(events: readonly Fields[]): Fields | null {
  const starts = events.filter(({ type }) => type === 'message_start')
  if (events.some(({ type }) => type === 'error') || !events.some(({ type }) => type === 'message_stop'))
    return null
  const message: Loose = { ...fields(starts[0]?.['message']) }
  const startBlocks = list(message['content']).map((block): Loose => ({ ...block }))
  const blocks: Loose[] = []
  const inputs = new Map<Loose, string>()
  for (const event of events) {
    const block = blocks[Number(event['index'])]
    const delta = fields(event['delta'])
    if (event['type'] === 'content_block_start') {
      blocks[Number(event['index'])] = { ...fields(event['content_block']) }
    } else if (event['type'] === 'message_delta') {
      Object.assign(message, delta)
      message['usage'] = { ...fields(message['usage']), ...fields(event['usage']) }
    } else if (event['type'] === 'content_block_delta' && block !== undefined) {
      const type = text(delta['type'])
      const field = DELTAS[type]
      if (type === 'input_json_delta')
        inputs.set(block, (inputs.get(block) ?? '') + text(delta['partial_json']))
      else if (type === 'citations_delta')
        block['citations'] = [...list(block['citations']), fields(delta['citation'])]
      else if (field === undefined) return null
      else block[field] = text(block[field]) + text(delta[field])
    }
  }
  for (const [block, json] of inputs) if (json !== '') block['input'] = JSON.parse(json)
  return { ...message, content: [...startBlocks, ...blocks.filter(block => block !== undefined)] }
}

/** Each chunk has the shape of a whole reply: parts follow each other, of the rest the last counts. */
function wholeContent(chunks: readonly Fields[]): Fields | null {
  if (chunks.length === 0 || chunks.some(({ error }) => error != null)) return null
  const whole: Loose = {}
  const candidate: Loose = {}
  const parts: Fields[] = []
  for (const chunk of chunks) {
    Object.assign(whole, chunk)
    const part = list(chunk['candidates'])[0] ?? {}
    parts.push(...list(fields(part['content'])['parts']))
    Object.assign(candidate, part)
  }
  const isSaid = chunks.some(({ candidates }) => list(candidates).length > 0)
  if (!isSaid) return whole
  return { ...whole, candidates: [{ ...candidate, content: { role: 'model', parts } }] }
}
