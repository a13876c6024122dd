/**
 * Items of earlier turns for which the format has no representation of its own. Pure. One rule holds for all formats,
 * so that a conversation can continue with another provider:
 * - an encoder omits an item that a provider ran by itself (`omitItem`);
 * - a call of a tool that the gateway ran becomes a function call and its output, because later turns may ask for it;
 * - an encoder refuses any other item and names its path. Such an item records something that the client or its tools
 *   said or did, or encrypted history, so omitting it would change the conversation. Reasoning is an exception: each
 *   encoder sends back reasoning that its provider can verify and omits the rest.
 */
import type { GatewayError } from '../base/errors.ts'
import { filled, isRecord, type Json, parseJson } from '../base/json.ts'
import { PROVIDER_RUN_TYPES } from '../protocol/hosted-items.ts'
import type { InputItem } from '../protocol/items.ts'
import { functionName } from '../protocol/tools.ts'
import { inexpressible } from './failure.ts'
import type { Change } from './format.ts'
import { type ReasoningFormat, reasoningFormat } from './reasoning.ts'

const OMITTABLE_TYPES: ReadonlySet<string> = new Set([
  ...PROVIDER_RUN_TYPES,
  'tool_search_call',
  'tool_search_output',
])

/** Both prefixes of tools and items that run on the gateway. */
const GATEWAY_PREFIX = /^(gateway|openrouter):/

/** Prefixes of ids that the gateway or Anthropic gives to hosted items. */
const FOREIGN_ID = /^(st|srvtoolu|mcptoolu)_/

/** True for a type of tool or item of the gateway. No provider has it. */
export function isGatewayType(type: string): boolean {
  return GATEWAY_PREFIX.test(type)
}

/** The most omissions that are reported, because a conversation may have thousands of items. */
const OMISSIONS_MAX = 100

function noteOmission(path: string, reason: string, omissions: Change[]): void {
  if (omissions.length < OMISSIONS_MAX) omissions.push({ field: path, action: 'dropped', reason })
}

/** Notes an item of a tool that a provider or the gateway ran, and that the encoder omits. */
export function noteOmittedItem(path: string, omissions: Change[]): void {
  noteOmission(path, 'the provider cannot take back what another one has run', omissions)
}

/**
 * Notes reasoning that an encoder omits, if another provider has made it. Other reasoning is not noted: a provider
 * does not want its own without a signature.
 * @param ownFormat the name of the provider's own reasoning; null: it has none
 */
export function noteOmittedThought(
  { format }: { readonly format?: unknown },
  ownFormat: ReasoningFormat | null,
  path: string,
  omissions: Change[],
): void {
  const origin = reasoningFormat(format)
  if (origin !== null && origin !== 'unknown' && origin !== ownFormat)
    noteOmission(path, FOREIGN_THOUGHT, omissions)
}

/** The reason of a change: reasoning of another provider. */
export const FOREIGN_THOUGHT = 'only the provider that made this reasoning can read it'

/**
 * Checks that an encoder may omit an item of this type where its format has no form for it: a provider or the gateway
 * ran the tool, and the model's own words after it hold the result. Notes it in `omissions`.
 * @throws GatewayError `unprocessable` for any other item
 */
export function omitItem(type: string, path: string, omissions: Change[] = []): void {
  if (!OMITTABLE_TYPES.has(type) && !isGatewayType(type)) throw refuseItem(type, path)
  noteOmittedItem(path, omissions)
}

/** The error for an item that an encoder must not omit. */
export function refuseItem(type: string, path: string): GatewayError {
  return inexpressible(`${path}.type`, `an item ${type} cannot be sent to this provider`)
}

/**
 * True for an item of a hosted tool that has the form of the Responses format but comes from elsewhere. A Responses
 * provider would look up its id, or miss fields that only its own items have. Gemini signs its items.
 */
export function isRunElsewhere(type: string, id: unknown, signature: unknown): boolean {
  return (
    OMITTABLE_TYPES.has(type) &&
    (typeof signature === 'string' || (typeof id === 'string' && FOREIGN_ID.test(id)))
  )
}

