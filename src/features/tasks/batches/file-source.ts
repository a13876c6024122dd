/** Reads the bytes of an open file. A descriptor belongs to the process, so every thread can use it. Task worker. */
import { readSync } from 'node:fs'
import type { ByteSource } from './json-scanner.ts'

export interface FileBytes {
  /** Open for as long as a task may read it. */
  readonly descriptor: number
  readonly bytes: number
}

/** Reads by position, so that readers do not affect each other. */
export function fileSource({ descriptor, bytes }: FileBytes): ByteSource {
  return (target, position) => {
    const length = Math.min(target.length, bytes - position)
    return length <= 0 ? 0 : readSync(descriptor, target, 0, length, position)
  }
}
