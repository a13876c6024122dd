/**
 * Frame log: the frames of one stream as bytes, in chunks, with the positions of its readers. Frames are numbered from
 * 0, so a frame is found by number without parsing an event. Pure.
 */
import { FRAME_END } from './frames.ts'

const CHUNK_BYTES = 16 * 1024
const FIRST_BYTES = 1024
/** Memory of a chunk in addition to its bytes. */
const CHUNK_OVERHEAD_BYTES = 200
/** Maximum bytes that a reader gets at once, because each slow reader holds a copy. */
export const SLICE_BYTES = 64 * 1024

interface Chunk {
  bytes: Buffer
  length: number
  /** Number of the frame after the last one. */
  next: number
}

/** The position of a reader. Frames before `firstFrame` are skipped. */
export interface LogPosition {
  chunk: number
  offset: number
  /** Number of the frame at this position. */
  frame: number
  readonly firstFrame: number
}

interface FrameSlice {
  /** A copy with memory of its own, at most SLICE_BYTES. */
  readonly bytes: Uint8Array
  /** Number of frames that this slice completes. */
  readonly count: number
  /** False: the slice ends within a frame. */
  readonly endsFrame: boolean
}

export class FrameLog {
  readonly #chunks: Chunk[] = []
  #heldBytes = 0
  #next = 0

  /** Memory used by the log. */
  get heldBytes(): number {
    return this.#heldBytes
  }

  /** Number of frames so far, which is also the number of the next one. */
  get next(): number {
    return this.#next
  }

  /** The frames of each chunk, with the number of its first frame. */
  *pieces(): Generator<{ readonly first: number; readonly bytes: Buffer }> {
    let first = 0
    for (const { bytes, length, next } of this.#chunks) {
      yield { first, bytes: bytes.subarray(0, length) }
      first = next
    }
  }

  /** Copies whole frames into the log. */
  add(frames: Uint8Array, count: number): void {
    const chunk = this.#chunkFor(frames.length)
    chunk.bytes.set(frames, chunk.length)
    chunk.length += frames.length
    this.#next += count
    chunk.next = this.#next
  }

  /** Drops all frames. Their numbers are not reused. */
  clear(): void {
    this.#chunks.length = 0
    this.#heldBytes = 0
  }

  /** @param after number of the last frame that the reader has; -1: none */
  positionAfter(after: number): LogPosition {
    return { chunk: 0, offset: 0, frame: 0, firstFrame: after + 1 }
  }

  /** Returns the next slice of the chunk at a position, and advances the position. */
  read(position: LogPosition): FrameSlice {
    for (
      let chunk = this.#chunks[position.chunk];
      chunk !== undefined;
      chunk = this.#chunks[position.chunk]
    ) {
      if (position.offset < chunk.length) {
        if (position.frame >= position.firstFrame) return readSlice(chunk, position)
        skip(chunk, position)
      } else if (position.chunk + 1 < this.#chunks.length) {
        position.chunk++
        position.offset = 0
      } else break
    }
    // Memory that is transferred to another thread is lost here, so each reader gets its own copy.
    return { bytes: new Uint8Array(0), count: 0, endsFrame: true }
  }

  #chunkFor(bytes: number): Chunk {
    const lastChunk = this.#chunks.at(-1)
    if (lastChunk !== undefined && lastChunk.length + bytes <= CHUNK_BYTES) {
      if (lastChunk.length + bytes > lastChunk.bytes.length) this.#grow(lastChunk, lastChunk.length + bytes)
      return lastChunk
    }
    const chunk: Chunk = { bytes: Buffer.allocUnsafeSlow(Math.max(FIRST_BYTES, bytes)), length: 0, next: 0 }
    this.#chunks.push(chunk)
    this.#heldBytes += chunk.bytes.length + CHUNK_OVERHEAD_BYTES
    return chunk
  }

  #grow(chunk: Chunk, bytes: number): void {
    let size = chunk.bytes.length
    while (size < bytes) size *= 2
    const largerBuffer = Buffer.allocUnsafeSlow(Math.min(size, CHUNK_BYTES))
    chunk.bytes.copy(largerBuffer, 0, 0, chunk.length)
    this.#heldBytes += largerBuffer.length - chunk.bytes.length
    chunk.bytes = largerBuffer
  }
}

/** Number of bytes of the first `count` frames. */
export function lengthOfFrames(bytes: Buffer, count: number): number {
  let end = 0
  for (let remaining = count; remaining > 0; remaining--)
    end = bytes.indexOf(FRAME_END, end) + FRAME_END.length
  return end
}

/** Frames of a chunk with several slices count with the last slice. */
function readSlice(chunk: Chunk, position: LogPosition): FrameSlice {
  const end = Math.min(chunk.length, position.offset + SLICE_BYTES)
  const bytes = new Uint8Array(chunk.bytes.subarray(position.offset, end))
  position.offset = end
  if (end < chunk.length) return { bytes, count: 0, endsFrame: false }
  const count = chunk.next - position.frame
  position.frame = chunk.next
  return { bytes, count, endsFrame: true }
}

/** Skips frames that the reader already has. */
function skip(chunk: Chunk, position: LogPosition): void {
  const count = Math.min(position.firstFrame, chunk.next) - position.frame
  const endsChunk = position.frame + count === chunk.next
  const remaining = chunk.bytes.subarray(position.offset, chunk.length)
  position.offset = endsChunk ? chunk.length : position.offset + lengthOfFrames(remaining, count)
  position.frame += count
}
