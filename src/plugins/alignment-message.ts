/**
 * The message of a turn, in the form for the evaluator and in the form for the caller of a withheld one. Pure. It holds
 * only output of the model: no reasoning, no tool results, nothing of the conversation.
 */
import type { HostedItem, OutputItem } from '../protocol/items.ts'

export interface JudgedCall {
  readonly name: string
  readonly arguments: string
  readonly namespace?: string
}

/** A message in the form for the evaluator, which gets images separately. */
export interface JudgedMessage {
  readonly role: 'assistant'
  readonly content: string | null
  readonly tool_calls?: readonly JudgedCall[]
  readonly refusal?: string
}

export interface Extract {
  readonly message: JudgedMessage
  /** Generated images, as data URLs. */
  readonly images: readonly string[]
}

/** UTF-16 units. A longer message is not judged at all: half a message could mislead. */
const TEXT_MAX = 10_000
const CALLS_MAX = 16
const CALLS_JSON_MAX = 4_000
const REFUSAL_MAX = 1_000
/** More images than any model generates in one turn. */
const IMAGES_MAX = 16

/** By item type of a provider's tool: the field that the model wrote. */
const HOSTED_SAID: Readonly<Record<string, string>> = {
  web_search_call: 'action',
  file_search_call: 'queries',
  code_interpreter_call: 'code',
  computer_call: 'action',
  local_shell_call: 'action',
  shell_call: 'action',
  apply_patch_call: 'operation',
  mcp_call: 'arguments',
  mcp_approval_request: 'arguments',
  tool_search_call: 'arguments',
}

/** Extracts the message to judge; null if it is too long (`cut`). The cost does not depend on the length of items. */
export function extractMessage(output: readonly OutputItem[]): Extract | null {
  const [texts, refusals]: [string[], string[]] = [[], []]
  const calls: JudgedCall[] = []
  const images: string[] = []
  for (const item of output) {
    if (item.type === 'message' && Array.isArray(item.content)) {
      let text = ''
      for (const part of item.content) {
        if (part.type === 'refusal') refusals.push(part.refusal)
        else text += part.text
      }
      if (text !== '') texts.push(text)
    } else {
      const call = callOf(item)
      if (call !== null) calls.push(call)
      const image = imageOf(item)
      if (image !== null) images.push(image)
    }
  }
  if (tooLong(texts, TEXT_MAX) || tooLong(refusals, REFUSAL_MAX)) return null
  if (calls.length > CALLS_MAX || images.length > IMAGES_MAX) return null
  if (calls.reduce((sum, call) => sum + call.name.length + call.arguments.length, 0) > CALLS_JSON_MAX)
    return null
  if (calls.length > 0 && JSON.stringify(calls).length > CALLS_JSON_MAX) return null
  return {
    message: {
      role: 'assistant',
      content: texts.length === 0 ? null : texts.join('\n\n'),
      ...(calls.length === 0 ? {} : { tool_calls: calls }),
      ...(refusals.length === 0 ? {} : { refusal: refusals.join('\n\n') }),
    },
    images,
  }
}

/** The withheld message as items, with new ids. `turn` counts from 1. */
export function rejectedItems(output: readonly OutputItem[], turn: number): readonly object[] {
  const rejected: object[] = []
  let images = 0
  for (const item of output) {
    if (item.type === 'message') rejected.push({ ...item, id: `msg_${turn}` })
    else if (item.type === 'function_call') rejected.push({ ...item, id: `fc_${item['call_id']}` })
    else if (item.type === 'custom_tool_call') rejected.push({ ...item, id: `ctc_${item['call_id']}` })
    else if (item.type === 'image_generation_call') rejected.push({ ...item, id: `ig_${turn}_${images++}` })
  }
  return rejected
}

function callOf(item: OutputItem): JudgedCall | null {
  switch (item.type) {
    case 'function_call':
      return judgedCall(item['name'], item['arguments'], item['namespace'])
    case 'custom_tool_call':
      return judgedCall(item['name'], item['input'], item['namespace'])
    default:
      return hostedCall(item as HostedItem)
  }
}

function hostedCall(item: HostedItem): JudgedCall | null {
  const field = HOSTED_SAID[item.type]
  if (field !== undefined) return judgedCall(item['name'] ?? item.type, item[field], item['server_label'])
  if (!item.type.startsWith('gateway:') && !item.type.startsWith('openrouter:')) return null
  const { type, id: _id, status: _status, ...said } = item
  return judgedCall(type, said, undefined)
}

function judgedCall(name: unknown, said: unknown, namespace: unknown): JudgedCall {
  const text = typeof said === 'string' ? said : (JSON.stringify(said ?? null) ?? '')
  return {
    name: String(name),
    arguments: text,
    ...(typeof namespace === 'string' ? { namespace } : {}),
  }
}

function imageOf(item: OutputItem): string | null {
  if (item.type !== 'image_generation_call') return null
  const { result } = item as HostedItem
  if (typeof result !== 'string' || result === '') return null
  return result.startsWith('data:') ? result : `data:image/png;base64,${result}`
}

function tooLong(texts: readonly string[], max: number): boolean {
  return texts.reduce((sum, text) => sum + text.length, 0) > max
}
