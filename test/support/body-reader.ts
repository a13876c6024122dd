/** Readers for raw request bodies. */
import type { BodyReader } from '../../src/api/operation.ts'

/** Hands each chunk to a function, whichever way it comes. */
export function bodyReader(onChunk: (chunk: Uint8Array) => unknown = () => undefined): BodyReader {
  return {
    async write(chunk) {
      await onChunk(chunk)
    },
    writeNow(chunk) {
      onChunk(chunk)
    },
  }
}