type Call = Extract<InputItem, { type: 'function_call' }>
type Output = Extract<InputItem, { type: 'function_call_output' }>
type Fields = Readonly<Record<string, unknown>>

/** The fields of a replayed item that this file reads. */
interface ReplayedItem {
  readonly type?: unknown
  readonly id?: unknown
  readonly call_id?: unknown
  readonly action?: unknown
  /** JSON, as the model wrote it; not every item has it. */
  readonly arguments?: unknown
  readonly operation?: unknown
  readonly output?: unknown
  readonly status?: unknown
}

/** Fields of the item that were the arguments of its call, and those that were its result. */
const REPLAYED_TOOLS: {
  readonly [name in string]?: { readonly input: readonly string[]; readonly result: readonly string[] }
} = {
  datetime: { input: ['timezone'], result: ['datetime', 'timezone'] },
  bash: { input: ['command'], result: ['stdout', 'stderr', 'exitCode', 'error'] },
  shell: { input: ['action'], result: ['output', 'error'] },
  code_interpreter: { input: ['code'], result: ['stdout', 'stderr', 'exitCode'] },
  web_search: { input: ['action'], result: ['sources'] },
  web_fetch: { input: ['url'], result: ['title', 'content', 'error'] },
  files: { input: ['operation', 'file_id', 'filename'], result: ['result', 'error'] },
  memory: { input: ['action', 'key'], result: ['value'] },
  advisor: { input: ['prompt'], result: ['advice', 'error'] },
  subagent: { input: ['task_name', 'task_description'], result: ['outcome', 'error'] },
  fusion: { input: [], result: ['analysis', 'responses', 'error'] },
}

const UNFINISHED_STATUSES: ReadonlySet<unknown> = new Set(['incomplete', 'in_progress'])

/**
 * A replayed item of `REPLAYED_TOOLS`, of an MCP tool that the gateway has called, or of a patch that it asked the
 * client to apply, as function calls and outputs, which every format can express; null for others and for items without
 * a result. Later turns may ask for the result, and the client itself may have run a command.
 */
export function replayAsCall(item: ReplayedItem, index: number): readonly (Call | Output)[] | null {
  if (isGatewayPatch(item)) return patchCall(item, index)
  if (item.type === 'mcp_call') return replayMcpCall(item as Fields)
  // Approval requests of the gateway and their answers become nothing: the call, or its refusal, says the same.
  if (item.type === 'mcp_approval_request') return isGatewayId(item.id) ? [] : null
  if (item.type === 'mcp_approval_response')
    return isGatewayId((item as Fields)['approval_request_id']) ? [] : null
  const name =
    typeof item.type === 'string' && isGatewayType(item.type) ? item.type.replace(GATEWAY_PREFIX, '') : ''
  const fields = Object.hasOwn(REPLAYED_TOOLS, name) ? REPLAYED_TOOLS[name] : undefined
  // A command that was left to the client stays in progress in the item that the client fills.
  if (fields === undefined || (UNFINISHED_STATUSES.has(item.status) && name !== 'bash')) return null
  const call_id = callIdOf(item, index)
  const { sources, ...action } = isRecord(item.action) ? item.action : {}
  const parsedArguments = typeof item.arguments === 'string' ? parseJson(item.arguments) : undefined
  const input = isRecord(parsedArguments)
    ? parsedArguments
    : isRecord(item.action)
      ? action
      : pick(item, fields.input)
  const output = pick({ ...item, sources }, fields.result)
  // An item without a result has nothing that a later turn could need.
  if (Object.keys(output).length === 0) return null
  return [
    { type: 'function_call', call_id, name, arguments: JSON.stringify(input) },
    { type: 'function_call_output', call_id, output: JSON.stringify(output) },
  ]
}

/** True for the id of a server tool's item. */
function isGatewayId(id: unknown): id is string {
  return typeof id === 'string' && id.startsWith('st_')
}

