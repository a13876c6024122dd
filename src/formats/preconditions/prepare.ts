/**
 * Makes a request meet the requirements of its receiver: applies the rules below in their order, each to the items,
 * tools and schemas that it concerns. A request is always changed in the same way, so that prompts stay in the
 * providers' caches. Changes by a rule are reported with the caller's paths. Pure. Hot path: a request without tools,
 * schemas and calls costs one pass over its items.
 */
import { GatewayError, rewritten } from '../../base/errors.ts'
import type { Json } from '../../base/json.ts'
import type { InputItem, InputMessage } from '../../protocol/items.ts'
import type { InputPart } from '../../protocol/parts.ts'
import {
  type Endpoint,
  type FormatName,
  type JsonFormat,
  REFUSABLE_SETTINGS,
  type RefusableName,
} from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Tool } from '../../protocol/tools.ts'
import type { Change, ModelRequest, WireRequest } from '../format.ts'
import { answersOfOpen } from '../open-calls.ts'
import { fieldThatStops, takenEffort } from '../reasoning.ts'
import { nativeAsCall, replayAsCall } from '../replayed.ts'
import { isOutput, outputsAfterCalls, outwardIds, pairsOf } from './calls.ts'
import { type OutwardNames, outwardNames } from './names.ts'
import { closedSchema, JSON_HINT, objectRoot, objectText } from './schemas.ts'
import { MIN_OUTPUT_MAX, type Preconditions, preconditionsOf, ROOT_UNIONS, SPECIAL_NAMES } from './table.ts'

/** Writes a request in a format. */
export type Encode = (model: ModelRequest, endpoint: Endpoint) => WireRequest

/** The origin of an item of the prepared input. */
interface Place {
  /** Its index in the caller's input. */
  readonly at: number
  /** For a message with parts of an output: the indexes of these parts in the output. */
  readonly parts?: readonly number[]
}

/** The parts of a request that rules concern. */
interface Survey {
  hasCalls: boolean
  hasSystem: boolean
  /** True if there are items, mostly of tools, that a format may be unable to express. */
  hasOthers: boolean
  hasFailures: boolean
  /** True if there are results with parts other than text. */
  hasParts: boolean
}

/** Null if the request needs no change. */
export function prepared(model: ModelRequest, format: FormatName, endpoint: Endpoint): Prompt | null {
  const { request } = model
  const { input, text, tools, stop, max_output_tokens: most } = request
  const survey = typeof input === 'string' ? null : surveyed(input)
  const mayRename = tools != null && hasSpecialName(tools)
  const hasOddRoot = tools?.some(isOddRoot) === true
  const hasLimits = stop != null || (most != null && most < MIN_OUTPUT_MAX)
  const isTuned = hasRefusable(request)
  const isPlain = survey === null && text == null && !hasLimits && !isTuned && !mayRename && !hasOddRoot
  if (isPlain && !hasStrictTool(tools)) return null
  const demands = preconditionsOf(format, endpoint)
  const names = mayRename ? outwardNames(demands.names, tools) : null
  const wanted = text?.format
  const instead =
    wanted == null || wanted.type === 'text' ? null : nearestFormat(request, wanted.type, demands)
  let prompt: Prompt | null = null
  if (instead !== null) {
    prompt = new Prompt(model, demands)
    formatInWords(prompt, instead)
  }
  if (survey !== null) {
    prompt ??= new Prompt(model, demands)
    // The order matters: each rule sees the result of the rules before it.
    if (survey.hasOthers) itemsAsCalls(prompt)
    if (survey.hasCalls || survey.hasOthers) {
      pairCalls(prompt)
      if (demands.arguments === 'object') objectArguments(prompt)
      if (demands.thought !== null) fillThoughts(prompt, demands.thought)
    }
    if (survey.hasFailures && demands.failures === 'words') failuresInWords(prompt)
    if (survey.hasParts && demands.results === 'text') textResults(prompt, isOutput)
    else if (survey.hasParts && survey.hasFailures && demands.failures === 'text-field' && !prompt.isOwnApi)
      textResults(prompt, isFailure)
    if (survey.hasSystem && demands.system !== 'anywhere') joinSystem(prompt)
  }
  if (isTuned) {
    const refused = refusedSettings(request, demands)
    if (refused.length > 0) {
      prompt ??= new Prompt(model, demands)
      prompt.set(Object.fromEntries(refused.map(name => [name, undefined])))
    }
  }
  // A caller who uses the provider's own API is responsible for its schemas.
  const isJudged = model.isOwnApi !== true
  const schema = instead === null ? wanted : null
  const isEnforced = isJudged && demands.schemas === 'closed' && schema?.type === 'json_schema'
  const isStrict = isJudged && demands.toolSchemas === 'closed' && hasStrictTool(tools)
  const isRooted = isJudged && demands.toolRoots !== 'any' && hasOddRoot
  const isWorded = demands.jsonWord && schema?.type === 'json_object'
  if (names !== null || isEnforced || isStrict || isRooted || isWorded || hasLimits) {
    prompt ??= new Prompt(model, demands)
    if (names !== null) useNames(prompt, names)
    if (isEnforced) closeSchema(prompt, schema)
    if (isRooted) objectRoots(prompt)
    if (isStrict) closeToolSchemas(prompt)
    if (isWorded) jsonInWords(prompt)
    if (hasLimits) limitFields(prompt)
  }
  return prompt?.isChanged === true ? prompt : null
}

