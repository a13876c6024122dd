/**
 * Tool namespaces in formats that have functions only: a namespaced tool is sent as `NAMESPACE__name`, and its calls
 * come back with `namespace` and `name`. Pure. The sent name depends only on namespace and name, unless another tool
 * has taken it, so a conversation keeps its functions when tools are added.
 */
import { withHash } from '../../formats/preconditions/names.ts'
import type { InputItem } from '../../protocol/items.ts'
import { NAME_MAX_CHARS } from '../../protocol/limits.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Tool } from '../../protocol/tools.ts'

/** The name of a tool as the caller knows it. */
export interface CallerName {
  /** Null: the tool is in no namespace. */
  readonly namespace: string | null
  readonly name: string
}

interface FlatTools {
  readonly prompt: ResponsesRequest
  /** Keyed by the names that the model sees. */
  readonly names: ReadonlyMap<string, CallerName>
  /** The caller's path of each tool in the flat list. */
  readonly toolPaths: readonly string[]
}

/**
 * Total number of characters that descriptions of namespaces may add to those of their tools: each one is repeated for
 * each of its tools. Twenty thousand characters for each of fifty tools.
 */
const DESCRIPTIONS_MAX_CHARS = 1024 * 1024
const DISALLOWED_CHARACTERS = /[^a-zA-Z0-9_-]/g

type Namespace = Extract<Tool, { type: 'namespace' }>

/** Null if the request has no namespace. `paths`: the paths of its tools, for errors. */
export function flattenNamespaces(prompt: ResponsesRequest, paths: readonly string[]): FlatTools | null {
  const { tools = [], input, tool_choice: choice } = prompt
  const isCalled = typeof input !== 'string' && input.some(item => namespaceOf(item) !== null)
  if (!isCalled && !tools.some(isNamespace)) return null
  const usedNames = new Set(tools.flatMap(tool => (isNamespace(tool) ? [] : plainName(tool))))
  const names = new FlatNames(usedNames)
  const innerCount = tools.reduce((count, tool) => count + (isNamespace(tool) ? tool.tools.length : 0), 0)
  const descriptionMaxChars = Math.floor(DESCRIPTIONS_MAX_CHARS / Math.max(1, innerCount))
  const toolPaths: string[] = []
  const flat = tools.flatMap((tool, toolIndex): Tool[] => {
    const path = paths[toolIndex] ?? `tools[${toolIndex}]`
    if (!isNamespace(tool)) {
      toolPaths.push(path)
      return [tool]
    }
    const namespaceText = tool.description.slice(0, descriptionMaxChars).toWellFormed()
    return tool.tools.map((inner, innerIndex) => {
      toolPaths.push(`${path}.tools[${innerIndex}]`)
      return { ...inner, name: names.of(tool.name, inner.name), ...describe(namespaceText, inner) } as Tool
    })
  })
  return {
    prompt: {
      ...prompt,
      tools: flat,
      input: typeof input === 'string' ? input : input.map(item => flatCall(item, names)),
      ...(choice === undefined ? {} : { tool_choice: flatChoice(choice, tools, names) }),
    },
    names: names.callerNames,
    toolPaths,
  }
}

function isNamespace(tool: Tool): tool is Namespace {
  return tool.type === 'namespace'
}

function plainName(tool: Tool): readonly string[] {
  const { name } = tool as { readonly name?: unknown }
  return typeof name === 'string' ? [name] : []
}

/** A tool's description includes its namespace's description, because the model does not see the namespace itself. */
function describe(namespaceText: string, { description }: Namespace['tools'][number]) {
  const text = [namespaceText, description ?? ''].filter(part => part !== '').join('\n\n')
  return text === '' ? {} : { description: text }
}

/** The names of one request, each created once. */
class FlatNames {
  readonly callerNames = new Map<string, CallerName>()
  readonly #usedNames: ReadonlySet<string>

  constructor(usedNames: ReadonlySet<string>) {
    this.#usedNames = usedNames
  }