function replayMcpCall({
  id,
  name,
  arguments: callArguments,
  output,
  error,
}: Fields): readonly [Call, Output] | null {
  // Calls of providers have other ids, and their own form if the format has one.
  if (!isGatewayId(id)) return null
  const text = typeof callArguments === 'string' && isRecord(parseJson(callArguments)) ? callArguments : '{}'
  const result = filled(output) ?? (error == null ? '' : JSON.stringify({ error }))
  return [
    { type: 'function_call', call_id: id, name: functionName(String(name)), arguments: text },
    { type: 'function_call_output', call_id: id, output: result },
  ]
}

function pick(item: object, names: readonly string[]): Json {
  const entries = names.map(name => [name, Reflect.get(item, name) as unknown] as const)
  return Object.fromEntries(entries.filter(([, value]) => value != null))
}

const PATCH_TYPE = /^(?:gateway|openrouter):apply_patch$/

/** True for a patch that the gateway asked the client to apply; a wrong patch never reached the client. */
export function isGatewayPatch({ type, operation }: ReplayedItem): boolean {
  return PATCH_TYPE.test(String(type)) && isRecord(operation)
}

/**
 * A native patch or shell command, or its outcome, as function call or output, for formats without a form of their own;
 * null for other items.
 */
export function nativeAsCall(item: ReplayedItem, index: number): readonly (Call | Output)[] | null {
  switch (item.type) {
    case 'apply_patch_call':
      return patchCall(item, index)
    case 'apply_patch_call_output':
      return patchOutput(item)
    case 'shell_call':
      return shellCall(item, 'shell', index)
    case 'local_shell_call':
      return shellCall(item, 'local_shell', index)
    case 'shell_call_output':
      return typeof item.call_id === 'string' ? outputOf(item.call_id, item.output) : null
    case 'local_shell_call_output':
      // The item's own id is the id of the call.
      return typeof item.id === 'string' ? outputOf(item.id, item.output) : null
    default:
      return null
  }
}

function shellCall(item: ReplayedItem, name: string, index: number): readonly Call[] {
  return [
    {
      type: 'function_call',
      call_id: callIdOf(item, index),
      name,
      arguments: JSON.stringify(item.action ?? {}),
    },
  ]
}

function outputOf(call_id: string, output: unknown): readonly Output[] {
  return [
    {
      type: 'function_call_output',
      call_id,
      output: typeof output === 'string' ? output : JSON.stringify(output),
    },
  ]
}

function patchCall(item: ReplayedItem, index: number): readonly Call[] {
  const call_id = callIdOf(item, index)
  return [{ type: 'function_call', call_id, name: 'apply_patch', arguments: JSON.stringify(item.operation) }]
}

function patchOutput({ call_id, output, status }: ReplayedItem): readonly Output[] | null {
  if (typeof call_id !== 'string') return null
  const failure = status === 'failed' ? { is_error: true } : {}
  return [{ type: 'function_call_output', call_id, output: filled(output) ?? String(status), ...failure }]
}

/** The call id for a replayed item of a gateway tool. Any id works if call and output share it. */
export function callIdOf(item: { readonly call_id?: unknown; readonly id?: unknown }, index: number): string {
  return filled(item.call_id) ?? filled(item.id) ?? `call_${index}`
}

/** Reasoning that Claude can verify, at Anthropic and in every cloud: by its signature, or sealed. */
type ClaudeThought = { readonly text: string; readonly signature: string } | { readonly sealedText: string }

/**
 * The reasoning in the form that Claude verifies; null for reasoning of other models, or without signature and seal.
 */
export function claudeThought(item: Extract<InputItem, { type: 'reasoning' }>): ClaudeThought | null {
  const isClaude = item.format === 'anthropic-claude-v1'
  if (item.signature != null && item.signature !== '' && (isClaude || item.format == null)) {
    const raw = item.content?.map(part => part.text).join('') ?? ''
    const text = raw === '' ? (item.summary?.map(part => part.text).join('') ?? '') : raw
    return { text, signature: item.signature }
  }
  const sealedText = isClaude ? (item.encrypted_content ?? '') : ''
  return sealedText === '' ? null : { sealedText }
}
