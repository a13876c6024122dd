/**
 * Relay: forwards delta frames without decoding them, between any two dialects. Hot path. A frame that matches a
 * pattern (providers/upstream/scan.ts) is sent unchanged or, if our frame differs, as our frame around the same text. All other
 * frames go through decoder and answer.
 *
 * Patterns are learned from frames that went through decoder and answer (relay-patterns.ts), so the output is the
 * same except for padding and escapes in the text. The relay collects the texts of relayed frames, and passes them to
 * decoder and answer as one delta before the next frame that they handle, or at the end of the reply. Items, repairs,
 * failures and usage therefore need no second implementation.
 */
import type { StreamEvent } from '../../protocol/events.ts'
import {
  type FramePattern,
  type FramePieces,
  type JsonSpan,
  piecesOf,
  textsOf,
} from '../../providers/upstream/scan.ts'
import type { SseParser } from '../../providers/upstream/sse.ts'
import type { Sink } from './sink.ts'

/** The answer as the relay needs it. */
interface RelayedAnswer {
  /** Number of the next event. */
  readonly nextEventNumber: number
  /** Sets the listener for every event, until the turn ends. */
  listen(listener: (event: StreamEvent) => void): void
  readonly sink: Pick<Sink, 'relay' | 'lastFrames'>
  /** Counts `count` relayed events; `supply` supplies their texts. */
  overhear(count: number, supply: () => void): void
}

/** A frame that was decoded in the usual way, and the result. */
export interface DecodedFrame {
  readonly event: string
  readonly data: string
  /** The number of events it produced, and the last of them. */
  readonly events: number
  readonly last: StreamEvent
  /** The frame that the dialect wrote for the last event. */
  readonly ourFrame: string
}

/** How frames of one kind are relayed. */
export interface Lesson {
  readonly pattern: FramePattern
  /** Null: a frame is sent unchanged. */
  readonly template: FrameTemplate | null
  /** The difference between the provider's event numbers and ours; 0 for frames without a number. */
  readonly ahead: number
  /** False: one more frame has to confirm it. */
  readonly isProven: boolean
}

/** Learns from a frame; null if there is nothing to learn. `before`: the lesson from earlier frames. */
export type LearnFrame = (frame: DecodedFrame, before: Lesson | null) => Lesson | null

export interface RelayDeps {
  readonly parser: SseParser
  readonly answer: RelayedAnswer
  readonly learn: LearnFrame
  /** Decodes one frame. It must produce each event before it returns. */
  readonly decode: (event: string, data: string) => void
}

/** After this many lessons without a relayed frame, the rest of the reply is decoded. */
const MAX_LESSONS = 32
/**
 * If there are more texts than this, they are passed to the decoder before the next one is collected. Each open stream
 * holds the bytes: some hundred deltas at a time are few enough for thousands of streams.
 */
const PENDING_TEXT_MAX_BYTES = 1024
/** Allocated at once: growing a buffer step by step would take some microseconds each time. */
const START_BYTES = PENDING_TEXT_MAX_BYTES
/** Kept size of the single buffer for our frames: more than one read of the socket produces. */
const OWN_FRAMES_KEPT_BYTES = 128 * 1024
/** Up to this length a loop beats the native copy. */
const SHORT_BYTES = 32

/** Digits of a safe integer. */
const NUMBER_MAX_DIGITS = 16

const LF = 10
const DIGIT_0 = 48
const EMPTY = Buffer.alloc(0)

export class Relay {
  readonly #deps: RelayDeps
  /** The last lesson; frames are relayed while `#active` is the same one. */
  #lesson: Lesson | null = null
  #active: Lesson | null = null
  #lessonsLeft = MAX_LESSONS
  /** Events of the frame that is being decoded, and the last of them. */
  #eventCount = 0
  #latestEvent: StreamEvent | null = null
  /** True if the next byte begins a frame. */
  #isAtBorder: boolean
  /** Relayed frames that decoder and answer do not know about yet. */
  #pendingFrames = 0
  /** Number of all relayed frames. */
  #relayedFrames = 0
  /** Relayed texts that decoder and answer do not know about yet. */
  readonly pendingTexts = new ByteList(PENDING_TEXT_MAX_BYTES)
  /** True if the last read contained something that was decoded. */
  hasDecoded = false

