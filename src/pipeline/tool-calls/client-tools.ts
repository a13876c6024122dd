/**
 * Adapts the client's tools to formats that support fewer kinds: rewrites the request, and translates calls in the
 * reply back. Hot path for such requests; others cost one pass over their tools and items.
 */
import { GatewayError, rewritten } from '../../base/errors.ts'
import { type ItemPrefix, itemId } from '../../base/ids.ts'
import { isRecord, parseJson, recordOrEmpty } from '../../base/json.ts'
import type { Change, ComputerUse, Format } from '../../formats/format.ts'
import { type Ability, hasAbility } from '../../formats/format-abilities.ts'
import { LongText } from '../../formats/long-text.ts'
import { type OutwardNames, outwardNames } from '../../formats/preconditions/names.ts'
import { hasSpecialName } from '../../formats/preconditions/prepare.ts'
import { preconditionsOf } from '../../formats/preconditions/table.ts'
import type { InputItem } from '../../protocol/items.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import type { Endpoint, FormatName } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { type CustomTool, isClientSearch, type Tool } from '../../protocol/tools.ts'
import type { Content } from '../answer/answer.ts'
import { settleControls } from './control-items.ts'
import { type CallerName, flattenNamespaces } from './namespaces.ts'

/** A request that was adapted to a format. */
export interface FittedRequest {
  readonly prompt: ResponsesRequest
  /** Names of functions that stand for custom tools. */
  readonly customNames: ReadonlySet<string>
  /** The caller's names of tools, keyed by the names that the model sees, where the two differ. */
  readonly names: ReadonlyMap<string, CallerName>
  /** The caller's paths of the tools; null if they are unchanged. */
  readonly toolPaths: readonly string[] | null
  /** Functions whose calls come back as items of other types, by the names that the model sees. */
  readonly items: ReadonlyMap<string, ItemForm>
  /** Tools that the provider gets in another form or at another place. */
  readonly changes: readonly Change[]
}

const NO_CUSTOM_NAMES: ReadonlySet<string> = new Set()
const SAME_NAMES: ReadonlyMap<string, CallerName> = new Map()

/** Adapts the tools of a request; null if the provider accepts them unchanged. */
export function fitTools(
  request: ResponsesRequest,
  { name, customTools, computer }: Pick<Format, 'name' | 'customTools' | 'computer'>,
  endpoint: Endpoint,
): FittedRequest | null {
  if (!isSpecial(request)) return null
  const { provider } = endpoint
  const takesCustom = customTools !== null && (provider.customTools ?? customTools)
  const controls = settleControls(request, ability => accepts(name, takesCustom, ability))
  const searchFunction = accepts(name, takesCustom, 'tool_search')
    ? null
    : searchAsFunction(controls?.prompt ?? request, controls?.toolPaths ?? [])
  const plain = searchFunction ?? controls
  const flat = accepts(name, takesCustom, 'namespace')
    ? null
    : flattenNamespaces(plain?.prompt ?? request, plain?.toolPaths ?? [])
  const prompt = flat?.prompt ?? plain?.prompt ?? request
  const custom = takesCustom ? null : customAsFunctions(prompt)
  const items = new Map<string, ItemForm>()
  const renames =
    prompt.tools == null ? null : outwardNames(preconditionsOf(name, endpoint).names, prompt.tools)
  if (computer !== undefined && usesComputer(prompt)) items.set(computer.name, computerForm(computer))
  if (searchFunction?.name != null)
    items.set(renames?.sentName(searchFunction.name) ?? searchFunction.name, SEARCH_FORM)
  if (plain === null && flat === null && custom === null && items.size === 0 && renames === null) return null
  return {
    prompt: custom?.prompt ?? prompt,
    customNames:
      custom === null || renames === null
        ? (custom?.names ?? NO_CUSTOM_NAMES)
        : outwardOf(custom.names, renames),
    names: renames === null ? (flat?.names ?? SAME_NAMES) : callerNames(flat?.names ?? SAME_NAMES, renames),
    toolPaths: flat?.toolPaths ?? plain?.toolPaths ?? null,
    items,
    changes: fittingChanges(request, {
      namespace: flat !== null,
      custom: custom !== null,
      tool_search: searchFunction !== null,
      isMoved: type => controls !== null && !accepts(name, takesCustom, type),
    }),
  }
}

/** The kinds of tools and items that were fitted. */
interface Fitting {
  readonly namespace: boolean
  readonly custom: boolean
  readonly tool_search: boolean
  isMoved(type: Ability): boolean
}

