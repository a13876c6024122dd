/**
 * Adapts the client's tools to formats that support fewer kinds: rewrites the request, and translates calls in the
 * reply back. Hot path for such requests; others cost three checks of their tools.
 */
import { GatewayError, rewritten } from '../../base/errors.ts'
import { itemId } from '../../base/ids.ts'
import { isRecord, parseJson, recordOrEmpty } from '../../base/json.ts'
import type { ComputerUse, Format } from '../../formats/format.ts'
import { type Ability, has } from '../../formats/format-abilities.ts'
import { LongText } from '../../formats/long-text.ts'
import { type OutwardNames, outwardNames } from '../../formats/preconditions/names.ts'
import { hasSpecialName } from '../../formats/preconditions/prepare.ts'
import { preconditionsOf } from '../../formats/preconditions/table.ts'
import type { InputItem } from '../../protocol/items.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import type { FormatName, Provider } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { CustomTool, Tool } from '../../protocol/tools.ts'
import type { Content } from '../answer/assemble.ts'
import { settleControls } from './control-items.ts'
import { type CallerName, flattenNamespaces } from './namespaces.ts'

/** A request that was adapted to a format. */
export interface FittedRequest {
  readonly prompt: ResponsesRequest
  /** Names of functions that stand for custom tools. */
  readonly custom: ReadonlySet<string>
  /** The caller's names of tools by the names that the model sees, of those that differ. */
  readonly names: ReadonlyMap<string, CallerName>
  /** The caller's paths of the tools; null if they are unchanged. */
  readonly toolPaths: readonly string[] | null
  /** Null if the model has no computer, or the format has items for its calls. */
  readonly computer: ComputerUse | null
}

const NOBODY: ReadonlySet<string> = new Set()
const SAME_NAMES: ReadonlyMap<string, CallerName> = new Map()

/** Adapts the tools of a request; null if the provider accepts them unchanged. */
export function fitTools(
  request: ResponsesRequest,
  { name, customTools, computer }: Pick<Format, 'name' | 'customTools' | 'computer'>,
  provider: Provider,
): FittedRequest | null {
  if (!isSpecial(request)) return null
  const takesCustom = customTools !== null && (provider.customTools ?? customTools)
  const settled = settleControls(request, ability => takes(name, takesCustom, ability))
  const flat = takes(name, takesCustom, 'namespace')
    ? null
    : flattenNamespaces(settled?.prompt ?? request, settled?.toolPaths ?? [])
  const prompt = flat?.prompt ?? settled?.prompt ?? request
  const custom = takesCustom ? null : customAsFunctions(prompt)
  const used = computer !== undefined && usesComputer(prompt) ? computer : null
  const renamed =
    prompt.tools == null ? null : outwardNames(preconditionsOf(name, provider).names, prompt.tools)
  if (settled === null && flat === null && custom === null && used === null && renamed === null) return null
  return {
    prompt: custom?.prompt ?? prompt,
    custom:
      custom === null || renamed === null ? (custom?.names ?? NOBODY) : outwardOf(custom.names, renamed),
    names: renamed === null ? (flat?.names ?? SAME_NAMES) : callerNames(flat?.names ?? SAME_NAMES, renamed),
    toolPaths: flat?.toolPlaces ?? settled?.toolPaths ?? null,
    computer: used,
  }
}

/** Types of tools and items that not every provider takes. */
const SPECIAL: ReadonlySet<string | undefined> = new Set([
  'custom',
  'namespace',
  'computer_use_preview',
  'computer',
  'custom_tool_call',
  'custom_tool_call_output',
  'additional_tools',
  'configuration_update',
])

/** True for a request that some provider takes in another form only. One pass: most requests are not special. */
function isSpecial({ input, tools }: ResponsesRequest): boolean {
  if (tools != null) {
    if (hasSpecialName(tools)) return true
    for (let at = 0; at < tools.length; at++) if (SPECIAL.has(tools[at]?.type)) return true
  }
  if (typeof input === 'string') return false
  for (let at = 0; at < input.length; at++) {
    const { namespace, type } = input[at] as { readonly namespace?: unknown; readonly type?: string }
    if (namespace != null || SPECIAL.has(type)) return true
  }
  return false
}

function outwardOf(names: ReadonlySet<string>, renamed: OutwardNames): ReadonlySet<string> {
  return new Set([...names].map(name => renamed.of(name)))
}

