/**
 * Converts a conversation for another model, which has none of its tools: messages are kept, calls and results become
 * text, and everything that only the original model or provider can use is dropped. Pure.
 */
import type { InputItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'

/** The items for the `input` of another model; the instructions come first. */
export function conversationOf({ instructions, input }: ResponsesRequest): readonly InputItem[] {
  const instructionItems: InputItem[] =
    instructions == null ? [] : [{ type: 'message', role: 'developer', content: instructions }]
  if (typeof input === 'string')
    return [...instructionItems, { type: 'message', role: 'user', content: input }]
  return [...instructionItems, ...input.flatMap(readableItems)]
}

function readableItems(item: InputItem): readonly InputItem[] {
  switch (item.type) {
    case undefined:
    case 'message':
      // Ids and phases belong to the model that wrote the item.
      return item.content === null
        ? []
        : [{ type: 'message', role: item.role, content: item.content } as InputItem]
    case 'function_call':
      return [assistantMessage(`[Calls ${item.name} with ${item.arguments}]`)]
    case 'custom_tool_call':
      return [assistantMessage(`[Calls ${item.name} with ${item.input}]`)]
    case 'function_call_output':
    case 'custom_tool_call_output':
      return [outputContent(item.output)]
    default:
      return []
  }
}

function assistantMessage(content: string): InputItem {
  return { type: 'message', role: 'assistant', content }
}

/** The output of a call, with its images and files. */
function outputContent(output: Extract<InputItem, { type: 'function_call_output' }>['output']): InputItem {
  if (typeof output === 'string')
    return { type: 'message', role: 'user', content: `[The call gave: ${output}]` }
  return {
    type: 'message',
    role: 'user',
    content: [{ type: 'input_text', text: '[The call gave:]' }, ...output],
  } as InputItem
}
