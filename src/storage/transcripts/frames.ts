/** Frames of a transcript: texts that each end with a blank line, as the frames of an event stream do. Pure. */
import type { FramesPart } from './transcripts.ts'

/** Ends a frame. JSON contains no line ends. */
export const FRAME_END = '\n\n'

/** A frame of a text without blank lines, such as JSON. */
export function framed(text: string): string {
  return text + FRAME_END
}

/** A text, or its bytes. */
interface Frames {
  indexOf(text: string, from?: number): number
}

export function countFrames(frames: Frames): number {
  let count = 0
  for (
    let index = frames.indexOf(FRAME_END);
    index !== -1;
    index = frames.indexOf(FRAME_END, index + FRAME_END.length)
  )
    count++
  return count
}

/** Collects the slices of frames that come in several parts. */
export class WholeFrames {
  #slices: Buffer[] = []

  /** The frames that this part completes; null: the last frame is still incomplete. */
  add({ bytes, endsFrame }: FramesPart): Buffer | null {
    const slice = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    if (endsFrame && this.#slices.length === 0) return slice
    this.#slices.push(slice)
    if (!endsFrame) return null
    // Joined once: a frame may be a document of many megabytes.
    const frames = Buffer.concat(this.#slices)
    this.#slices = []
    return frames
  }
}
