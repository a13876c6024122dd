/**
 * Writes each item of a hosted tool (one that the provider or the gateway ran) as two blocks: the call and, if it is
 * known, its result; an image or a compaction is one block. Pure. A provider of this API sends the blocks itself; they
 * pass unchanged, because they hold encrypted parts that later turns need. For all other providers the blocks are built
 * from the item.
 */
import { listOrEmpty, parseJson, record, recordOrEmpty, records, textOrEmpty } from '../../base/json.ts'
import type { HostedItem } from '../../protocol/items.ts'
import { nativeOf } from '../../protocol/json/native.ts'
import { isObject } from '../../protocol/json/schema.ts'
import { drawnImage, gatewayToolOf, inputAndResult } from '../hosted-items.ts'
import { gatewayResultType } from './message-schema.ts'

export type OutputBlock = Readonly<Record<string, unknown>>

type Fields = Readonly<Record<string, unknown>>

/** The blocks of a finished item; empty for kinds that this API cannot show. */
export function hostedBlocks(item: HostedItem): readonly OutputBlock[] {
  const nativeBlocks = nativeOf(item)?.['blocks']
  if (Array.isArray(nativeBlocks)) return nativeBlocks.filter(isObject)
  const image = drawnImage(item)
  if (image !== null) return [{ type: 'image', source: imageSource(image) }]
  const gatewayTool = gatewayToolOf(item.type)
  const maker = BLOCK_MAKERS[gatewayTool?.name ?? item.type]
  if (maker !== undefined) return maker(item)
  return gatewayTool === null || gatewayTool.name === 'image_generation'
    ? []
    : gatewayBlocks(item, gatewayTool.name)
}

function imageSource(image: NonNullable<ReturnType<typeof drawnImage>>): OutputBlock {
  if ('base64' in image) return { type: 'base64', media_type: image.mediaType, data: image.base64 }
  const inline = /^data:([^,;]*)[^,]*;base64,/.exec(image.url)
  if (inline === null) return { type: 'url', url: image.url }
  return { type: 'base64', media_type: inline[1] ?? '', data: image.url.slice(inline[0].length) }
}

/** Keyed by the name of a tool of the gateway, or the type of a provider's item. */
const BLOCK_MAKERS: Readonly<Record<string, (item: HostedItem) => readonly OutputBlock[]>> = {
  web_search_call: searchBlocks,
  web_search: searchBlocks,
  web_fetch: fetchBlocks,
  code_interpreter_call: codeBlocks,
  code_interpreter: codeBlocks,
  file_search_call: item => [callBlock(item, 'file_search', { queries: item['queries'] ?? [] })],
  mcp_call: mcpBlocks,
  advisor: adviceBlocks,
  compaction: ({ encrypted_content }) => [{ type: 'compaction', content: null, encrypted_content }],
}

function callBlock({ id }: HostedItem, name: string, input: Fields): OutputBlock {
  return { type: 'server_tool_use', id, name, input, caller: { type: 'direct' } }
}

function resultBlock({ id }: HostedItem, type: string, content: unknown): OutputBlock {
  return { type, tool_use_id: id, content, caller: { type: 'direct' } }
}

function searchBlocks(item: HostedItem): readonly OutputBlock[] {
  const action = isObject(item['action']) ? item['action'] : {}
  if (action['type'] === 'open_page' || action['type'] === 'find_in_page') {
    const { type: _, ...input } = action
    return [callBlock(item, 'web_fetch', input)]
  }
  const query = callBlock(item, 'web_search', {
    query: textOrEmpty(action['query']) || listOrEmpty(action['queries']).join('\n'),
  })
  if (!Array.isArray(action['sources'])) return [query]
  const results = action['sources'].flatMap((source: unknown) => {
    const url = textOrEmpty(recordOrEmpty(source)['url'])
    const title = textOrEmpty(recordOrEmpty(source)['title'])
    return url === ''
      ? []
      : [{ type: 'web_search_result', url, title: title || url, encrypted_content: '', page_age: null }]
  })
  return [query, resultBlock(item, 'web_search_tool_result', results)]
}

function fetchBlocks(item: HostedItem): readonly OutputBlock[] {
  const url = textOrEmpty(item['url'])
  const content =
    typeof item['content'] === 'string'
      ? {
          type: 'web_fetch_result',
          url,
          retrieved_at: null,
          content: {
            type: 'document',
            source: { type: 'text', media_type: 'text/plain', data: item['content'] },
            title: textOrEmpty(item['title']) || null,
            citations: null,
          },
        }
      : { type: 'web_fetch_tool_result_error', error_code: 'unavailable' }
  return [callBlock(item, 'web_fetch', { url }), resultBlock(item, 'web_fetch_tool_result', content)]
}

function codeBlocks(item: HostedItem): readonly OutputBlock[] {
  const call = callBlock(item, 'code_execution', { code: textOrEmpty(item['code']) })
  const outputs = records(item['outputs'])
  const stdout = outputs.map(output => textOrEmpty(output['logs'])).join('') + textOrEmpty(item['stdout'])
  if (!Array.isArray(item['outputs']) && item['stdout'] === undefined) return [call]
  const content = {
    type: 'code_execution_result',
    stdout,
    stderr: textOrEmpty(item['stderr']),
    return_code: item.status === 'failed' ? 1 : typeof item['exitCode'] === 'number' ? item['exitCode'] : 0,
    content: outputs.flatMap(output =>
      typeof output['id'] === 'string' ? [{ type: 'code_execution_output', file_id: output['id'] }] : [],
    ),
  }
  return [call, resultBlock(item, 'code_execution_tool_result', content)]
}

function mcpBlocks(item: HostedItem): readonly OutputBlock[] {
  const { id, name, server_label: server_name, output, error } = item
  const call: OutputBlock = {
    type: 'mcp_tool_use',
    id,
    name,
    server_name,
    input: objectIn(item['arguments']),
  }
  if (output == null && error == null) return [call]
  const text = textOrEmpty(output ?? error) || JSON.stringify(output ?? error)
  return [
    call,
    {
      type: 'mcp_tool_result',
      tool_use_id: id,
      is_error: error != null,
      content: [{ type: 'text', text, citations: null }],
    },
  ]
}

function adviceBlocks(item: HostedItem): readonly OutputBlock[] {
  const { input, result: fields } = inputAndResult(item)
  const content =
    typeof item['advice'] === 'string'
      ? { type: 'advisor_result', text: item['advice'] }
      : { type: 'advisor_tool_result_error', error_code: 'unavailable', ...fields }
  return [callBlock(item, 'advisor', input), resultBlock(item, 'advisor_tool_result', content)]
}

function gatewayBlocks(item: HostedItem, name: string): readonly OutputBlock[] {
  const { input: ownInput, result: fields } = inputAndResult(item)
  const input = typeof item['arguments'] === 'string' ? objectIn(item['arguments']) : ownInput
  return [callBlock(item, name, input), resultBlock(item, gatewayResultType(item.type), fields)]
}

/** The arguments of a call as an object, which this API requires; other JSON is put under one key. */
export function objectIn(json: unknown): Fields {
  const text = textOrEmpty(json)
  if (text.trim() === '') return {}
  // A model may write anything.
  return record(parseJson(text)) ?? { arguments: text }
}