const AS_FUNCTION_REASONS = {
  namespace:
    'the provider has no namespaces: the names of the functions begin with the name of the namespace',
  custom:
    'the provider has only functions: the tool is a function with one text, and its grammar is in the description',
  tool_search: 'the provider has no tool search: the search is a function',
} as const
const MOVED_REASON = 'the provider accepts it only for the whole conversation'
/** More changes are not reported, because a request may have thousands of tools. */
const MAX_REPORTED_CHANGES = 100

/** The tools and items of a request that were fitted, by the caller's paths. */
function fittingChanges({ input, tools }: ResponsesRequest, fitting: Fitting): readonly Change[] {
  const changes: Change[] = []
  for (const [index, tool] of (tools ?? []).entries()) {
    const kind = tool.type === 'tool_search' && !isClientSearch(tool) ? null : tool.type
    if (kind !== 'namespace' && kind !== 'custom' && kind !== 'tool_search') continue
    if (fitting[kind])
      changes.push({ field: `tools[${index}]`, action: 'changed', reason: AS_FUNCTION_REASONS[kind] })
  }
  for (const [index, { type }] of (typeof input === 'string' ? [] : input).entries()) {
    const isMoved =
      type === 'tool_search_output'
        ? fitting.tool_search
        : (type === 'additional_tools' || type === 'configuration_update') && fitting.isMoved(type)
    if (isMoved) changes.push({ field: `input[${index}]`, action: 'moved', reason: MOVED_REASON })
  }
  return changes.length > MAX_REPORTED_CHANGES ? changes.slice(0, MAX_REPORTED_CHANGES) : changes
}

/** Types of tools and items that not every provider takes. */
const SPECIAL_TYPES: ReadonlySet<string | undefined> = new Set([
  'custom',
  'namespace',
  'computer_use_preview',
  'computer',
  'custom_tool_call',
  'custom_tool_call_output',
  'additional_tools',
  'configuration_update',
  'tool_search',
  'tool_search_call',
  'tool_search_output',
])

/** True for a request that some provider takes in another form only. One pass: most requests are not special. */
function isSpecial({ input, tools }: ResponsesRequest): boolean {
  if (tools != null) {
    if (hasSpecialName(tools)) return true
    for (let index = 0; index < tools.length; index++) if (SPECIAL_TYPES.has(tools[index]?.type)) return true
  }
  if (typeof input === 'string') return false
  for (let index = 0; index < input.length; index++) {
    const { namespace, type } = input[index] as { readonly namespace?: unknown; readonly type?: string }
    if (namespace != null || SPECIAL_TYPES.has(type)) return true
  }
  return false
}

function outwardOf(names: ReadonlySet<string>, renames: OutwardNames): ReadonlySet<string> {
  return new Set([...names].map(name => renames.sentName(name)))
}

/** The encoder gives tools the names that the provider takes; see formats/preconditions/. */
function callerNames(
  flat: ReadonlyMap<string, CallerName>,
  { callerNames }: OutwardNames,
): Map<string, CallerName> {
  const names = new Map(flat)
  for (const [outward, name] of callerNames) names.set(outward, flat.get(name) ?? { namespace: null, name })
  return names
}

/** Abilities whose tools may be custom ones: a provider that does not accept custom tools gets them as functions. */
const CUSTOM_HOLDERS: ReadonlySet<Ability> = new Set(['namespace', 'additional_tools', 'tool_search'])

function accepts(format: FormatName, takesCustom: boolean, ability: Ability): boolean {
  return hasAbility(format, ability) && (takesCustom || !CUSTOM_HOLDERS.has(ability))
}

const TOOL_PATH = /^tools\[(\d{1,6})\]/

/** The changes of a fitted request, with the tools' paths as the caller wrote them. */
export function fittedChanges(
  { changes, toolPaths }: Pick<FittedRequest, 'changes' | 'toolPaths'>,
  laterChanges: readonly Change[],
): readonly Change[] {
  if (toolPaths === null) return [...changes, ...laterChanges]
  const pathOfCaller = (field: string): string =>
    field.replace(TOOL_PATH, (path, index) => toolPaths[Number(index)] ?? path)
  return [...changes, ...laterChanges.map(change => ({ ...change, field: pathOfCaller(change.field) }))]
}

