/** The contract of blob storage for files: a folder, or a bucket. */
import { isFileId } from '../../base/ids.ts'

/** Bytes that can be read from their beginning, more than once. */
export interface ContentSource {
  readonly bytes: number
  chunks(): AsyncIterable<Uint8Array>
}

/**
 * Names are our own ids alone: nothing that a caller says becomes part of a path. `keyHash`: of the API key for which
 * it is done; absent for the gateway itself. A storage with few places may say `rate_limit_exceeded` to a key that has
 * its share of them.
 */
export interface FileContents {
  /** Keeps all bytes or none. @throws GatewayError `service_unavailable`, or what the source throws */
  put(id: string, source: ContentSource, keyHash?: string): Promise<void>
  /** The bytes as they are read, one chunk in memory at a time. Throws a GatewayError `service_unavailable`. */
  read(id: string, keyHash?: string): AsyncIterable<Uint8Array>
  /** Does nothing if there are none. @throws GatewayError `service_unavailable` */
  remove(id: string, keyHash?: string): Promise<void>
}

/** @throws TypeError for any other text: such a name must never reach a path, whoever passes it on. */
export function checkedId(id: string): string {
  if (!isFileId(id)) throw new TypeError('not the id of a file')
  return id
}

/** Bytes that are in memory. */
export function bytesSource(content: Uint8Array): ContentSource {
  return {
    bytes: content.byteLength,
    async *chunks() {
      yield content
    },
  }
}