/** Null if no rule concerns an item. */
function surveyed(input: readonly InputItem[]): Survey | null {
  let survey: Survey | null = null
  for (let at = 0; at < input.length; at++) {
    const item = input[at] as InputItem
    switch (item.type) {
      case undefined:
      case 'message':
        if (item.role === 'user' || item.role === 'assistant') break
        survey ??= { ...NOTHING }
        survey.hasSystem = true
        break
      case 'reasoning':
        break
      case 'function_call':
      case 'custom_tool_call':
        survey ??= { ...NOTHING }
        survey.hasCalls = true
        break
      case 'function_call_output':
      case 'custom_tool_call_output':
        survey ??= { ...NOTHING }
        survey.hasCalls = true
        if (item.is_error === true) survey.hasFailures = true
        if (typeof item.output !== 'string') survey.hasParts = true
        break
      default:
        survey ??= { ...NOTHING }
        // Marks a patch that was not applied as a failure.
        survey.hasOthers = true
        survey.hasFailures = true
    }
  }
  return survey
}

const NOTHING: Survey = {
  hasCalls: false,
  hasSystem: false,
  hasOthers: false,
  hasFailures: false,
  hasParts: false,
}

/** A name that every receiver accepts. */
const PLAIN_NAME = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/

/** True if a receiver might not accept the name of one of the tools. */
export function hasSpecialName(tools: readonly Tool[]): boolean {
  for (let at = 0; at < tools.length; at++) {
    const { name } = (tools[at] ?? {}) as { readonly name?: unknown }
    if (typeof name === 'string' && (!PLAIN_NAME.test(name) || SPECIAL_NAMES.has(name))) return true
  }
  return false
}

/** The limit on reported changes, because a conversation may have thousands of calls. */
const CHANGES_MAX = 100

/** A request while the rules change it. */
export class Prompt {
  readonly demands: Preconditions
  readonly isOwnApi: boolean
  request: ResponsesRequest
  items: readonly InputItem[]
  /** For each item, its place; null: each is where the caller has it. */
  places: readonly Place[] | null = null
  isChanged = false
  readonly changes: Change[] = []

  constructor({ request, isOwnApi }: ModelRequest, demands: Preconditions) {
    this.demands = demands
    this.isOwnApi = isOwnApi === true
    this.request = request
    this.items = typeof request.input === 'string' ? [] : request.input
  }

  set(fields: Partial<ResponsesRequest>): void {
    this.request = { ...this.request, ...fields }
    this.isChanged = true
  }

  /** Replaces all items. Without `places`, each has the place of the previous item at its index. */
  setItems(items: readonly InputItem[], places = this.places): void {
    this.items = items
    this.places = places
    this.isChanged = true
  }

  /** Calls `map` for each item. `map` returns the same item if nothing changes. */
  mapItems(map: (item: InputItem, at: number) => InputItem): void {
    const items = this.items.map(map)
    if (items.some((item, at) => item !== this.items[at])) this.setItems(items)
  }

  placeOf(at: number): Place {
    return this.places?.[at] ?? { at }
  }

  report(at: number, rest: string, action: Change['action'], reason: string): void {
    if (this.changes.length === CHANGES_MAX) return
    this.changes.push({ field: `input[${this.placeOf(at).at}]${rest}`, action, reason })
  }

  /** The request in the form that the receiver accepts. */
  get prompt(): ResponsesRequest {
    const { items, request } = this
    return typeof request.input === 'string' ? request : { ...request, input: [...items] }
  }