/** The encoder gives tools the names that the provider takes; see formats/preconditions/. */
function callerNames(flat: ReadonlyMap<string, CallerName>, { own }: OutwardNames): Map<string, CallerName> {
  const names = new Map(flat)
  for (const [outward, name] of own) names.set(outward, flat.get(name) ?? { namespace: null, name })
  return names
}

/** Abilities whose tools may be custom ones: a provider that takes no custom tools gets them as functions. */
const HOLDERS: ReadonlySet<Ability> = new Set(['namespace', 'additional_tools'])

function takes(format: FormatName, takesCustom: boolean, ability: Ability): boolean {
  return has(format, ability) && (takesCustom || !HOLDERS.has(ability))
}

const TOOL_PATH = /^tools\[(\d{1,6})\]/

/** Returns the result of `encode`. @throws its errors, with the tools' paths as the caller wrote them */
export function withClientPaths<Result>(paths: readonly string[] | null, encode: () => Result): Result {
  if (paths === null) return encode()
  try {
    return encode()
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    const message = thrown.message.replace(TOOL_PATH, (path, at) => paths[Number(at)] ?? path)
    throw message === thrown.message ? thrown : rewritten(thrown, { message })
  }
}

/** Translates the calls of one reply to the form in which the client declared their tools. */
export class ClientCalls {
  readonly #names: FittedRequest['names']
  readonly #custom: CustomCalls | null
  readonly #computer: ComputerCalls | null
  readonly #emit: (delta: Content) => void

  /** `emit` receives the deltas that are emitted in another form. */
  constructor({ custom, names, computer }: FittedRequest, emit: (delta: Content) => void) {
    this.#names = names
    this.#emit = delta => emit(this.#named(delta))
    this.#computer = computer === null ? null : new ComputerCalls(computer, emit)
    this.#custom = custom.size === 0 ? null : new CustomCalls(custom, this.#emit)
  }

  /** True if the delta was emitted in another form. */
  take(delta: Content): boolean {
    if (this.#computer?.take(delta) === true || this.#custom?.take(delta) === true) return true
    if (this.#named(delta) === delta) return false
    this.#emit(delta)
    return true
  }

  /** Call where no more deltas of the calls so far can come: not every format closes its calls. */
  end(): void {
    this.#custom?.end()
  }

  #named(delta: Content): Content {
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

// Computer use in formats where the tool is a function: calls come back as complete `computer_call` items.

const TYPES: ReadonlySet<unknown> = new Set(['computer_use_preview', 'computer'])

/** True if the request gives the model a computer. */
function usesComputer({ tools }: ResponsesRequest): boolean {
  return tools?.some(({ type }) => TYPES.has(type)) === true
}

/** Translates the calls of one reply. */
class ComputerCalls {
  readonly #tool: ComputerUse
  readonly #emit: (delta: Content) => void
  readonly #open = new Map<number, { readonly callId: string; readonly text: LongText }>()

  constructor(tool: ComputerUse, emit: (delta: Content) => void) {
    this.#tool = tool
    this.#emit = emit
  }

  /** True if the delta belongs to a call of the computer. */
  take(delta: Content): boolean {
    if (delta.kind === 'open') {
      if (delta.start.type !== 'function_call' || delta.start.name !== this.#tool.name) return false
      this.#open.set(delta.item, { callId: delta.start.callId ?? itemId('cu'), text: new LongText() })
      return true
    }
    const call = this.#open.get(delta.item)
    if (call === undefined) return false
    if (delta.kind === 'arguments') call.text.add(delta.text)
    if (delta.kind === 'close') {
      this.#open.delete(delta.item)
      this.#end(delta.item, call.callId, call.text.toString())
    }
    return true
  }

  #end(item: number, call_id: string, text: string): void {
    const input = text === '' ? {} : parseJson(text)
    const action = this.#tool.action(isRecord(input) ? input : {})
    const id = itemId('cu')
    const fields = { call_id, action, pending_safety_checks: [] }
    const start = { type: 'computer_call', id, status: 'in_progress', ...fields } as const
    this.#emit({ kind: 'open', item, start: { type: 'hosted', item: start } })
    this.#emit({ kind: 'close', item, fields: { status: 'completed', ...fields } })
  }
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
  const { input, ...rest } = item
  return { ...rest, type: 'function_call', arguments: JSON.stringify({ input }) }
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
   * True if the delta belongs to a call of a custom tool: that call is emitted in its own form, with the input at the
   * end.
   */
  take(delta: Content): boolean {
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
