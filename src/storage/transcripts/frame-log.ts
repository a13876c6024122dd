/**
 * Frame log: the frames of one stream as bytes, in chunks, with the positions of its readers. Frames are numbered from
 * 0, so a frame is found by number without parsing an event. Pure.
 */

const CHUNK_BYTES = 16 * 1024
const FIRST_BYTES = 1024
/** Memory of a chunk beside its bytes. */
const CHUNK_OVERHEAD_BYTES = 200
/** Most bytes that a reader gets at once: each slow reader holds a copy of them. */
export const SLICE_BYTES = 64 * 1024
/** Ends a frame; JSON has no line ends inside. */
const FRAME_END = '\n\n'

interface Chunk {
  bytes: Buffer
  length: number
  /** Number of the frame after its last one. */
  next: number
}

/** The place of a reader. Frames before `from` are passed over. */
export interface LogPlace {
  chunk: number
  offset: number
  /** Number of the frame there. */
  at: number
  readonly from: number
}

interface FramesTaken {
  /** A copy with memory of its own, of SLICE_BYTES at most. */
  readonly bytes: Uint8Array
  /** Frames that are whole with it. */
  readonly count: number
  /** False: it ends within a frame. */
  readonly endsFrame: boolean
}

export class FrameLog {
  readonly #chunks: Chunk[] = []
  #heldBytes = 0
  #next = 0

  /** Memory that it takes. */
  get heldBytes(): number {
    return this.#heldBytes
  }

  /** How many frames it has, which is the number of the next one. */
  get next(): number {
    return this.#next
  }

  /** The frames of each chunk, with the number of the first of them. */
  *pieces(): Generator<{ readonly first: number; readonly bytes: Buffer }> {
    let first = 0
    for (const { bytes, length, next } of this.#chunks) {
      yield { first, bytes: bytes.subarray(0, length) }
      first = next
    }
  }

  /** Adds whole frames, which are copied. */
  add(frames: Uint8Array, count: number): void {
    const chunk = this.#chunkFor(frames.length)
    chunk.bytes.set(frames, chunk.length)
    chunk.length += frames.length
    this.#next += count
    chunk.next = this.#next
  }

  /** Lets go of all frames; their numbers stay used. */
  clear(): void {
    this.#chunks.length = 0
    this.#heldBytes = 0
  }

  /** @param after number of the last frame that the reader has; -1: none */
  place(after: number): LogPlace {
    return { chunk: 0, offset: 0, at: 0, from: after + 1 }
  }

  /** Takes the next slice of the chunk at a place, and moves the place on. */
  take(place: LogPlace): FramesTaken {
    for (let chunk = this.#chunks[place.chunk]; chunk !== undefined; chunk = this.#chunks[place.chunk]) {
      if (place.offset < chunk.length) {
        if (place.at >= place.from) return takeSlice(chunk, place)
        passOver(chunk, place)
      } else if (place.chunk + 1 < this.#chunks.length) {
        place.chunk++
        place.offset = 0
      } else break
    }
    // Memory that is sent to another thread is gone here, so each reader gets its own.
    return { bytes: new Uint8Array(0), count: 0, endsFrame: true }
  }

  #chunkFor(bytes: number): Chunk {
    const last = this.#chunks.at(-1)
    if (last !== undefined && last.length + bytes <= CHUNK_BYTES) {
      if (last.length + bytes > last.bytes.length) this.#grow(last, last.length + bytes)
      return last
    }
    const chunk: Chunk = { bytes: Buffer.allocUnsafeSlow(Math.max(FIRST_BYTES, bytes)), length: 0, next: 0 }
    this.#chunks.push(chunk)
    this.#heldBytes += chunk.bytes.length + CHUNK_OVERHEAD_BYTES
    return chunk
  }

  #grow(chunk: Chunk, bytes: number): void {
    let size = chunk.bytes.length
    while (size < bytes) size *= 2
    const grown = Buffer.allocUnsafeSlow(Math.min(size, CHUNK_BYTES))
    chunk.bytes.copy(grown, 0, 0, chunk.length)
    this.#heldBytes += grown.length - chunk.bytes.length
    chunk.bytes = grown
  }
}

/** Number of bytes that the first `count` frames take. */
export function lengthOfFrames(bytes: Buffer, count: number): number {
  let end = 0
  for (let left = count; left > 0; left--) end = bytes.indexOf(FRAME_END, end) + FRAME_END.length
  return end
}

/** Frames of a chunk of several slices count with the last one. */
function takeSlice(chunk: Chunk, place: LogPlace): FramesTaken {
  const end = Math.min(chunk.length, place.offset + SLICE_BYTES)
  const bytes = new Uint8Array(chunk.bytes.subarray(place.offset, end))
  place.offset = end
  if (end < chunk.length) return { bytes, count: 0, endsFrame: false }
  const count = chunk.next - place.at
  place.at = chunk.next
  return { bytes, count, endsFrame: true }
}

/** Passes over the frames that the reader has. */
function passOver(chunk: Chunk, place: LogPlace): void {
  const count = Math.min(place.from, chunk.next) - place.at
  const isWhole = place.at + count === chunk.next
  const rest = chunk.bytes.subarray(place.offset, chunk.length)
  place.offset = isWhole ? chunk.length : place.offset + lengthOfFrames(rest, count)
  place.at += count
}