  /** @throws the errors of the encoder, with the caller's places of items */
  encoded(model: ModelRequest, endpoint: Endpoint, encode: Encode): WireRequest {
    let wire: WireRequest
    try {
      wire = encode({ ...model, request: this.prompt }, endpoint)
    } catch (thrown) {
      const { places } = this
      if (!(thrown instanceof GatewayError) || places === null) throw thrown
      const message = placed(thrown.message, places)
      throw message === thrown.message ? thrown : rewritten(thrown, { message })
    }
    const { places } = this
    const later = wire.changes ?? []
    const changes = [
      ...this.changes,
      ...(places === null ? later : later.map(each => ({ ...each, field: placed(each.field, places) }))),
    ]
    return changes.length === 0 ? wire : { ...wire, changes }
  }
}

const ITEM_PATH = /^input\[(\d{1,7})\](?:\.content\[(\d{1,7})\])?/

function placed(message: string, places: readonly Place[]): string {
  return message.replace(ITEM_PATH, (path, index: string, part: string | undefined) => {
    const place = places[Number(index)]
    if (place === undefined) return path
    const inner = part === undefined ? undefined : place.parts?.[Number(part)]
    const rest = path.slice(`input[${index}]`.length)
    return `input[${place.at}]${inner === undefined ? rest : `.output[${inner}]`}`
  })
}

/** Adds outputs to calls that were left open, and turns items that the format cannot express into calls. */
function itemsAsCalls(prompt: Prompt): void {
  const { demands, items: before } = prompt
  const answers = answersOfOpen(before)
  const items: InputItem[] = []
  const places: Place[] = []
  for (const [at, item] of before.entries()) {
    const closed = answers.get(at)
    if (closed !== undefined) prompt.report(at, '', 'added', 'the provider wants an output for each call')
    for (const answer of closed ?? [item]) {
      const isOwn = demands.items === 'own'
      // Records of the gateway's own tools have no other form anywhere.
      const replayed = isOwn ? null : replayAsCall(answer, at)
      const native = isOwn || replayed !== null ? null : nativeAsCall(answer, at)
      if (native !== null)
        prompt.report(at, '', 'changed', 'the provider takes calls of this tool as functions')
      for (const each of replayed ?? native ?? [answer]) {
        items.push(each)
        places.push({ at })
      }
    }
  }
  if (items.length !== before.length || items.some((item, at) => item !== before[at]))
    prompt.setItems(items, places)
}

/** Moves outputs after their calls, then makes ids unique. */
function pairCalls(prompt: Prompt): void {
  let pairs = pairsOf(prompt.items)
  const order = prompt.demands.outputs === 'after-calls' ? outputsAfterCalls(pairs) : null
  if (order !== null) {
    const { items } = prompt
    for (const [index, at] of order.entries()) {
      const before = order[index - 1]
      if (before !== undefined && before > at)
        prompt.report(at, '', 'moved', 'the output of a call stands directly after the call')
    }
    prompt.setItems(
      order.map(at => items[at] as InputItem),
      order.map(at => prompt.placeOf(at)),
    )
    pairs = pairsOf(prompt.items)
  }
  const ids = outwardIds(prompt.items, pairs, prompt.demands.callIds)
  if (ids === null) return
  prompt.mapItems((item, at) => {
    const id = ids.get(at)
    if (id === undefined) return item
    prompt.report(at, '.call_id', 'changed', 'the provider does not take this id')
    return { ...item, call_id: id } as InputItem
  })
}

function useNames(prompt: Prompt, names: OutwardNames): void {
  const { tools, tool_choice: choice } = prompt.request
  const reason = 'the provider does not take this name'
  prompt.set({
    tools: (tools ?? []).map((tool, at) => {
      if (tool.type !== 'function' && tool.type !== 'custom') return tool
      const name = names.of(tool.name)
      if (name === tool.name) return tool
      prompt.changes.push({ field: `tools[${at}].name`, action: 'changed', reason })
      return { ...tool, name }
    }),
    ...(choice === undefined ? {} : { tool_choice: chosen(choice, names) }),
  })
  prompt.mapItems(item =>
    item.type === 'function_call' || item.type === 'custom_tool_call'
      ? withName(item, names.of(item.name))
      : item,
  )
}

function withName<Named extends { readonly name: string }>(named: Named, name: string): Named {
  return name === named.name ? named : { ...named, name }
}

type Choice = NonNullable<ResponsesRequest['tool_choice']>

