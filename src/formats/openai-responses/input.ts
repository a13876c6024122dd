/**
 * Encodes input items in the Responses wire format. Pure. Most items are already in its vocabulary. The changes:
 *
 * - the encoder omits ids of messages, calls and call outputs. The gateway stores no responses at providers, so a
 *   provider refuses ids from elsewhere, and cannot find its own;
 * - reasoning goes back only to its source (see `reasoningItem`);
 * - an item of a gateway tool becomes a function call and its output; the encoder omits an item that a provider of
 *   another format ran;
 * - it removes marks and hints for the gateway.
 */
import { filled, isRecord, type Json, recordOrEmpty, records, remainder } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { Change } from '../format.ts'
import { dataUrlOf, nameFor } from '../inline-files.ts'
import { BREAKPOINT, lastMarks } from '../marks/cache-marks.ts'
import { ownReasoning, reasoningFormat } from '../reasoning.ts'
import {
  callIdOf,
  isOurPatch,
  isOurs,
  isSpentElsewhere,
  noteOmittedItem,
  noteOmittedThought,
  refuseItem,
  replayAsCall,
} from '../replayed.ts'
import { encodeTools } from './tools.ts'

type Writer = (item: Json, endpoint: Endpoint, path: string) => readonly Json[]

/** `name` belongs to the chat dialect. */
const NOT_IN_MESSAGE: ReadonlySet<string> = new Set(['id', 'status', 'cache_control', 'name'])
const NOT_IN_CALL: ReadonlySet<string> = new Set(['id', 'subagent_id', 'subagent_items', 'signature'])
const NOT_IN_OUTPUT: ReadonlySet<string> = new Set(['id', 'status', 'is_error'])
const NOT_IN_AGENT_MESSAGE: ReadonlySet<string> = new Set(['id'])
const NOT_IN_PART: ReadonlySet<string> = new Set(['cache_control', 'processing', 'logprobs', 'annotations'])
const NOT_IN_REASONING: ReadonlySet<string> = new Set(['format', 'signature', 'content'])
const NOT_IN_UNNAMED: ReadonlySet<string> = new Set([...NOT_IN_REASONING, 'id'])
const NOT_IN_CITATION: ReadonlySet<string> = new Set(['content'])
/** A model cannot read images as text. */
const NOT_IN_RESULT: ReadonlySet<string> = new Set([
  'type',
  'id',
  'status',
  'call_id',
  'arguments',
  'imageB64',
  'screenshotB64',
])
const NONE: ReadonlySet<string> = new Set()

/** Fields that providers demand in citations; those of other providers may lack them, and then do not go out. */
const CITATION_FIELDS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['url_citation', ['url', 'title', 'start_index', 'end_index']],
  ['file_citation', ['file_id', 'filename', 'index']],
  ['file_path', ['file_id', 'index']],
  ['container_file_citation', ['container_id', 'file_id', 'filename', 'start_index', 'end_index']],
])

const WRITERS: ReadonlyMap<string, Writer> = new Map<string, Writer>([
  ['message', message],
  ['reasoning', reasoningItem],
  ['function_call', item => strip(item, NOT_IN_CALL)],
  ['custom_tool_call', item => strip(item, NOT_IN_CALL)],
  ['function_call_output', toolOutput],
  ['custom_tool_call_output', toolOutput],
  [
    'additional_tools',
    (item, endpoint, path) => [
      { ...item, tools: encodeTools(records(item['tools']), `${path}.tools`, endpoint.provider.quirks) },
    ],
  ],
  ['agent_message', agentMessage],
  ['item_reference', refuse],
])

/**
 * The wire value of `input`.
 * @throws GatewayError `unprocessable` with the path of an item without a form in this format.
 */
export function encodeInput(input: unknown, endpoint: Endpoint, omissions: Change[] = []): unknown {
  if (!Array.isArray(input)) return input
  const items = input.flatMap((value, index) => {
    const item = recordOrEmpty(value)
    const type = filled(item['type']) ?? 'message'
    if (isOurPatch(item)) return [ownPatch(item, index)]
    if (isOurs(type)) return ourResult(item, type, index)
    const pair = replayAsCall(item, index)
    if (pair !== null) return pair.map(each => ({ ...each }))
    const path = `input[${index}]`
    if (isSpentElsewhere(type, item['id'], item['signature'])) {
      noteOmittedItem(path, omissions)
      return []
    }
    if (type === 'reasoning' && isForeignThought(item, endpoint))
      noteOmittedThought(item, ownReasoning(endpoint.provider.slug), path, omissions)
    const writer = WRITERS.get(type)
    return writer === undefined ? strip(item, NONE) : writer(item, endpoint, path)
  })
  const marks = endpoint.provider.quirks.includes('cache-breakpoints')
  return (marks ? lastMarks([items], BREAKPOINT)?.[0] : null) ?? items
}