  of(namespace: string, name: string): string {
    const flatName = `${namespace}${namespace.endsWith('__') ? '' : '__'}${name}`
    const allowedName = flatName.replace(DISALLOWED_CHARACTERS, '_')
    const isFree =
      allowedName.length <= NAME_MAX_CHARS &&
      !this.#usedNames.has(allowedName) &&
      this.#isOf(allowedName, namespace, name)
    const flat = isFree
      ? allowedName
      : withHash(allowedName, JSON.stringify([namespace, name]), NAME_MAX_CHARS)
    this.callerNames.set(flat, { namespace, name })
    return flat
  }

  /** True unless the name already stands for another tool. */
  #isOf(flat: string, namespace: string, name: string): boolean {
    const existing = this.callerNames.get(flat)
    return existing === undefined || (existing.namespace === namespace && existing.name === name)
  }
}

function namespaceOf(item: InputItem): string | null {
  if (item.type !== 'function_call' && item.type !== 'custom_tool_call') return null
  return item.namespace ?? null
}

function flatCall(item: InputItem, names: FlatNames): InputItem {
  const namespace = namespaceOf(item)
  if (namespace === null || (item.type !== 'function_call' && item.type !== 'custom_tool_call')) return item
  const { namespace: _, ...call } = item
  return { ...call, name: names.of(namespace, item.name) }
}

type Choice = NonNullable<ResponsesRequest['tool_choice']>
type ChoiceEntry = Readonly<Record<string, unknown>>

function flatChoice(choice: Choice, tools: readonly Tool[], names: FlatNames): Choice {
  if (typeof choice === 'string') return choice
  const namedTools = new NamedTools(tools, names)
  if (choice.type === 'allowed_tools') {
    return { ...choice, tools: choice.tools.flatMap(tool => namedTools.flat(tool)) }
  }
  const [flat] = namedTools.flat(choice as ChoiceEntry)
  return (flat ?? choice) as Choice
}

/** The tools of a request, indexed by everything that a choice may name, so that no entry needs a search. */
class NamedTools {
  readonly #names: FlatNames
  /** Names of tools outside of namespaces. */
  readonly #plain = new Set<string>()
  readonly #spaces = new Map<unknown, Namespace[]>()
  /** The first namespace that has a tool, by kind and name, with and without its own name. */
  readonly #owners = new Map<string, Namespace>()
  /** Namespaces that an entry has already named: a second entry would repeat all of their tools. */
  readonly #expandedNamespaces = new Set<unknown>()

  constructor(tools: readonly Tool[], names: FlatNames) {
    this.#names = names
    for (const tool of tools) {
      if (isNamespace(tool)) this.#add(tool)
      else for (const name of plainName(tool)) this.#plain.add(name)
    }
  }

  /** A named tool, or all tools of a named namespace, by the names that the model sees. */
  flat(entry: ChoiceEntry): Record<string, unknown>[] {
    const { type, name, namespace, ...otherFields } = entry
    if (type === 'namespace') {
      if (this.#expandedNamespaces.has(name)) return []
      this.#expandedNamespaces.add(name)
      return (this.#spaces.get(name) ?? []).flatMap(space =>
        space.tools.map(tool => ({ type: tool.type, name: this.#names.of(space.name, tool.name) })),
      )
    }
    const isPlain = namespace == null && this.#plain.has(String(name))
    const space = isPlain ? undefined : this.#owners.get(ownerKey(namespace, type, name))
    return [
      space === undefined
        ? { ...entry }
        : { ...otherFields, type, name: this.#names.of(space.name, String(name)) },
    ]
  }

  #add(space: Namespace): void {
    const spaces = this.#spaces.get(space.name)
    if (spaces === undefined) this.#spaces.set(space.name, [space])
    else spaces.push(space)
    for (const { type, name } of space.tools) {
      for (const key of [ownerKey(null, type, name), ownerKey(space.name, type, name)])
        if (!this.#owners.has(key)) this.#owners.set(key, space)
    }
  }
}

function ownerKey(namespace: unknown, type: unknown, name: unknown): string {
  return JSON.stringify([namespace ?? null, type, name])
}