function chosen(choice: Choice, names: OutwardNames): Choice {
  if (typeof choice === 'string') return choice
  if (choice.type === 'function' || choice.type === 'custom') return withName(choice, names.of(choice.name))
  if (choice.type !== 'allowed_tools') return choice
  const tools = choice.tools.map(tool => {
    const { name } = tool
    return typeof name === 'string' ? { ...tool, name: names.of(name) } : tool
  })
  return { ...choice, tools }
}

function objectArguments(prompt: Prompt): void {
  prompt.mapItems((item, at) => {
    if (item.type !== 'function_call') return item
    const text = objectText(item.arguments)
    if (text === item.arguments) return item
    if (item.arguments.trim() !== '')
      prompt.report(at, '.arguments', 'changed', 'the provider takes arguments only as a JSON object')
    return { ...item, arguments: text }
  })
}

const FAILED = 'Tool error: '

function failuresInWords(prompt: Prompt): void {
  prompt.mapItems((item, at) => {
    if (item.type !== 'function_call_output' && item.type !== 'custom_tool_call_output') return item
    if (item.is_error !== true) return item
    prompt.report(
      at,
      '.is_error',
      'changed',
      'the provider has no such field: the text of the result says it',
    )
    const { output } = item
    const labelled =
      typeof output === 'string'
        ? `${FAILED}${output}`
        : [{ type: 'input_text' as const, text: FAILED }, ...output]
    return { ...item, output: labelled }
  })
}

function isFailure(item: InputItem): boolean {
  return isOutput(item) && (item as { readonly is_error?: unknown }).is_error === true
}

/** Parts of a result that are not text follow all results of the turn, because no message may be between them. */
function textResults(prompt: Prompt, isText: (item: InputItem) => boolean): void {
  const items: InputItem[] = []
  const places: Place[] = []
  let waiting: { readonly item: InputItem; readonly place: Place }[] = []
  const addWaiting = (): void => {
    for (const { item, place } of waiting) {
      items.push(item)
      places.push(place)
    }
    waiting = []
  }
  for (const [at, item] of prompt.items.entries()) {
    const place = prompt.placeOf(at)
    if (!isOutput(item)) addWaiting()
    const attached = isText(item) ? attachedTo(item) : null
    items.push(attached?.result ?? item)
    places.push(place)
    if (attached === null) continue
    prompt.report(at, '.output', 'moved', 'the provider takes only text in results')
    waiting.push({ item: attached.message, place: { ...place, parts: attached.parts } })
  }
  addWaiting()
  if (items.length > prompt.items.length) prompt.setItems(items, places)
}

interface Attached {
  readonly result: InputItem
  readonly message: InputItem
  /** For each part of the message, its index in the result. */
  readonly parts: readonly number[]
}

/** Null if the item is not a result, or has only text. */
function attachedTo(item: InputItem): Attached | null {
  if (item.type !== 'function_call_output' && item.type !== 'custom_tool_call_output') return null
  const { call_id: id, output } = item
  if (typeof output === 'string') return null
  const others = output.flatMap((part, at) => (part.type === 'input_text' ? [] : [at]))
  if (others.length === 0) return null
  const text = output.flatMap(part => (part.type === 'input_text' ? [part.text] : [])).join('\n')
  const content: InputPart[] = [
    { type: 'input_text', text: `Output of tool call ${id}:` },
    ...others.map(at => output[at] as InputPart),
  ]
  return {
    result: { ...item, output: text === '' ? 'The output is attached below.' : text },
    message: { role: 'user', content },
    parts: [-1, ...others],
  }
}

