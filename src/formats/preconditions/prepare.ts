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
import { acceptedEffort, fieldThatStops } from '../reasoning.ts'
import { nativeAsCall, replayAsCall } from '../replayed.ts'
import { isOutput, outputsAfterCalls, outwardIds, pairsOf } from './calls.ts'
import { type OutwardNames, outwardNames } from './names.ts'
import { closedSchema, JSON_HINT, objectRoot, objectText } from './schemas.ts'
import { MIN_OUTPUT_MAX, type Preconditions, preconditionsOf, ROOT_UNIONS, SPECIAL_NAMES } from './table.ts'

/** Writes a request in a format. */
export type Encode = (model: ModelRequest, endpoint: Endpoint) => WireRequest

/** The origin of an item of the prepared input. */
interface Origin {
  /** Its index in the caller's input. */
  readonly index: number
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
  /** True if there are results that are lists of parts. */
  hasParts: boolean
}

/** Null if the request needs no change. */
export function preparedPrompt(model: ModelRequest, format: FormatName, endpoint: Endpoint): Prompt | null {
  const { request } = model
  const { input, text, tools, stop, max_output_tokens: maxTokens } = request
  const survey = typeof input === 'string' ? null : surveyOf(input)
  const mayRename = tools != null && hasSpecialName(tools)
  const hasOddRoot = tools?.some(isOddRoot) === true
  const hasLimits = stop != null || (maxTokens != null && maxTokens < MIN_OUTPUT_MAX)
  const isTuned = hasRefusable(request)
  const isPlain = survey === null && text == null && !hasLimits && !isTuned && !mayRename && !hasOddRoot
  if (isPlain && !hasStrictTool(tools)) return null
  const demands = preconditionsOf(format, endpoint)
  const names = mayRename ? outwardNames(demands.names, tools) : null
  const wantedFormat = text?.format
  const fallbackFormat =
    wantedFormat == null || wantedFormat.type === 'text'
      ? null
      : nearestFormat(request, wantedFormat.type, demands)
  let prompt: Prompt | null = null
  if (fallbackFormat !== null) {
    prompt = new Prompt(model, demands)
    formatInWords(prompt, fallbackFormat)
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
    const refusedNames = refusedSettings(request, demands)
    if (refusedNames.length > 0) {
      prompt ??= new Prompt(model, demands)
      prompt.set(Object.fromEntries(refusedNames.map(name => [name, undefined])))
    }
  }
  // A caller who uses the provider's own API is responsible for its schemas.
  const isJudged = model.isOwnApi !== true
  const schema = fallbackFormat === null ? wantedFormat : null
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
function surveyOf(input: readonly InputItem[]): Survey | null {
  let survey: Survey | null = null
  for (let index = 0; index < input.length; index++) {
    const item = input[index] as InputItem
    switch (item.type) {
      case undefined:
      case 'message':
        if (item.role === 'user' || item.role === 'assistant') break
        survey ??= { ...EMPTY_SURVEY }
        survey.hasSystem = true
        break
      case 'reasoning':
        break
      case 'function_call':
      case 'custom_tool_call':
        survey ??= { ...EMPTY_SURVEY }
        survey.hasCalls = true
        break
      case 'function_call_output':
      case 'custom_tool_call_output':
        survey ??= { ...EMPTY_SURVEY }
        survey.hasCalls = true
        if (item.is_error === true) survey.hasFailures = true
        if (typeof item.output !== 'string') survey.hasParts = true
        break
      default:
        survey ??= { ...EMPTY_SURVEY }
        survey.hasOthers = true
        // As a call, a patch that was not applied has a failed result.
        survey.hasFailures = true
    }
  }
  return survey
}

const EMPTY_SURVEY: Survey = {
  hasCalls: false,
  hasSystem: false,
  hasOthers: false,
  hasFailures: false,
  hasParts: false,
}

/** A name that every receiver accepts, unless it is one of SPECIAL_NAMES. */
const PLAIN_NAME = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/

/** True if a receiver might not accept the name of one of the tools. */
export function hasSpecialName(tools: readonly Tool[]): boolean {
  for (let index = 0; index < tools.length; index++) {
    const { name } = (tools[index] ?? {}) as { readonly name?: unknown }
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
  /** The origin of each item; null: each item is at the caller's index. */
  origins: readonly Origin[] | null = null
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

  /** Replaces all items. Without `origins`, each has the origin of the previous item at its index. */
  setItems(items: readonly InputItem[], origins = this.origins): void {
    this.items = items
    this.origins = origins
    this.isChanged = true
  }

  /** Calls `map` for each item. `map` returns the same item if nothing changes. */
  mapItems(map: (item: InputItem, index: number) => InputItem): void {
    const items = this.items.map(map)
    if (items.some((item, index) => item !== this.items[index])) this.setItems(items)
  }

  originOf(index: number): Origin {
    return this.origins?.[index] ?? { index }
  }

  report(index: number, subpath: string, action: Change['action'], reason: string): void {
    if (this.changes.length === CHANGES_MAX) return
    this.changes.push({ field: `input[${this.originOf(index).index}]${subpath}`, action, reason })
  }

  /** The request in the form that the receiver accepts. */
  get preparedRequest(): ResponsesRequest {
    const { items, request } = this
    return typeof request.input === 'string' ? request : { ...request, input: [...items] }
  }

  /** @throws the errors of the encoder, with the caller's paths of items */
  encodeWith(model: ModelRequest, endpoint: Endpoint, encode: Encode): WireRequest {
    let wire: WireRequest
    try {
      wire = encode({ ...model, request: this.preparedRequest }, endpoint)
    } catch (thrown) {
      const { origins } = this
      if (!(thrown instanceof GatewayError) || origins === null) throw thrown
      const message = withOrigins(thrown.message, origins)
      throw message === thrown.message ? thrown : rewritten(thrown, { message })
    }
    const { origins } = this
    const encoderChanges = wire.changes ?? []
    const changes = [
      ...this.changes,
      ...(origins === null
        ? encoderChanges
        : encoderChanges.map(change => ({ ...change, field: withOrigins(change.field, origins) }))),
    ]
    return changes.length === 0 ? wire : { ...wire, changes }
  }
}

const ITEM_PATH = /^input\[(\d{1,7})\](?:\.content\[(\d{1,7})\])?/

function withOrigins(message: string, origins: readonly Origin[]): string {
  return message.replace(ITEM_PATH, (path, index: string, part: string | undefined) => {
    const origin = origins[Number(index)]
    if (origin === undefined) return path
    const partIndex = part === undefined ? undefined : origin.parts?.[Number(part)]
    const subpath = path.slice(`input[${index}]`.length)
    return `input[${origin.index}]${partIndex === undefined ? subpath : `.output[${partIndex}]`}`
  })
}

/** Adds outputs to calls that were left open, and turns items that the format cannot express into calls. */
function itemsAsCalls(prompt: Prompt): void {
  const { demands, items: callerItems } = prompt
  const answers = answersOfOpen(callerItems)
  const items: InputItem[] = []
  const origins: Origin[] = []
  for (const [index, item] of callerItems.entries()) {
    const answerItems = answers.get(index)
    if (answerItems !== undefined)
      prompt.report(index, '', 'added', 'the provider wants an output for each call')
    for (const answer of answerItems ?? [item]) {
      const isOwn = demands.items === 'own'
      // Items of the gateway's own tools become calls everywhere, so their change is not reported.
      const replayAsCalls = isOwn ? null : replayAsCall(answer, index)
      const nativeAsCalls = isOwn || replayAsCalls !== null ? null : nativeAsCall(answer, index)
      if (nativeAsCalls !== null)
        prompt.report(index, '', 'changed', 'the provider takes calls of this tool as functions')
      for (const newItem of replayAsCalls ?? nativeAsCalls ?? [answer]) {
        items.push(newItem)
        origins.push({ index })
      }
    }
  }
  if (items.length !== callerItems.length || items.some((item, index) => item !== callerItems[index]))
    prompt.setItems(items, origins)
}

/** Moves outputs after their calls, then gives calls unique ids in the form that the receiver accepts. */
function pairCalls(prompt: Prompt): void {
  let pairs = pairsOf(prompt.items)
  const order = prompt.demands.outputs === 'after-calls' ? outputsAfterCalls(pairs) : null
  if (order !== null) {
    const { items } = prompt
    for (const [position, index] of order.entries()) {
      const previous = order[position - 1]
      if (previous !== undefined && previous > index)
        prompt.report(index, '', 'moved', 'the output of a call stands directly after the call')
    }
    prompt.setItems(
      order.map(index => items[index] as InputItem),
      order.map(index => prompt.originOf(index)),
    )
    pairs = pairsOf(prompt.items)
  }
  const ids = outwardIds(prompt.items, pairs, prompt.demands.callIds)
  if (ids === null) return
  prompt.mapItems((item, index) => {
    const id = ids.get(index)
    if (id === undefined) return item
    prompt.report(index, '.call_id', 'changed', 'the provider does not take this id')
    return { ...item, call_id: id } as InputItem
  })
}

function useNames(prompt: Prompt, names: OutwardNames): void {
  const { tools, tool_choice: choice } = prompt.request
  const reason = 'the provider does not take this name'
  prompt.set({
    tools: (tools ?? []).map((tool, index) => {
      if (tool.type !== 'function' && tool.type !== 'custom') return tool
      const name = names.sentName(tool.name)
      if (name === tool.name) return tool
      prompt.changes.push({ field: `tools[${index}].name`, action: 'changed', reason })
      return { ...tool, name }
    }),
    ...(choice === undefined ? {} : { tool_choice: choiceWithNames(choice, names) }),
  })
  prompt.mapItems(item =>
    item.type === 'function_call' || item.type === 'custom_tool_call'
      ? withName(item, names.sentName(item.name))
      : item,
  )
}

function withName<Named extends { readonly name: string }>(named: Named, name: string): Named {
  return name === named.name ? named : { ...named, name }
}

type Choice = NonNullable<ResponsesRequest['tool_choice']>

function choiceWithNames(choice: Choice, names: OutwardNames): Choice {
  if (typeof choice === 'string') return choice
  if (choice.type === 'function' || choice.type === 'custom')
    return withName(choice, names.sentName(choice.name))
  if (choice.type !== 'allowed_tools') return choice
  const tools = choice.tools.map(tool => {
    const { name } = tool
    return typeof name === 'string' ? { ...tool, name: names.sentName(name) } : tool
  })
  return { ...choice, tools }
}

function objectArguments(prompt: Prompt): void {
  prompt.mapItems((item, index) => {
    if (item.type !== 'function_call') return item
    const text = objectText(item.arguments)
    if (text === item.arguments) return item
    if (item.arguments.trim() !== '')
      prompt.report(index, '.arguments', 'changed', 'the provider takes arguments only as a JSON object')
    return { ...item, arguments: text }
  })
}

const ERROR_LABEL = 'Tool error: '

function failuresInWords(prompt: Prompt): void {
  prompt.mapItems((item, index) => {
    if (item.type !== 'function_call_output' && item.type !== 'custom_tool_call_output') return item
    if (item.is_error !== true) return item
    prompt.report(
      index,
      '.is_error',
      'changed',
      'the provider has no such field: the text of the result says it',
    )
    const { output } = item
    const labelledOutput =
      typeof output === 'string'
        ? `${ERROR_LABEL}${output}`
        : [{ type: 'input_text' as const, text: ERROR_LABEL }, ...output]
    return { ...item, output: labelledOutput }
  })
}

function isFailure(item: InputItem): boolean {
  return isOutput(item) && (item as { readonly is_error?: unknown }).is_error === true
}

/** Parts of a result that are not text follow all results of the turn, because no message may be between them. */
function textResults(prompt: Prompt, isText: (item: InputItem) => boolean): void {
  const items: InputItem[] = []
  const origins: Origin[] = []
  let waitingMessages: { readonly item: InputItem; readonly origin: Origin }[] = []
  const addWaiting = (): void => {
    for (const { item, origin } of waitingMessages) {
      items.push(item)
      origins.push(origin)
    }
    waitingMessages = []
  }
  for (const [index, item] of prompt.items.entries()) {
    const origin = prompt.originOf(index)
    if (!isOutput(item)) addWaiting()
    const attachment = isText(item) ? attachmentOf(item) : null
    items.push(attachment?.result ?? item)
    origins.push(origin)
    if (attachment === null) continue
    prompt.report(index, '.output', 'moved', 'the provider takes only text in results')
    waitingMessages.push({ item: attachment.message, origin: { ...origin, parts: attachment.parts } })
  }
  addWaiting()
  if (items.length > prompt.items.length) prompt.setItems(items, origins)
}

interface Attachment {
  readonly result: InputItem
  readonly message: InputItem
  /** For each part of the message, its index in the result. */
  readonly parts: readonly number[]
}

/** Null if the item is not a result, or has only text. */
function attachmentOf(item: InputItem): Attachment | null {
  if (item.type !== 'function_call_output' && item.type !== 'custom_tool_call_output') return null
  const { call_id: id, output } = item
  if (typeof output === 'string') return null
  const otherIndexes = output.flatMap((part, index) => (part.type === 'input_text' ? [] : [index]))
  if (otherIndexes.length === 0) return null
  const text = output.flatMap(part => (part.type === 'input_text' ? [part.text] : [])).join('\n')
  const content: InputPart[] = [
    { type: 'input_text', text: `Output of tool call ${id}:` },
    ...otherIndexes.map(index => output[index] as InputPart),
  ]
  return {
    result: { ...item, output: text === '' ? 'The output is attached below.' : text },
    message: { role: 'user', content },
    parts: [-1, ...otherIndexes],
  }
}

/** Joins the system messages at the beginning with the instructions; where later ones are not allowed, these too. */
function joinSystem(prompt: Prompt): void {
  const { demands, isOwnApi, items, request } = prompt
  const isStrict = demands.system === 'first'
  if (!isStrict && isOwnApi) return
  const systemIndexes: number[] = []
  const otherIndexes: number[] = []
  for (const [index, item] of items.entries()) {
    const isLeading = otherIndexes.length === 0
    if (!isSystem(item) || !(isLeading || isStrict)) {
      otherIndexes.push(index)
      continue
    }
    systemIndexes.push(index)
  }
  const hasInstructions = typeof request.instructions === 'string' && request.instructions !== ''
  const [firstIndex] = systemIndexes
  if (firstIndex === undefined || (systemIndexes.length === 1 && !hasInstructions && firstIndex === 0)) return
  for (const [position, index] of systemIndexes.entries())
    if (hasInstructions || position > 0 || index > 0)
      prompt.report(index, '', 'moved', 'the provider takes one system message, at the beginning')
  const parts: InputPart[] = hasInstructions
    ? [{ type: 'input_text', text: String(request.instructions) }]
    : []
  for (const index of systemIndexes) {
    const { content } = items[index] as InputMessage
    if (typeof content === 'string') parts.push({ type: 'input_text', text: content })
    else if (content !== null) parts.push(...(content as readonly InputPart[]))
  }
  const isPlain = parts.every(part => part.type === 'input_text' && Object.keys(part).length === 2)
  const content = isPlain ? parts.map(part => (part as { text: string }).text).join('\n\n') : parts
  prompt.set({ instructions: null })
  prompt.setItems(
    [{ role: 'system', content }, ...otherIndexes.map(index => items[index] as InputItem)],
    [prompt.originOf(firstIndex), ...otherIndexes.map(index => prompt.originOf(index))],
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
  const origins: Origin[] = []
  let isInCalls = false
  for (const [index, item] of prompt.items.entries()) {
    const isCall = item.type === 'function_call' || item.type === 'custom_tool_call'
    if (isCall && !isInCalls) {
      const trailing = isAssistant(items.at(-1)) ? 1 : 0
      if (items.at(-1 - trailing)?.type !== 'reasoning') {
        prompt.report(index, '', 'added', 'the provider wants a thought before calls')
        items.splice(items.length - trailing, 0, thoughtOf(text))
        origins.splice(origins.length - trailing, 0, prompt.originOf(index))
      }
    }
    isInCalls = isCall
    items.push(item)
    origins.push(prompt.originOf(index))
  }
  if (items.length > prompt.items.length) prompt.setItems(items, origins)
}

function thoughtOf(text: string): InputItem {
  return { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text }] }
}

function isAssistant(item: InputItem | undefined): boolean {
  return (
    item !== undefined && (item.type === undefined || item.type === 'message') && item.role === 'assistant'
  )
}

const CLOSED_REASON = 'the provider enforces a subset of JSON Schema; the rest is in descriptions'

type SchemaFormat = Extract<
  NonNullable<NonNullable<ResponsesRequest['text']>['format']>,
  { type: 'json_schema' }
>

function closeSchema(prompt: Prompt, format: SchemaFormat): void {
  const schema = closedSchema(format.schema)
  if (schema === format.schema) return
  prompt.changes.push({ field: 'text.format.schema', action: 'changed', reason: CLOSED_REASON })
  prompt.set({ text: { ...prompt.request.text, format: { ...format, schema } } })
}

function hasStrictTool(tools: ResponsesRequest['tools']): boolean {
  if (tools != null)
    for (const tool of tools) if (tool.type === 'function' && tool.strict === true) return true
  return false
}

function closeToolSchemas(prompt: Prompt): void {
  const tools = prompt.request.tools?.map((tool, index) => {
    if (tool.type !== 'function' || tool.strict !== true || tool.parameters == null) return tool
    const parameters = closedSchema(tool.parameters)
    if (parameters === tool.parameters) return tool
    prompt.changes.push({ field: `tools[${index}].parameters`, action: 'changed', reason: CLOSED_REASON })
    return { ...tool, parameters }
  })
  if (tools !== undefined) prompt.set({ tools })
}

function hasUnion(schema: Json): boolean {
  for (const name of ROOT_UNIONS) if (schema[name] !== undefined) return true
  return false
}

/** True for a function whose schema some receiver refuses because of its root. */
function isOddRoot(tool: Tool | null): boolean {
  // Validation lets only objects pass; a request that did not go through it may have anything.
  if (tool?.type !== 'function' || tool.parameters == null) return false
  return tool.parameters['properties'] === undefined || hasUnion(tool.parameters)
}

function objectRoots(prompt: Prompt): void {
  const reason = 'the provider takes only objects as the schema of a function; the rest is in its description'
  const mayLackProperties = prompt.demands.toolRoots === 'no-union'
  const callerTools = prompt.request.tools
  const tools = callerTools?.map((tool, index) => {
    if (!isOddRoot(tool)) return tool
    const { parameters } = tool as { readonly parameters: Json }
    if (mayLackProperties && !hasUnion(parameters)) return tool
    prompt.changes.push({ field: `tools[${index}].parameters`, action: 'changed', reason })
    return { ...tool, parameters: objectRoot(parameters) } as Tool
  })
  if (tools?.some((tool, index) => tool !== callerTools?.[index]) === true) prompt.set({ tools })
}

/** True if the request has a setting that some models refuse. */
function hasRefusable(request: ResponsesRequest): boolean {
  for (let index = 0; index < REFUSABLE_SETTINGS.length; index++)
    if (request[REFUSABLE_SETTINGS[index] as RefusableName] != null) return true
  return false
}

/** The settings that the model does not take; the report of changes finds them by their absence. */
function refusedSettings(
  request: ResponsesRequest,
  { efforts, refuses, refusesThinking }: Preconditions,
): readonly RefusableName[] {
  if (refuses.length === 0 && refusesThinking.length === 0) return NONE_REFUSED
  const { reasoning } = request
  const wantedEffort =
    reasoning?.effort ?? (reasoning?.enabled === true || reasoning?.max_tokens ? 'medium' : 'none')
  const isThinking = fieldThatStops(reasoning) === null && acceptedEffort(wantedEffort, efforts) !== 'none'
  const refusedNames = isThinking ? [...refuses, ...refusesThinking] : refuses
  return refusedNames.filter(name => request[name] != null)
}

const NONE_REFUSED: readonly RefusableName[] = []

/** The format of the answer that the receiver enforces in place of a wanted one; null: it enforces that. */
function nearestFormat(
  { tools }: ResponsesRequest,
  wantedFormat: JsonFormat,
  { jsonFormats, jsonBesideTools }: Preconditions,
): 'json_object' | 'text' | null {
  if (!jsonBesideTools && tools != null && tools.length > 0) return 'text'
  if (jsonFormats.includes(wantedFormat)) return null
  return jsonFormats.includes('json_object') ? 'json_object' : 'text'
}

/** Asks for the format in the instructions. */
function formatInWords(prompt: Prompt, fallbackFormat: 'json_object' | 'text'): void {
  const { instructions, text } = prompt.request
  const format = text?.format
  const schema =
    format?.type === 'json_schema' ? ` It must match this JSON Schema: ${JSON.stringify(format.schema)}` : ''
  const prefix = typeof instructions === 'string' && instructions !== '' ? `${instructions}\n\n` : ''
  prompt.changes.push({ field: 'text.format', action: 'changed', reason: IN_WORDS_REASON })
  prompt.set({
    instructions: `${prefix}${JSON_HINT}${schema}`,
    text: { ...text, format: { type: fallbackFormat } },
  })
}

const IN_WORDS_REASON = 'the model does not support it, or not together with tools: the prompt asks for it'

/** Adds a message with the word JSON, unless one has it already. */
function jsonInWords(prompt: Prompt): void {
  const { input } = prompt.request
  const items: readonly InputItem[] =
    typeof input === 'string' ? [{ role: 'user', content: input }] : prompt.items
  if (items.some(saysJson)) return
  const hint: InputItem = { role: 'developer', content: JSON_HINT }
  const origins = items.map((_, index) => prompt.originOf(index))
  prompt.set({ input: [] })
  prompt.setItems([hint, ...items], [{ index: 0 }, ...origins])
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
  const { maxStops, minOutput } = prompt.demands
  const { stop, max_output_tokens: maxTokens } = prompt.request
  if (maxTokens != null && maxTokens < minOutput) {
    prompt.changes.push({
      field: 'max_output_tokens',
      action: 'changed',
      reason: `the provider takes no limit below ${minOutput}`,
    })
    prompt.set({ max_output_tokens: minOutput })
  }
  // The gateway looks for the others in the reply.
  if (maxStops !== null && Array.isArray(stop) && stop.length > maxStops)
    prompt.set({ stop: stop.slice(0, maxStops) })
}
