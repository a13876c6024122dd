/** Computes the SHA-256 of a file, which takes half a second for the largest batch body. Task worker. */
import { createHash } from 'node:crypto'
import { type FileBytes, fileSource } from './batches/file-source.ts'
import { readFully } from './batches/json-scanner.ts'

const CHUNK_BYTES = 256 * 1024

/** Returns 64 lowercase hexadecimal characters. */
export function hashFile(file: FileBytes): string {
  const source = fileSource(file)
  const hash = createHash('sha256')
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
  for (let position = 0; position < file.bytes; position += CHUNK_BYTES) {
    hash.update(chunk.subarray(0, readFully(source, chunk, position)))
  }
  return hash.digest('hex')
}
