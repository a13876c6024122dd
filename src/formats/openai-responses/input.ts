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
  isGatewayPatch,
  isGatewayType,
  isRunElsewhere,
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
/** Fields of a gateway tool's item that are not its result, and images, which a model cannot read as text. */
const NOT_IN_RESULT: ReadonlySet<string> = new Set([
  'type',
  'id',
  'status',
  'call_id',
  'arguments',
  'imageB64',
  'screenshotB64',
])
const NO_FIELDS: ReadonlySet<string> = new Set()

/** Fields that providers demand in citations; those of other providers may lack them, and then do not go out. */
const CITATION_FIELDS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['url_citation', ['url', 'title', 'start_index', 'end_index']],
  ['file_citation', ['file_id', 'filename', 'index']],
  ['file_path', ['file_id', 'index']],
  ['container_file_citation', ['container_id', 'file_id', 'filename', 'start_index', 'end_index']],
])

const WRITERS: ReadonlyMap<string, Writer> = new Map<string, Writer>([
  ['message', messageItems],
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
    if (isGatewayPatch(item)) return [patchItem(item, index)]
    if (isGatewayType(type)) return gatewayCall(item, type, index)
    const callItems = replayAsCall(item, index)
    if (callItems !== null) return callItems.map(callItem => ({ ...callItem }))
    const path = `input[${index}]`
    if (isRunElsewhere(type, item['id'], item['signature'])) {
      noteOmittedItem(path, omissions)
      return []
    }
    if (type === 'reasoning' && isForeignThought(item, endpoint))
      noteOmittedThought(item, ownReasoning(endpoint.provider.slug), path, omissions)
    const writer = WRITERS.get(type)
    return writer === undefined ? strip(item, NO_FIELDS) : writer(item, endpoint, path)
  })
  const takesMarks = endpoint.provider.quirks.includes('cache-breakpoints')
  return (takesMarks ? lastMarks([items], BREAKPOINT)?.[0] : null) ?? items
}

function strip(item: Json, excludedFields: ReadonlySet<string>): readonly Json[] {
  return [remainder(item, excludedFields) ?? {}]
}

function refuse(item: Json, _: Endpoint, path: string): never {
  throw refuseItem(String(item['type']), path)
}

function messageItems(item: Json, endpoint: Endpoint): readonly Json[] {
  const content = item['content']
  // A message without content has no meaning, and most providers refuse it.
  if (content == null) return []
  const role =
    item['role'] === 'developer' && endpoint.provider.quirks.includes('system-role') ? 'system' : item['role']
  return [{ ...remainder(item, NOT_IN_MESSAGE), role, content: wireParts(content, endpoint) }]
}

function agentMessage(item: Json, endpoint: Endpoint): readonly Json[] {
  return [{ ...remainder(item, NOT_IN_AGENT_MESSAGE), content: wireParts(item['content'], endpoint) }]
}

function toolOutput(item: Json, endpoint: Endpoint): readonly Json[] {
  return [{ ...remainder(item, NOT_IN_OUTPUT), output: wireParts(item['output'], endpoint) }]
}

function wireParts(content: unknown, { provider }: Endpoint): unknown {
  if (!Array.isArray(content)) return content
  const takesMarks = provider.quirks.includes('cache-breakpoints')
  return content.map(part => (isRecord(part) ? wirePart(part, takesMarks) : part))
}

/** `takesMarks`: the provider accepts cache marks in its own form. */
function wirePart(part: Json, takesMarks: boolean): Json {
  const fields = remainder(part, NOT_IN_PART) ?? {}
  const namedFields = typeof part['file_data'] === 'string' ? withName(fields, part['file_data']) : fields
  const isMarked = takesMarks && part['cache_control'] != null && part['prompt_cache_breakpoint'] == null
  const markedFields = isMarked
    ? { ...namedFields, prompt_cache_breakpoint: { mode: 'explicit' } }
    : namedFields
  const citations = records(part['annotations']).filter(isComplete)
  return citations.length === 0
    ? markedFields
    : { ...markedFields, annotations: citations.map(citation => remainder(citation, NOT_IN_CITATION)) }
}

/** A file as this API takes it. */
function withName(file: Json, data: string): Json {
  const file_data = dataUrlOf(data)
  return { ...file, filename: file['filename'] ?? nameFor(file_data), file_data }
}

function isComplete(citation: Json): boolean {
  const requiredFields = CITATION_FIELDS.get(citation['type'])
  return requiredFields?.every(field => citation[field] != null) ?? false
}

/**
 * Encrypted reasoning goes back only to its provider; an item without a format counts as one of this wire format.
 * OpenAI and Azure cannot use plain text and would look up its id in vain; others get the plain text back under its id.
 */
function reasoningItem(item: Json, endpoint: Endpoint): readonly Json[] {
  if (isForeignThought(item, endpoint)) return []
  const ownFormat = ownReasoning(endpoint.provider.slug)
  const content = records(item['content'])
  const isEncrypted = filled(item['encrypted_content']) !== null
  if (!isEncrypted && (ownFormat === 'openai-responses-v1' || ownFormat === 'azure-openai-responses-v1'))
    return []
  if (!isEncrypted && content.length === 0 && records(item['summary']).length === 0) return []
  // Other APIs give thoughts no id.
  const excludedFields = item['id'] === '' ? NOT_IN_UNNAMED : NOT_IN_REASONING
  const wire = { summary: [], ...remainder(item, excludedFields) }
  return [content.length === 0 ? wire : { ...wire, content }]
}

function isForeignThought(item: Json, { provider }: Endpoint): boolean {
  const origin = reasoningFormat(item['format'])
  const ownFormat = ownReasoning(provider.slug)
  return (
    filled(item['format']) !== null &&
    origin !== 'unknown' &&
    (ownFormat === null ? !isResponsesFormat(item) : origin !== ownFormat)
  )
}

/** True for reasoning in this wire format, which is part of the name of its format. */
function isResponsesFormat(item: Json): boolean {
  return String(item['format']).includes('responses')
}

/** The output of a patch always has the native form, so its call gets that form too. */
function patchItem(item: Json, index: number): Json {
  const { operation } = item
  return { type: 'apply_patch_call', call_id: callIdOf(item, index), status: 'completed', operation }
}

/** An item of a gateway tool as a function call and its output, which every provider accepts. */
function gatewayCall(item: Json, type: string, index: number): readonly Json[] {
  const callItems = replayAsCall(item, index)
  if (callItems !== null) return callItems.map(callItem => ({ ...callItem }))
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
