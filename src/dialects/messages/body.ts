/** Writes a finished response as a whole message. Pure. */
import type { OutputItem } from '../../protocol/items.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import {
  blocksOf,
  containerOf,
  editsOf,
  type MessageFields,
  messageHead,
  messagesUsage,
  reportsOf,
  stopOf,
} from './answer.ts'
import type { OutputBlock } from './hosted.ts'

export function messagesBody(response: ResponseResource): MessageFields {
  const { debug, usage, output } = response
  return {
    ...messageHead(response),
    content: contentOf(output),
    ...stopOf(response),
    container: containerOf(output),
    usage: messagesUsage(usage, response.service_tier),
    ...editsOf(response),
    ...reportsOf(response),
    ...(debug === undefined ? {} : { debug }),
  }
}

/** The content that items make together. */
export function contentOf(output: readonly OutputItem[]): readonly OutputBlock[] {
  return output.flatMap(blocksOf)
}