function strip(item: Json, excluded: ReadonlySet<string>): readonly Json[] {
  return [remainder(item, excluded) ?? {}]
}

function refuse(item: Json, _: Endpoint, path: string): never {
  throw refuseItem(String(item['type']), path)
}

function message(item: Json, endpoint: Endpoint): readonly Json[] {
  const content = item['content']
  // A message without content has no meaning, and most providers refuse it.
  if (content == null) return []
  const role =
    item['role'] === 'developer' && endpoint.provider.quirks.includes('system-role') ? 'system' : item['role']
  return [{ ...remainder(item, NOT_IN_MESSAGE), role, content: parts(content, endpoint) }]
}

function agentMessage(item: Json, endpoint: Endpoint): readonly Json[] {
  return [{ ...remainder(item, NOT_IN_AGENT_MESSAGE), content: parts(item['content'], endpoint) }]
}

function toolOutput(item: Json, endpoint: Endpoint): readonly Json[] {
  return [{ ...remainder(item, NOT_IN_OUTPUT), output: parts(item['output'], endpoint) }]
}

function parts(content: unknown, { provider }: Endpoint): unknown {
  if (!Array.isArray(content)) return content
  const marks = provider.quirks.includes('cache-breakpoints')
  return content.map(part => (isRecord(part) ? wirePart(part, marks) : part))
}

/** `marks`: the provider accepts cache marks in its own form. */
function wirePart(part: Json, marks: boolean): Json {
  const all = remainder(part, NOT_IN_PART) ?? {}
  const rest = typeof part['file_data'] === 'string' ? withName(all, part['file_data']) : all
  const isMarked = marks && part['cache_control'] != null && part['prompt_cache_breakpoint'] == null
  const plain = isMarked ? { ...rest, prompt_cache_breakpoint: { mode: 'explicit' } } : rest
  const citations = records(part['annotations']).filter(isComplete)
  return citations.length === 0
    ? plain
    : { ...plain, annotations: citations.map(citation => remainder(citation, NOT_IN_CITATION)) }
}

/** A file as this API takes it. */
function withName(file: Json, data: string): Json {
  const file_data = dataUrlOf(data)
  return { ...file, filename: file['filename'] ?? nameFor(file_data), file_data }
}

function isComplete(citation: Json): boolean {
  const needed = CITATION_FIELDS.get(citation['type'])
  return needed?.every(field => citation[field] != null) ?? false
}

/**
 * Encrypted reasoning goes back only to its provider; an item without a format counts as one of this wire format.
 * Providers that encrypt reasoning cannot use plain text and would look up its id in vain; others get the plain text
 * back under its id.
 */
function reasoningItem(item: Json, endpoint: Endpoint): readonly Json[] {
  if (isForeignThought(item, endpoint)) return []
  const own = ownReasoning(endpoint.provider.slug)
  const content = records(item['content'])
  const encrypted = filled(item['encrypted_content']) !== null
  if (!encrypted && (own === 'openai-responses-v1' || own === 'azure-openai-responses-v1')) return []
  if (!encrypted && content.length === 0 && records(item['summary']).length === 0) return []
  // Other APIs give thoughts no id.
  const unnamed = item['id'] === '' ? NOT_IN_UNNAMED : NOT_IN_REASONING
  const plain = { summary: [], ...remainder(item, unnamed) }
  return [content.length === 0 ? plain : { ...plain, content }]
}

function isForeignThought(item: Json, { provider }: Endpoint): boolean {
  const origin = reasoningFormat(item['format'])
  const own = ownReasoning(provider.slug)
  return (
    filled(item['format']) !== null &&
    origin !== 'unknown' &&
    (own === null ? !isOfThisWire(item) : origin !== own)
  )
}

/** True for reasoning in this wire format, which is part of the name of its format. */
function isOfThisWire(item: Json): boolean {
  return String(item['format']).includes('responses')
}

/** Its output has the native form in any case. */
function ownPatch(item: Json, index: number): Json {
  const { operation } = item
  return { type: 'apply_patch_call', call_id: callIdOf(item, index), status: 'completed', operation }
}

/** An item of a gateway tool as a function call and its output, which every provider accepts. */
function ourResult(item: Json, type: string, index: number): readonly Json[] {
  const pair = replayAsCall(item, index)
  if (pair !== null) return pair.map(each => ({ ...each }))
  const name = type.slice(type.indexOf(':') + 1)
  const callId = callIdOf(item, index)
  const result = remainder(
    item,
    name === 'image_generation' ? new Set([...NOT_IN_RESULT, 'result']) : NOT_IN_RESULT,
  )
  return [
    { type: 'function_call', call_id: callId, name, arguments: filled(item['arguments']) ?? '{}' },
    { type: 'function_call_output', call_id: callId, output: JSON.stringify(result ?? {}) },
  ]
}