/** Joins system messages with the instructions; if they are allowed only at the beginning, all of them. */
function joinSystem(prompt: Prompt): void {
  const { demands, isOwnApi, items, request } = prompt
  const isStrict = demands.system === 'first'
  if (!isStrict && isOwnApi) return
  const systemIndexes: number[] = []
  const rest: number[] = []
  for (const [at, item] of items.entries()) {
    const isLeading = rest.length === 0
    if (!isSystem(item) || !(isLeading || isStrict)) {
      rest.push(at)
      continue
    }
    systemIndexes.push(at)
  }
  const hasInstructions = typeof request.instructions === 'string' && request.instructions !== ''
  const [first] = systemIndexes
  if (first === undefined || (systemIndexes.length === 1 && !hasInstructions && first === 0)) return
  for (const [index, at] of systemIndexes.entries())
    if (hasInstructions || index > 0 || at > 0)
      prompt.report(at, '', 'moved', 'the provider takes one system message, at the beginning')
  const parts: InputPart[] = hasInstructions
    ? [{ type: 'input_text', text: String(request.instructions) }]
    : []
  for (const at of systemIndexes) {
    const { content } = items[at] as InputMessage
    if (typeof content === 'string') parts.push({ type: 'input_text', text: content })
    else if (content !== null) parts.push(...(content as readonly InputPart[]))
  }
  const isPlain = parts.every(part => part.type === 'input_text' && Object.keys(part).length === 2)
  const content = isPlain ? parts.map(part => (part as { text: string }).text).join('\n\n') : parts
  prompt.set({ instructions: null })
  prompt.setItems(
    [{ role: 'system', content }, ...rest.map(at => items[at] as InputItem)],
    [prompt.placeOf(first), ...rest.map(at => prompt.placeOf(at))],
  )
}

function isSystem(item: InputItem): boolean {
  return (
    (item.type === undefined || item.type === 'message') &&
    (item.role === 'system' || item.role === 'developer')
  )
}

/** Adds a thought before each message of the model that makes calls and has none. */
function fillThoughts(prompt: Prompt, text: string): void {
  const items: InputItem[] = []
  const places: Place[] = []
  let isInCalls = false
  for (const [at, item] of prompt.items.entries()) {
    const isCall = item.type === 'function_call' || item.type === 'custom_tool_call'
    if (isCall && !isInCalls) {
      const trailing = isAssistant(items.at(-1)) ? 1 : 0
      if (items.at(-1 - trailing)?.type !== 'reasoning') {
        prompt.report(at, '', 'added', 'the provider wants a thought before calls')
        items.splice(items.length - trailing, 0, thoughtOf(text))
        places.splice(places.length - trailing, 0, prompt.placeOf(at))
      }
    }
    isInCalls = isCall
    items.push(item)
    places.push(prompt.placeOf(at))
  }
  if (items.length > prompt.items.length) prompt.setItems(items, places)
}

function thoughtOf(text: string): InputItem {
  return { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text }] }
}

function isAssistant(item: InputItem | undefined): boolean {
  return (
    item !== undefined && (item.type === undefined || item.type === 'message') && item.role === 'assistant'
  )
}

const CLOSED = 'the provider enforces a subset of JSON Schema; the rest is in descriptions'

type SchemaFormat = Extract<
  NonNullable<NonNullable<ResponsesRequest['text']>['format']>,
  { type: 'json_schema' }
>

function closeSchema(prompt: Prompt, format: SchemaFormat): void {
  const schema = closedSchema(format.schema)
  if (schema === format.schema) return
  prompt.changes.push({ field: 'text.format.schema', action: 'changed', reason: CLOSED })
  prompt.set({ text: { ...prompt.request.text, format: { ...format, schema } } })
}

function hasStrictTool(tools: ResponsesRequest['tools']): boolean {
  if (tools != null)
    for (const tool of tools) if (tool.type === 'function' && tool.strict === true) return true
  return false
}

function closeToolSchemas(prompt: Prompt): void {
  const tools = prompt.request.tools?.map((tool, at) => {
    if (tool.type !== 'function' || tool.strict !== true || tool.parameters == null) return tool
    const parameters = closedSchema(tool.parameters)
    if (parameters === tool.parameters) return tool
    prompt.changes.push({ field: `tools[${at}].parameters`, action: 'changed', reason: CLOSED })
    return { ...tool, parameters }
  })
  if (tools !== undefined) prompt.set({ tools })
}

function hasUnion(schema: Json): boolean {
  for (const name of ROOT_UNIONS) if (schema[name] !== undefined) return true
  return false
}

/** A function's schema that some receiver refuses because of its root. */
function isOddRoot(tool: Tool | null): boolean {
  // Validation lets only objects pass; other callers may have anything.
  if (tool?.type !== 'function' || tool.parameters == null) return false
  return tool.parameters['properties'] === undefined || hasUnion(tool.parameters)
}

function objectRoots(prompt: Prompt): void {
  const reason = 'the provider takes only objects as the schema of a function; the rest is in its description'
  const mayLackProperties = prompt.demands.toolRoots === 'no-union'
  const before = prompt.request.tools
  const tools = before?.map((tool, at) => {
    if (!isOddRoot(tool)) return tool
    const { parameters } = tool as { readonly parameters: Json }
    if (mayLackProperties && !hasUnion(parameters)) return tool
    prompt.changes.push({ field: `tools[${at}].parameters`, action: 'changed', reason })
    return { ...tool, parameters: objectRoot(parameters) } as Tool
  })
  if (tools?.some((tool, at) => tool !== before?.[at]) === true) prompt.set({ tools })
}