  readonly #listener = (event: StreamEvent): void => {
    this.#eventCount++
    this.#latestEvent = event
  }

  constructor(deps: RelayDeps) {
    this.#deps = deps
    this.#isAtBorder = deps.parser.atBorder
    this.listen()
  }

  /** Listens to the events of the answer. Call it again if another relay of the same answer was created since. */
  listen(): void {
    this.#deps.answer.listen(this.#listener)
  }

  /** Takes a read of the socket; the bytes are not kept. False: the reader is slow. */
  push(chunk: Buffer): boolean {
    const { length } = chunk
    let flowing = true
    let offset = 0
    this.hasDecoded = false
    while (offset < length) {
      if (this.#active !== null && this.#isAtBorder) {
        const before = this.#relayedFrames
        const end = this.#relayFrames(chunk, offset, this.#active)
        if (end > offset) {
          this.#lessonsLeft = MAX_LESSONS
          const isTheirs = this.#active.template === null
          const frames = isTheirs
            ? end - offset === length
              ? chunk
              : chunk.subarray(offset, end)
            : ownFrames.drain()
          flowing = this.#deps.answer.sink.relay(frames, this.#relayedFrames - before)
          offset = end
          continue
        }
      }
      this.hasDecoded = true
      offset = this.#read(chunk, offset)
      this.#isAtBorder = this.#deps.parser.atBorder
    }
    return flowing
  }

  /** Takes the frames of the parser. */
  frame(event: string, data: string): void {
    this.settle()
    this.#active = null
    this.#eventCount = 0
    this.#latestEvent = null
    this.#deps.decode(event, data)
    if (this.#lessonsLeft > 0) this.#learn(event, data)
    this.#latestEvent = null
  }

  /** Passes the collected texts to decoder and answer. Call it before any other use of them. */
  settle(): void {
    const active = this.#active
    const pendingFrames = this.#pendingFrames
    if (active === null || pendingFrames === 0) return
    const { pattern } = active
    const data = pattern.frameWith(this.pendingTexts.drain().toString())
    this.#pendingFrames = 0
    this.hasDecoded = true
    this.#deps.answer.overhear(pendingFrames, () => this.#deps.decode(pattern.event, data))
  }

  /** Relays the matching frames from `start` on; returns where they end. */
  #relayFrames(chunk: Buffer, start: number, { pattern, template, ahead }: Lesson): number {
    const pendingTexts = this.pendingTexts
    if (template !== null) ownFrames.clear()
    // Texts of relayed frames may be passed to the answer meanwhile: the number of the next event stays the same.
    let number = this.#deps.answer.nextEventNumber + this.#pendingFrames
    let end = start
    while (end < chunk.length) {
      const next = pattern.match(chunk, end, number + ahead)
      if (next === -1) break
      const { deltaStart, deltaEnd } = pattern
      template?.write(ownFrames, chunk, pattern, number)
      if (pendingTexts.length + deltaEnd - deltaStart > PENDING_TEXT_MAX_BYTES) this.settle()
      pendingTexts.add(chunk, deltaStart, deltaEnd)
      this.#pendingFrames++
      this.#relayedFrames++
      number++
      end = next
    }
    return end
  }

  /** Decodes up to the end of the frame, or everything if nothing will be relayed; returns how far it got. */
  #read(chunk: Buffer, from: number): number {
    const { parser } = this.#deps
    const { length } = chunk
    let offset = from
    do {
      const lineEnd = this.#lessonsLeft === 0 ? -1 : chunk.indexOf(LF, offset)
      const end = lineEnd === -1 ? length : lineEnd + 1
      parser.push(end - offset === length ? chunk : chunk.subarray(offset, end))
      offset = end
    } while (offset < length && !parser.atBorder)
    return offset
  }

  #learn(event: string, data: string): void {
    const last = this.#latestEvent
    if (last === null || !last.type.endsWith('.delta')) return
    this.#lessonsLeft--
    const { learn, answer } = this.#deps
    const frame = { event, data, last, events: this.#eventCount, ourFrame: answer.sink.lastFrames ?? '' }
    this.#lesson = learn(frame, this.#lesson)
    if (this.#lesson?.isProven === true) this.#active = this.#lesson
  }
}

