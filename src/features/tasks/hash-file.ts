/** Computes the SHA-256 of a file, which takes half a second for the largest batch body. Task worker. */
import { createHash } from 'node:crypto'
import { type FileBytes, fileSource } from './batches/file-source.ts'
import { readFully } from './batches/json-scanner.ts'

const PIECE_BYTES = 256 * 1024

/** Returns 64 lowercase hexadecimal characters. */
export function hashFile(file: FileBytes): string {
  const source = fileSource(file)
  const hash = createHash('sha256')
  const piece = Buffer.allocUnsafe(PIECE_BYTES)
  for (let at = 0; at < file.bytes; at += PIECE_BYTES) {
    hash.update(piece.subarray(0, readFully(source, piece, at)))
  }
  return hash.digest('hex')
}