/** Returns the result of `encode`. @throws its errors, with the tools' paths as the caller wrote them */
export function withClientPaths<Result>(paths: readonly string[] | null, encode: () => Result): Result {
  if (paths === null) return encode()
  try {
    return encode()
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    const message = thrown.message.replace(TOOL_PATH, (path, index) => paths[Number(index)] ?? path)
    throw message === thrown.message ? thrown : rewritten(thrown, { message })
  }
}

/** Translates the calls of one reply to the form in which the client declared their tools. */
export class ClientCalls {
  readonly #names: FittedRequest['names']
  readonly #custom: CustomCalls | null
  readonly #items: ItemCalls | null
  readonly #emit: (delta: Content) => void

  /** `emit` receives the deltas that are emitted in another form. */
  constructor({ customNames, names, items }: FittedRequest, emit: (delta: Content) => void) {
    this.#names = names
    this.#emit = delta => emit(this.#withToolName(delta))
    this.#items = items.size === 0 ? null : new ItemCalls(items, emit)
    this.#custom = customNames.size === 0 ? null : new CustomCalls(customNames, this.#emit)
  }

  /** True if the delta must not be emitted itself: it is emitted in another form, perhaps later. */
  collect(delta: Content): boolean {
    if (this.#items?.collect(delta) === true || this.#custom?.intercept(delta) === true) return true
    if (this.#withToolName(delta) === delta) return false
    this.#emit(delta)
    return true
  }

  /** Call where no more deltas of the calls so far can come: not every format closes its calls. */
  end(): void {
    this.#items?.end()
    this.#custom?.end()
  }

  #withToolName(delta: Content): Content {
    if (delta.kind !== 'open') return delta
    const { start } = delta
    if (start.type !== 'function_call' && start.type !== 'custom_tool_call') return delta
    const origin = this.#names.get(start.name)
    if (origin === undefined) return delta
    const { namespace, name } = origin
    const extra = namespace === null ? start.extra : { ...start.extra, namespace }
    return { ...delta, start: { ...start, name, extra } }
  }
}

// Functions that stand for another kind of tool: their calls come back as complete items.

/** The item for a call of a function. */
interface ItemForm {
  /** The prefix of the ids of its items. */
  readonly prefix: ItemPrefix
  fields(callId: string, text: string): { readonly type: string; readonly [field: string]: unknown }
}

const COMPUTER_TYPES: ReadonlySet<unknown> = new Set(['computer_use_preview', 'computer'])

/** True if the request gives the model a computer. */
function usesComputer({ tools }: ResponsesRequest): boolean {
  return tools?.some(({ type }) => COMPUTER_TYPES.has(type)) === true
}

function computerForm(computer: ComputerUse): ItemForm {
  return {
    prefix: 'cu',
    fields: (call_id, text) => ({
      type: 'computer_call',
      call_id,
      action: computer.action(recordOrEmpty(text === '' ? {} : parseJson(text))),
      pending_safety_checks: [],
    }),
  }
}

const SEARCH_FORM: ItemForm = {
  prefix: 'ts',
  fields: (call_id, text) => {
    const input = text === '' ? {} : parseJson(text)
    return {
      type: 'tool_search_call',
      call_id,
      execution: 'client',
      arguments: isRecord(input) ? input : text,
    }
  },
}

/** Translates the calls of one reply. */
class ItemCalls {
  readonly #forms: FittedRequest['items']
  readonly #emit: (delta: Content) => void
  readonly #open = new Map<
    number,
    {
      readonly form: ItemForm
      readonly callId: string
      readonly text: LongText
      /** A provider's signature, which goes with the item. */
      readonly signatureField: Readonly<Record<string, unknown>>
    }
  >()

  constructor(forms: FittedRequest['items'], emit: (delta: Content) => void) {
    this.#forms = forms
    this.#emit = emit
  }

  /** True if the delta belongs to such a call. */
  collect(delta: Content): boolean {
    if (delta.kind === 'open') {
      const { start } = delta
      const form = start.type === 'function_call' ? this.#forms.get(start.name) : undefined
      if (form === undefined || start.type !== 'function_call') return false
      const callId = start.callId ?? itemId(form.prefix)
      const { signature } = start.extra ?? {}
      const signatureField = signature === undefined ? {} : { signature }
      this.#open.set(delta.item, { form, callId, text: new LongText(), signatureField })
      return true
    }
    const call = this.#open.get(delta.item)
    if (call === undefined) return false
    if (delta.kind === 'arguments') call.text.add(delta.text)
    if (delta.kind === 'close') this.#emitItem(delta.item)
    return true
  }

