/** What kind of reply is coming, and how large it may be. Pure. */

import type { Endpoint } from '../providers/provider.ts'
import { FRAME_MAX_BYTES } from '../upstream/sse.ts'
import type { Exchange } from './exchange.ts'

/** A whole JSON reply; large enough for inline images, small enough that a few hundred at once fit in memory. */
export const JSON_MAX_BYTES = 64 * 1024 * 1024
/** An error page is only read for its message. */
export const ERROR_MAX_BYTES = 64 * 1024
/** Where images are drawn an event may hold one whole: a few megabytes of base64 each. */
const IMAGE_FRAME_MAX_BYTES = 32 * 1024 * 1024

const [SPACE, TAB, LF, CR, OPEN_BRACE, OPEN_BRACKET] = [32, 9, 10, 13, 123, 91]

/** Bytes of one event. */
export function frameLimit(exchange: Exchange, endpoint: Endpoint): number {
  const draws = endpoint.drawsImages || exchange.request.tools?.some(tool => tool.type === 'image_generation')
  return draws ? IMAGE_FRAME_MAX_BYTES : FRAME_MAX_BYTES
}

/** Providers answer a streaming request with plain JSON now and then, whatever their content type says. */
export function replyKind(chunk: Buffer): 'undecided' | 'sse' | 'json' {
  for (const byte of chunk) {
    if (byte === SPACE || byte === TAB || byte === LF || byte === CR) continue
    return byte === OPEN_BRACE || byte === OPEN_BRACKET ? 'json' : 'sse'
  }
  return 'undecided'
}
