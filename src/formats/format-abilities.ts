/**
 * Parts of a request that only some formats can express and that must not be dropped: routing sends such a request only
 * to endpoints that can express them. Pure. Hot path: one check of each item's type.
 */
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import type { FormatName } from '../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import { FORMATS } from './table.ts'

/** Parts of a request that only some formats can express. */
export type Ability =
  | 'prompt'
  | 'modalities'
  | 'json_object'
  | 'agent_message'
  | 'context_compaction'
  | 'additional_tools'
  | 'configuration_update'
  | 'namespace'
  | 'computer_use'
  | 'tool_search'

const ABILITIES: Readonly<Record<FormatName, ReadonlySet<Ability>>> = {
  'openai-responses': new Set([
    'prompt',
    'modalities',
    'json_object',
    'agent_message',
    'context_compaction',
    'additional_tools',
    'configuration_update',
    'namespace',
    'computer_use',
    'tool_search',
  ]),
  'openai-chat': new Set(['modalities', 'json_object']),
  'google-gemini': new Set(['modalities', 'json_object']),
  'anthropic-messages': new Set(['configuration_update', 'computer_use']),
  'bedrock-converse': new Set(['configuration_update']),
}

export function hasAbility(format: FormatName, ability: Ability): boolean {
  return ABILITIES[format].has(ability)
}

/** The name of a special part: a field or the type of an item. */
export type SpecialName =
  | 'prompt'
  | 'modalities'
  | 'agent_message'
  | 'context_compaction'
  | 'configuration_update'
  | 'mcp_servers'
  | 'context_management'
  | 'computer_use'
  | 'own_kind'

/** True if a provider of the format receives the special part from a caller who uses the dialect. */
export function canExpress(format: FormatName, special: SpecialName, dialect: DialectName): boolean {
  switch (special) {
    // No request schema declares them, so that they go to a provider of the caller's own API alone.
    case 'mcp_servers':
    case 'context_management':
    case 'own_kind':
      return FORMATS[format].dialect === dialect
    // Other formats apply the last effort to the whole request.
    case 'configuration_update':
      return true
    default:
      return hasAbility(format, special)
  }
}

/** A special part of a request. */
interface SpecialPart {
  readonly special: SpecialName
  /** The path in the request, such as `input[2]`. */
  readonly path: string
}

const SPECIAL_ITEMS: ReadonlySet<unknown> = new Set<SpecialName>([
  'agent_message',
  'context_compaction',
  'configuration_update',
])
const COMPUTER_ITEMS: ReadonlySet<unknown> = new Set(['computer_call', 'computer_call_output'])
const COMPUTER_TOOLS: ReadonlySet<unknown> = new Set(['computer_use_preview', 'computer'])
const NO_SPECIAL_PARTS: readonly SpecialPart[] = []

/** The special parts of a request, each kind once; usually none. */
export function specialParts(request: ResponsesRequest, dialect: DialectName): readonly SpecialPart[] {
  let parts: SpecialPart[] | null = null
  const add = (special: SpecialName, path: string): void => {
    parts ??= []
    if (!parts.some(part => part.special === special)) parts.push({ special, path })
  }
  if (request.prompt != null) add('prompt', 'prompt')
  if (request.modalities?.includes('image') === true) add('modalities', 'modalities')
  const { input } = request
  if (typeof input !== 'string') {
    for (let index = 0; index < input.length; index++) {
      const type = input[index]?.type
      if (type === undefined) continue
      if (SPECIAL_ITEMS.has(type)) add(type as SpecialName, `input[${index}]`)
      else if (COMPUTER_ITEMS.has(type)) add('computer_use', `input[${index}]`)
    }
  }
  const computer = request.tools?.findIndex(({ type }) => COMPUTER_TOOLS.has(type)) ?? -1
  if (computer !== -1) add('computer_use', `tools[${computer}]`)
  addUndeclared(request, dialect, add)
  if (DIALECT_ABILITIES[dialect].ownKinds) addOwnKind(request, add)
  return parts ?? NO_SPECIAL_PARTS
}

/** Adds MCP servers of clients of Anthropic's API, and summaries that a client requests with `context_management`. */
function addUndeclared(
  request: ResponsesRequest,
  dialect: DialectName,
  add: (special: SpecialName, path: string) => void,
): void {
  const { mcp_servers: servers, context_management: management } = request as UndeclaredFields
  if (DIALECT_ABILITIES[dialect].mcpServers && Array.isArray(servers) && servers.length > 0)
    add('mcp_servers', 'mcp_servers')
  if (management != null && isCompacting(management)) add('context_management', 'context_management')
}

/** Fields of Gemini clients that only Google can apply and that change the result. */
const GOOGLE_FIELDS = ['cachedContent'] as const
/** The same for settings in `generationConfig`. */
const GOOGLE_SETTINGS = ['responseMimeType', 'speechConfig'] as const
const GOOGLE_TOOL = /^google_/

/** Adds fields, settings, tools and parts that only a provider of the caller's own API can apply. */
function addOwnKind(request: ResponsesRequest, add: (special: SpecialName, path: string) => void): void {
  const fields = request as unknown as Readonly<Record<string, unknown>>
  const field = GOOGLE_FIELDS.find(name => fields[name] != null)
  if (field !== undefined) add('own_kind', field)
  const { generationConfig: settings } = fields as { generationConfig?: Readonly<Record<string, unknown>> }
  const setting = GOOGLE_SETTINGS.find(name => settings?.[name] != null)
  if (setting !== undefined) add('own_kind', `generationConfig.${setting}`)
  const tool = request.tools?.findIndex(({ type }) => GOOGLE_TOOL.test(type)) ?? -1
  if (tool !== -1) add('own_kind', `tools[${tool}]`)
  const { input } = request
  if (typeof input === 'string') return
  for (let index = 0; index < input.length; index++) {
    const { content, output } = input[index] as { readonly content?: unknown; readonly output?: unknown }
    const name = Array.isArray(content) ? 'content' : 'output'
    const parts = content ?? output
    if (!Array.isArray(parts)) continue
    const part = parts.findIndex(element => element.native?.unknown !== undefined)
    if (part === -1) continue
    add('own_kind', `input[${index}].${name}[${part}]`)
    return
  }
}

/** True if the caller expects a report of applied edits, as clients of Anthropic's API do. */
export function asksForEdits(request: ResponsesRequest): boolean {
  const management = (request as UndeclaredFields).context_management
  return typeof management === 'object' && management !== null && !Array.isArray(management)
}

interface UndeclaredFields {
  readonly mcp_servers?: unknown
  readonly context_management?: unknown
}

/** True if the provider is to replace the conversation by a summary; other edits only prune the input. */
function isCompacting(management: unknown): boolean {
  const edits = Array.isArray(management) ? management : (management as { readonly edits?: unknown }).edits
  return (
    Array.isArray(edits) &&
    edits.some((edit: unknown) =>
      String((edit as { readonly type?: unknown } | null)?.type).startsWith('compact'),
    )
  )
}
