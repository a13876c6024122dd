/** Bytes in memory as a source for a scanner. */
import type { ByteSource } from '../../../src/features/tasks/batches/json-scanner.ts'

export function memorySource(bytes: Uint8Array): ByteSource {
  return (target, position) => {
    const piece = bytes.subarray(position, position + target.length)
    target.set(piece)
    return piece.length
  }
}
