/** The contract of blob storage for files: a folder, or a bucket. */
import { isFileId } from '../../base/ids.ts'

/** Bytes that can be read several times from the beginning. */
export interface ContentSource {
  readonly bytes: number
  chunks(): AsyncIterable<Uint8Array>
}

/**
 * Blobs are named by ids of the gateway, so nothing from a caller becomes part of a path. `keyHash` is the API key of
 * the caller; absent for work of the gateway itself. A storage with few connections may reject with
 * `rate_limit_exceeded` if a key already uses its share of them.
 */
export interface FileContents {
  /** Stores all bytes or none. @throws GatewayError `service_unavailable`, or an error of the source */
  put(id: string, source: ContentSource, keyHash?: string): Promise<void>
  /** The bytes as they are read, one chunk in memory at a time. Throws a GatewayError `service_unavailable`. */
  read(id: string, keyHash?: string): AsyncIterable<Uint8Array>
  /** Does nothing if the file does not exist. @throws GatewayError `service_unavailable` */
  remove(id: string, keyHash?: string): Promise<void>
}

/** @throws TypeError for any other text, because such a name must never become a path */
export function checkedId(id: string): string {
  if (!isFileId(id)) throw new TypeError('the name of stored bytes must be the id of a file')
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