/** True if the request has a setting that some models refuse. */
function hasRefusable(request: ResponsesRequest): boolean {
  for (let at = 0; at < REFUSABLE_SETTINGS.length; at++)
    if (request[REFUSABLE_SETTINGS[at] as RefusableName] != null) return true
  return false
}

/** The settings that the model does not take; the report of changes finds them by their absence. */
function refusedSettings(
  request: ResponsesRequest,
  { efforts, refuses, refusesThinking }: Preconditions,
): readonly RefusableName[] {
  if (refuses.length === 0 && refusesThinking.length === 0) return NONE_REFUSED
  const { reasoning } = request
  const wanted =
    reasoning?.effort ?? (reasoning?.enabled === true || reasoning?.max_tokens ? 'medium' : 'none')
  const thinks = fieldThatStops(reasoning) === null && takenEffort(wanted, efforts) !== 'none'
  const all = thinks ? [...refuses, ...refusesThinking] : refuses
  return all.filter(name => request[name] != null)
}

const NONE_REFUSED: readonly RefusableName[] = []

/** The format of the answer that the receiver enforces in place of a wanted one; null: it enforces that. */
function nearestFormat(
  { tools }: ResponsesRequest,
  wanted: JsonFormat,
  { jsonFormats, jsonBesideTools }: Preconditions,
): 'json_object' | 'text' | null {
  if (!jsonBesideTools && tools != null && tools.length > 0) return 'text'
  if (jsonFormats.includes(wanted)) return null
  return jsonFormats.includes('json_object') ? 'json_object' : 'text'
}

/** Asks for the format in the instructions. */
function formatInWords(prompt: Prompt, instead: 'json_object' | 'text'): void {
  const { instructions, text } = prompt.request
  const format = text?.format
  const schema =
    format?.type === 'json_schema' ? ` It must match this JSON Schema: ${JSON.stringify(format.schema)}` : ''
  const before = typeof instructions === 'string' && instructions !== '' ? `${instructions}\n\n` : ''
  prompt.changes.push({ field: 'text.format', action: 'changed', reason: IN_WORDS })
  prompt.set({
    instructions: `${before}${JSON_HINT}${schema}`,
    text: { ...text, format: { type: instead } },
  })
}

const IN_WORDS = 'the model does not support it, or not together with tools: the prompt asks for it'

/** Adds a message with the word JSON, unless one has it already. */
function jsonInWords(prompt: Prompt): void {
  const { input } = prompt.request
  const items: readonly InputItem[] =
    typeof input === 'string' ? [{ role: 'user', content: input }] : prompt.items
  if (items.some(saysJson)) return
  const hint: InputItem = { role: 'developer', content: JSON_HINT }
  const places = items.map((_, at) => prompt.placeOf(at))
  prompt.set({ input: [] })
  prompt.setItems([hint, ...items], [{ at: 0 }, ...places])
  const reason = 'the provider also needs the request for JSON in the text of the prompt'
  prompt.changes.push({ field: 'text.format', action: 'changed', reason })
}

const JSON_WORD = /json/i

/** True if a text of the item has the word. Pictures and files are not searched: they are long, and no words. */
function saysJson(item: InputItem): boolean {
  const { content, output } = item as { readonly content?: unknown; readonly output?: unknown }
  return hasJsonWord(content) || hasJsonWord(output)
}

function hasJsonWord(texts: unknown): boolean {
  if (typeof texts === 'string') return JSON_WORD.test(texts)
  if (!Array.isArray(texts)) return false
  return texts.some(part => typeof part?.text === 'string' && JSON_WORD.test(part.text))
}

function limitFields(prompt: Prompt): void {
  const { stops, minOutput } = prompt.demands
  const { stop, max_output_tokens: most } = prompt.request
  if (most != null && most < minOutput) {
    prompt.changes.push({
      field: 'max_output_tokens',
      action: 'changed',
      reason: `the provider takes no limit below ${minOutput}`,
    })
    prompt.set({ max_output_tokens: minOutput })
  }
  // The gateway looks for the others in the reply.
  if (stops !== null && Array.isArray(stop) && stop.length > stops) prompt.set({ stop: stop.slice(0, stops) })
}
