/**
 * Streams of requests in which values were masked: writes the frames with the originals of their placeholders, and
 * seals such frames for transcripts. See exchange/masks.ts.
 */
import type { FrameWriter } from '../dialects/dialect.ts'
import type { Masks } from '../exchange/masks.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { TextSeal } from '../providers/credentials/sealed-text.ts'

/** Frames of another writer, with the originals. */
export class UnmaskedFrames implements FrameWriter {
  readonly #masks: Masks
  readonly #writer: FrameWriter

  constructor(masks: Masks, writer: FrameWriter) {
    this.#masks = masks
    this.#writer = writer
  }

  get endsAlone(): boolean {
    return this.#writer.endsAlone === true
  }

  get tellsOverflow(): boolean {
    return this.#writer.tellsOverflow === true
  }

  write(event: StreamEvent): string {
    return this.#masks.unmaskedFrames(this.#writer.write(event))
  }

  end(): string {
    return this.#masks.unmaskedFrames(this.#writer.end())
  }

  failure(...failure: Parameters<FrameWriter['failure']>): string {
    return this.#masks.unmaskedFrames(this.#writer.failure(...failure))
  }

  answerInstead(...failure: Parameters<FrameWriter['failure']>): string | null {
    return this.#writer.answerInstead?.(...failure) ?? null
  }
}

/** The frames of the writer with the originals; a signature that it adds covers these. */
export function unmaskedFrames(masks: Masks, writer: FrameWriter): FrameWriter {
  const wrap = (inner: FrameWriter): FrameWriter => new UnmaskedFrames(masks, inner)
  return writer.wrapInner?.(wrap) ?? wrap(writer)
}

export type FrameSeal = Pick<TextSeal, 'seal' | 'open'>

const FRAME_END = '\n\n'
/** A comment of the event stream, which no client gets. */
const SEALED_PREFIX = ': sealed '

/** Whole frames, each sealed for its stream. */
export function sealedFrames(seal: FrameSeal, frames: string, owner: readonly string[]): string {
  let sealedText = ''
  for (let from = 0, end = frames.indexOf(FRAME_END); end !== -1; end = frames.indexOf(FRAME_END, from)) {
    sealedText += `${SEALED_PREFIX}${seal.seal(frames.slice(from, end), owner)}${FRAME_END}`
    from = end + FRAME_END.length
  }
  return sealedText
}

/** Opens the sealed frames in the slices of a transcript. One per reader. */
export class SealedFrames {
  readonly #seal: FrameSeal
  readonly #owner: readonly string[]
  /** The beginning of a frame that is sealed, or may be. */
  #pendingText = ''
  /** True if the last slice ended within a frame that is not sealed. */
  #isWithinFrame = false

  constructor(seal: FrameSeal, owner: readonly string[]) {
    this.#seal = seal
    this.#owner = owner
  }

  /** The bytes of a slice that can leave. `endsFrame`: the slice ends with a frame. */
  open(slice: Buffer, endsFrame: boolean): Buffer {
    if (endsFrame && this.#pendingText === '' && !slice.includes(SEALED_PREFIX)) {
      this.#isWithinFrame = false
      return slice
    }
    const text = this.#pendingText + slice.toString('latin1')
    this.#pendingText = ''
    let plainText = ''
    let from = 0
    for (let end = text.indexOf(FRAME_END); end !== -1; end = text.indexOf(FRAME_END, from)) {
      plainText += this.#isWithinFrame ? text.slice(from, end) : this.#openFrame(text.slice(from, end))
      plainText += FRAME_END
      this.#isWithinFrame = false
      from = end + FRAME_END.length
    }
    const rest = text.slice(from)
    if (
      !this.#isWithinFrame &&
      rest !== '' &&
      (rest.startsWith(SEALED_PREFIX) || SEALED_PREFIX.startsWith(rest))
    ) {
      this.#pendingText = rest
    } else if (rest !== '') {
      plainText += rest
      this.#isWithinFrame = true
    }
    return Buffer.from(plainText, 'latin1')
  }

  #openFrame(frame: string): string {
    if (!frame.startsWith(SEALED_PREFIX)) return frame
    const plain = this.#seal.open(frame.slice(SEALED_PREFIX.length), this.#owner)
    return plain === null ? ': unreadable' : Buffer.from(plain).toString('latin1')
  }
}