  /** Emits calls that were not closed. */
  end(): void {
    for (const item of this.#open.keys()) this.#emitItem(item)
  }

  #emitItem(item: number): void {
    const call = this.#open.get(item)
    if (call === undefined) return
    this.#open.delete(item)
    const { form, callId, text, signatureField } = call
    const { type, ...fields } = form.fields(callId, text.toString())
    const start = { type, id: itemId(form.prefix), status: 'in_progress', ...fields }
    this.#emit({ kind: 'open', item, start: { type: 'hosted', item: start } })
    this.#emit({ kind: 'close', item, fields: { status: 'completed', ...fields, ...signatureField } })
  }
}

// The client's own search among tools, at providers without one: a function. The tools that it found are declared.

interface FittedSearch {
  readonly prompt: ResponsesRequest
  readonly toolPaths: readonly string[]
  /** The function that stands for the search; null: the request has only results of earlier searches. */
  readonly name: string | null
}

/** Null if the request has neither a client's search nor the result of one. `paths`: the paths of its tools. */
function searchAsFunction(prompt: ResponsesRequest, paths: readonly string[]): FittedSearch | null {
  const { input } = prompt
  const list = prompt.tools ?? []
  const isSearched = typeof input !== 'string' && input.some(isSearchItem)
  if (!isSearched && !list.some(isClientSearch)) return null
  const tools: Tool[] = []
  const toolPaths: string[] = []
  const names = new Set(list.filter(tool => !isClientSearch(tool)).map(nameOf))
  const name = names.has(SEARCH_NAME) ? `${SEARCH_NAME}_client` : SEARCH_NAME
  for (const [index, tool] of list.entries()) {
    tools.push(isClientSearch(tool) ? searchFunction(tool, name) : tool)
    toolPaths.push(paths[index] ?? `tools[${index}]`)
  }
  const items: InputItem[] = []
  for (const [itemIndex, item] of (typeof input === 'string' ? [] : input).entries()) {
    items.push(...searchCallOf(item, name))
    if (item.type !== 'tool_search_output') continue
    for (const [toolIndex, tool] of item.tools.entries()) {
      if (names.has(nameOf(tool))) continue
      names.add(nameOf(tool))
      tools.push(withoutDeferral(tool))
      toolPaths.push(`input[${itemIndex}].tools[${toolIndex}]`)
    }
  }
  return {
    prompt: { ...prompt, tools, ...(typeof input === 'string' ? {} : { input: items }) },
    toolPaths,
    name: list.some(isClientSearch) ? name : null,
  }
}

const SEARCH_NAME = 'tool_search'

function isSearchItem({ type }: InputItem): boolean {
  return type === 'tool_search_call' || type === 'tool_search_output'
}

function nameOf(tool: Tool): string {
  return 'name' in tool && typeof tool.name === 'string' ? tool.name : ''
}

function searchFunction(tool: Tool, name: string): Tool {
  const { description, parameters } = tool as {
    readonly description?: unknown
    readonly parameters?: unknown
  }
  return {
    type: 'function',
    name,
    description: typeof description === 'string' ? description : 'Finds further tools',
    parameters: isRecord(parameters) ? parameters : objectSchema(['query'], { query: { type: 'string' } }),
    strict: null,
  } as Tool
}

/**
 * A client's search as the call of its function, and the result as the output of that call; other items unchanged.
 * Removes searches that a provider ran; the tools that they found stay.
 */
function searchCallOf(item: InputItem, name: string): readonly InputItem[] {
  if (item.type !== 'tool_search_call' && item.type !== 'tool_search_output') return [item]
  const { call_id: id } = item
  if (item.execution === 'server' || id == null || id === '') return []
  if (item.type === 'tool_search_call') {
    const { arguments: input } = item
    const text = typeof input === 'string' ? input : JSON.stringify(input ?? {})
    const { signature } = item as { readonly signature?: unknown }
    const signatureField = typeof signature === 'string' ? { signature } : {}
    return [{ type: 'function_call', call_id: id, name, arguments: text, ...signatureField }]
  }
  const toolNames = item.tools.flatMap(tool =>
    tool.type === 'namespace'
      ? tool.tools.map(innerTool => `${tool.name}__${innerTool.name}`)
      : [nameOf(tool)],
  )
  return [{ type: 'function_call_output', call_id: id, output: JSON.stringify({ tools: toolNames }) }]
}

/** The tool as one that was never deferred. */
function withoutDeferral(tool: Tool): Tool {
  const { defer_loading: _, ...otherFields } = tool as Tool & { readonly defer_loading?: unknown }
  if (tool.type !== 'namespace') return otherFields as Tool
  return { ...tool, tools: tool.tools.map(innerTool => withoutDeferral(innerTool as Tool)) } as Tool
}

// Custom tools at providers that know functions only: each is sent as a function with one text argument `input`, and
// so are its calls in the history.

/** The same request with functions, and the names of the functions that stand for custom tools. */
interface CustomAsFunctions {
  readonly prompt: ResponsesRequest
  readonly names: ReadonlySet<string>
}

/** Null if the request has no custom tool, and no call of one. */
function customAsFunctions(prompt: ResponsesRequest): CustomAsFunctions | null {
  const { input, tools, tool_choice: choice } = prompt
  const isDeclared = tools?.some(isCustom) === true
  const isCalled = typeof input !== 'string' && input.some(isCustomItem)
  if (!isDeclared && !isCalled) return null
  return {
    prompt: {
      ...prompt,
      ...(isCalled ? { input: input.map(asFunctionItem) } : {}),
      ...(isDeclared ? { tools: tools.map(tool => (isCustom(tool) ? functionOf(tool) : tool)) } : {}),
      ...(choice === undefined ? {} : { tool_choice: choiceOf(choice) }),
    },
    names: new Set(tools?.filter(isCustom).map(({ name }) => name)),
  }
}

function isCustomItem({ type }: InputItem): boolean {
  return type === 'custom_tool_call' || type === 'custom_tool_call_output'
}

/** A call of a custom tool as the call of its function, or an output as the output of one; other items unchanged. */
function asFunctionItem(item: InputItem): InputItem {
  if (item.type === 'custom_tool_call_output') return { ...item, type: 'function_call_output' }
  if (item.type !== 'custom_tool_call') return item
  const { input, ...otherFields } = item
  return { ...otherFields, type: 'function_call', arguments: JSON.stringify({ input }) }
}

function isCustom(tool: Tool): tool is CustomTool {
  return tool.type === 'custom'
}

function functionOf({ name, description, format }: CustomTool): Tool {
  // The provider cannot make the model follow a grammar, so the description tells the model about it.
  const grammar =
    format?.type === 'grammar'
      ? `The input must fit this ${format.syntax} grammar:\n${format.definition}`
      : ''
  return {
    type: 'function',
    name,
    description: [description ?? '', grammar].filter(text => text !== '').join('\n\n'),
    parameters: objectSchema(['input'], {
      input: { type: 'string', description: 'The whole input of the tool, as text' },
    }),
    strict: null,
  } as Tool
}

type Choice = NonNullable<ResponsesRequest['tool_choice']>

function choiceOf(choice: Choice): Choice {
  if (typeof choice === 'string') return choice
  if (choice.type === 'custom') return { type: 'function', name: choice.name }
  if (choice.type !== 'allowed_tools') return choice
  const tools = choice.tools.map(tool => (tool['type'] === 'custom' ? { ...tool, type: 'function' } : tool))
  return { ...choice, tools }
}

/** Translates the calls of one reply. */
class CustomCalls {
  readonly #names: ReadonlySet<string>
  readonly #emit: (delta: Content) => void
  readonly #open = new Map<number, LongText>()

