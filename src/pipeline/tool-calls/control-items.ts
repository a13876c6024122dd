/**
 * Control items in the input, for providers that do not take them: added tools join those of the request, and the last
 * effort applies to the whole request. Pure.
 */
import type { Ability } from '../../formats/format-abilities.ts'
import type { InputItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Tool } from '../../protocol/tools.ts'

type Effort = Extract<InputItem, { type: 'configuration_update' }>['reasoning']['effort']

/** A request without control items. */
interface SettledRequest {
  readonly prompt: ResponsesRequest
  /** The caller's paths of the tools, for errors. */
  readonly toolPaths: readonly string[]
}

/** Null if the provider accepts the request unchanged. `accepts`: says which kinds of control items it takes. */
export function settleControls(
  prompt: ResponsesRequest,
  accepts: (ability: Ability) => boolean,
): SettledRequest | null {
  const { input } = prompt
  if (typeof input === 'string' || !input.some(item => isControl(item) && !accepts(item.type))) return null
  return settle(prompt, input, type => !accepts(type))
}

/** Treats all tools that the input adds as tools of the request; null if `isMeant` is true for none of these tools. */
export function withAddedTools(
  prompt: ResponsesRequest,
  isMeant: (tool: Tool) => boolean,
): SettledRequest | null {
  const { input } = prompt
  if (typeof input === 'string') return null
  const isAdding = input.some(item => item.type === 'additional_tools' && item.tools.some(isMeant))
  return isAdding ? settle(prompt, input, type => type === 'additional_tools') : null
}

function settle(
  prompt: ResponsesRequest,
  input: readonly InputItem[],
  isSettled: (type: Ability) => boolean,
): SettledRequest {
  const tools: Tool[] = [...(prompt.tools ?? [])]
  const toolPaths = tools.map((_, index) => `tools[${index}]`)
  const otherItems: InputItem[] = []
  let effort: Effort | undefined
  for (const [itemIndex, item] of input.entries()) {
    if (!isControl(item) || !isSettled(item.type)) otherItems.push(item)
    else if (item.type === 'configuration_update') effort = item.reasoning.effort
    else {
      tools.push(...item.tools)
      toolPaths.push(...item.tools.map((_, index) => `input[${itemIndex}].tools[${index}]`))
    }
  }
  return {
    prompt: {
      ...prompt,
      input: otherItems,
      ...(tools.length === 0 ? {} : { tools }),
      ...(effort === undefined ? {} : { reasoning: withEffort(prompt.reasoning, effort) }),
    },
    toolPaths,
  }
}

type Control = Extract<InputItem, { type: 'additional_tools' | 'configuration_update' }>

function isControl(item: InputItem): item is Control {
  return item.type === 'additional_tools' || item.type === 'configuration_update'
}

/** The effort replaces a budget and a switch, which express the same in other words. */
function withEffort(
  reasoning: ResponsesRequest['reasoning'],
  effort: Effort,
): NonNullable<ResponsesRequest['reasoning']> {
  const { max_tokens: _budget, enabled: _switch, effort: _before, ...otherFields } = reasoning ?? {}
  return effort === null ? otherFields : { ...otherFields, effort }
}
