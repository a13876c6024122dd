/**
 * Cache breakpoints that the gateway adds, if the provider caches only up to breakpoints and the caller sets none. They
 * pay off when the same prompt is sent again: an agent that sends a tool result repeats its whole conversation, and so
 * does a conversation whose beginning was sent shortly before. A single question gets no mark, because writing to a
 * cache costs more than the plain prompt. Pure.
 */
import { isRecord, type Json, recordOrEmpty, records } from '../../base/json.ts'
import type { AnyFormatName, Endpoint } from '../../protocol/provider.ts'
import type { ModelRequest } from '../format.ts'

/** Formats of providers that cache only marked prompts. */
export const MARKED_FORMATS: ReadonlySet<AnyFormatName> = new Set<AnyFormatName>([
  'anthropic-messages',
  'bedrock-converse',
])

const CACHE_MARK = { type: 'ephemeral' }
/** User messages at the end that are marked: the last one, and the last one of the previous call. */
const MARKED_MESSAGES_MAX = 2
/** The depth of a block in the content of a tool result in the content of a message. */
const DEPTH_MAX = 3

/** True where marks of our own are allowed, and reading from a cache costs less than the prompt. */
export function mayPay({ mayMark }: ModelRequest, { pricing }: Endpoint): boolean {
  return mayMark === true && pricing.inputCacheRead !== null && pricing.inputCacheRead < pricing.prompt
}

/**
 * The body of a request to the Messages API with the gateway's marks if they save money; otherwise the body itself.
 * `isSeen`: true if the prompt begins with one that was sent shortly before.
 */
export function withOwnMarks<Body extends Json>(body: Body, isSeen: () => boolean = neverSeen): Body {
  const messages = records(body['messages'])
  const endsInTool = endsInResult(messages)
  if (!endsInTool && isSeen === neverSeen) return body
  if (isMarked(body) || !(endsInTool || isSeen())) return body
  const fields: Record<string, unknown> = { messages: markedMessages(messages) }
  const tools = markedTools(records(body['tools']))
  if (tools !== null) fields['tools'] = tools
  const system = markedSystem(body['system'])
  if (system !== null) fields['system'] = system
  return { ...body, ...fields }
}

function endsInResult(messages: readonly Json[]): boolean {
  const last = messages.findLast(message => message['role'] !== 'system')
  return last?.['role'] === 'user' && records(last['content']).some(block => block['type'] === 'tool_result')
}

function isMarked(body: Json): boolean {
  if (body['cache_control'] != null) return true
  return [body['tools'], body['system'], body['messages']].some(list => hasMark(list, DEPTH_MAX))
}

function hasMark(list: unknown, depth: number): boolean {
  if (depth === 0 || !Array.isArray(list)) return false
  return list.some(
    block => isRecord(block) && (block['cache_control'] != null || hasMark(block['content'], depth - 1)),
  )
}

/** Marks the last tool that the model sees from the start: a deferred tool cannot have a mark. */
function markedTools(tools: readonly Json[]): readonly Json[] | null {
  const index = tools.findLastIndex(tool => tool['defer_loading'] !== true)
  return index === -1 ? null : tools.with(index, withMark(tools[index] ?? {}))
}

function markedSystem(system: unknown): readonly Json[] | null {
  if (typeof system === 'string') return system === '' ? null : [withMark({ type: 'text', text: system })]
  const blocks = records(system)
  return blocks.length === 0 ? null : blocks.with(-1, withMark(blocks.at(-1) ?? {}))
}

function markedMessages(messages: readonly Json[]): readonly Json[] {
  const copy = [...messages]
  let marksLeft = MARKED_MESSAGES_MAX
  for (let index = messages.length - 1; index >= 0 && marksLeft > 0; index--) {
    const message = messages[index]
    if (message?.['role'] !== 'user') continue
    const { content } = message
    const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : records(content)
    if (blocks.length === 0) continue
    copy[index] = { ...message, content: blocks.with(-1, withMark(blocks.at(-1) ?? {})) }
    marksLeft--
  }
  return copy
}

function withMark(block: Json): Json {
  return { ...block, cache_control: CACHE_MARK }
}

function neverSeen(): boolean {
  return false
}

const POINT_BLOCK = { cachePoint: { type: 'default' } }

/**
 * The same for a body of Converse: its cache points are separate blocks after the blocks that they cover. `onTools`:
 * the model also accepts them after tools.
 */
export function withOwnPoints<Body extends Json>(
  body: Body,
  onTools: boolean,
  isSeen: () => boolean = neverSeen,
): Body {
  const messages = records(body['messages'])
  const config = recordOrEmpty(body['toolConfig'])
  const [tools, system] = [records(config['tools']), records(body['system'])]
  const contents = messages.flatMap(message => records(message['content']))
  const last = messages.at(-1)
  const endsInTool =
    last?.['role'] === 'user' && records(last['content']).some(block => block['toolResult'] !== undefined)
  if (!endsInTool && isSeen === neverSeen) return body
  if ([...tools, ...system, ...contents].some(block => block['cachePoint'] !== undefined)) return body
  if (!(endsInTool || isSeen())) return body
  let marksLeft = MARKED_MESSAGES_MAX
  const reversedMessages = messages.toReversed().map(message => {
    if (message['role'] !== 'user' || marksLeft === 0) return message
    marksLeft--
    return { ...message, content: [...records(message['content']), POINT_BLOCK] }
  })
  return {
    ...body,
    messages: reversedMessages.toReversed(),
    ...(system.length === 0 ? {} : { system: [...system, POINT_BLOCK] }),
    ...(tools.length === 0 || !onTools ? {} : { toolConfig: { ...config, tools: [...tools, POINT_BLOCK] } }),
  }
}