/** Our frame for the texts of a provider: fixed pieces, with slots for the text and the event number. */
export class FrameTemplate {
  readonly #pieces: FramePieces
  readonly #slots: readonly ('delta' | 'number')[]

  /** `slots`: places in `data`, in order. */
  constructor(
    head: string,
    data: string,
    slots: readonly (JsonSpan & { readonly slot: 'delta' | 'number' })[],
  ) {
    this.#pieces = piecesOf(`${head}${data}\n\n`, slots, head.length)
    this.#slots = slots.map(({ slot }) => slot)
  }

  /**
   * Appends the frame for the text that `pattern` has just matched in `chunk`. A single call, because it runs per
   * delta.
   */
  write(to: ByteList, chunk: Buffer, { deltaStart, deltaEnd }: FramePattern, number: number): void {
    const { bytes: fixed, start, ends } = this.#pieces
    const slots = this.#slots
    const fixedBytes = (ends[ends.length - 1] as number) - start
    const bytes = to.room(fixedBytes + slots.length * (deltaEnd - deltaStart + NUMBER_MAX_DIGITS))
    let position = to.length
    let from = start
    for (let index = 0; index < ends.length; index++) {
      const end = ends[index] as number
      if (end - from > SHORT_BYTES) position += fixed.copy(bytes, position, from, end)
      else for (let next = from; next < end; next++) bytes[position++] = fixed[next] as number
      from = end
      const slot = slots[index]
      if (slot === 'delta') {
        if (deltaEnd - deltaStart > SHORT_BYTES) position += chunk.copy(bytes, position, deltaStart, deltaEnd)
        else for (let next = deltaStart; next < deltaEnd; next++) bytes[position++] = chunk[next] as number
      } else if (slot === 'number') {
        let remainingNumber = number
        for (let digits = number; digits >= 10; digits = Math.floor(digits / 10)) position++
        for (let digit = position++; ; digit--) {
          bytes[digit] = DIGIT_0 + (remainingNumber % 10)
          remainingNumber = Math.floor(remainingNumber / 10)
          if (remainingNumber === 0) break
        }
      }
    }
    to.length = position
  }

  /** The frame for a text in its JSON form. */
  frame(delta: string, number: number): string {
    const pieces = textsOf(this.#pieces)
    return pieces
      .map((piece, index) => {
        const slot = this.#slots[index]
        return slot === undefined ? piece : piece + (slot === 'delta' ? delta : number)
      })
      .join('')
  }
}

/** Bytes that are appended piece by piece and taken all at once. */
class ByteList {
  /** A larger buffer is released when its bytes are taken. */
  readonly #keptBytes: number
  #bytes: Buffer = EMPTY
  /** Code that writes into `room` updates this. */
  length = 0

  constructor(keptBytes: number) {
    this.#keptBytes = keptBytes
  }

  add(chunk: Buffer, start: number, end: number): void {
    const length = this.length + end - start
    if (length > this.#bytes.length) this.#grow(length)
    if (end - start > SHORT_BYTES) chunk.copy(this.#bytes, this.length, start, end)
    else {
      const bytes = this.#bytes
      let to = this.length
      for (let from = start; from < end; from++) bytes[to++] = chunk[from] as number
    }
    this.length = length
  }

  /** The memory, with space for `more` bytes after `length`. */
  room(more: number): Buffer {
    if (this.length + more > this.#bytes.length) this.#grow(this.length + more)
    return this.#bytes
  }

  /** All bytes, valid until the next one is added. */
  drain(): Buffer {
    const bytes = this.#bytes.subarray(0, this.length)
    this.clear()
    return bytes
  }

  /** Empties the buffer, and releases it if one long text has enlarged it. */
  clear(): void {
    this.length = 0
    if (this.#bytes.length > this.#keptBytes) this.#bytes = EMPTY
  }

  #grow(length: number): void {
    let size = Math.max(START_BYTES, this.#bytes.length)
    while (size < length) size *= 2
    const largerBuffer = Buffer.allocUnsafeSlow(size)
    this.#bytes.copy(largerBuffer, 0, 0, this.length)
    this.#bytes = largerBuffer
  }
}

/**
 * Our frames, if they differ from the provider's. One buffer for all relays of the thread: frames are taken and sent
 * before others are added.
 */
const ownFrames = new ByteList(OWN_FRAMES_KEPT_BYTES)