  constructor(names: ReadonlySet<string>, emit: (delta: Content) => void) {
    this.#names = names
    this.#emit = emit
  }

  /**
   * True if the delta must not be emitted itself: a call of a custom tool is emitted in its own form, with the whole
   * input before its end.
   */
  intercept(delta: Content): boolean {
    if (delta.kind === 'open') {
      if (delta.start.type !== 'function_call' || !this.#names.has(delta.start.name)) return false
      this.#open.set(delta.item, new LongText())
      this.#emit({ ...delta, start: { ...delta.start, type: 'custom_tool_call' } })
      return true
    }
    const text = this.#open.get(delta.item)
    if (text === undefined) return false
    if (delta.kind === 'arguments') {
      text.add(delta.text)
      return true
    }
    if (delta.kind === 'close') this.#emitInput(delta.item, text)
    return false
  }

  /** Emits the input of calls that were not closed. */
  end(): void {
    for (const [item, text] of this.#open) this.#emitInput(item, text)
  }

  #emitInput(item: number, text: LongText): void {
    this.#open.delete(item)
    this.#emit({ kind: 'arguments', item, text: inputOf(text.toString()) })
  }
}

/** The text argument; anything else is returned unchanged. */
function inputOf(text: string): string {
  const { input } = recordOrEmpty(parseJson(text))
  return typeof input === 'string' ? input : text
}
