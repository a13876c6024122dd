/**
 * The short way of a stream whose provider speaks as the client does: delta frames go on as the bytes they came in,
 * proven by a pattern (upstream/scan.ts) instead of decoded. Everything else, and every frame that does not match to
 * the byte, takes the general way through decoder and assembler. Hot path.
 *
 * A pattern is learned from a frame of which the general way has just made an event that says exactly the same; so
 * the output is the general way's by construction, but for padding. What the passed frames said is kept as the JSON
 * text it came in, and told to decoder and assembler in one piece before the next frame they see, or when the reply
 * ends in any way: items, repairs, failures and usage need no second implementation. Where the provider's numbers are
 * not ours, ours are put in their place.
 */
import type { StreamEvent } from '../../protocol/events.ts'
import { FramePattern, type Lesson } from '../../upstream/scan.ts'
import type { SseParser } from '../../upstream/sse.ts'
import type { Answer } from './answer.ts'

export interface RelayParts {
  readonly parser: SseParser
  readonly answer: Answer
  /** The general way of one frame. */
  readonly decode: (event: string, data: string) => void
}

/** Frames that may be learned from without one more being passed on; then the reply is left to the general way. */
const LESSONS = 32
/** What was passed on is told to the general way at the latest when it has grown to this. */
const UNTOLD_MAX_BYTES = 16 * 1024
const START_BYTES = 256
/** Up to this length a loop beats the native copy. */
const SHORT_BYTES = 32

const LF = 10
const EMPTY = Buffer.alloc(0)

export class Relay {
  readonly #parts: RelayParts
  #pattern: FramePattern | null = null
  #lessons = LESSONS
  #latest: StreamEvent | null = null
  /** How far the provider's numbers are ahead of ours: it sends events that are not passed on, or begins with 1. */
  #ahead = 0
  /** Frames that were passed on and not yet told, and what they said. */
  #passed = 0
  readonly #untold = new Gathering()
  /** Frames under our numbers, when the provider's are ahead. */
  readonly #renumbered = new Gathering()

  /** `decode` has to end in an event of the answer for each event it makes. */
  constructor(parts: RelayParts) {
    this.#parts = parts
    parts.answer.listen(event => {
      this.#latest = event
    })
  }

  /** Takes a read of the socket; the bytes are not kept. False: the reader is slow. */
  push(chunk: Buffer): boolean {
    const { length } = chunk
    let flowing = true
    let at = 0
    while (at < length) {
      if (this.#pattern !== null && this.#parts.parser.atBorder) {
        const before = this.#passed
        const end = this.#pass(chunk, at, this.#pattern)
        if (end > at) {
          this.#lessons = LESSONS
          flowing = this.#parts.answer.relay(this.#frames(chunk, at, end), this.#passed - before)
          if (this.#untold.length > UNTOLD_MAX_BYTES) this.settle()
          at = end
          continue
        }
      }
      at = this.#read(chunk, at)
    }
    return flowing
  }

  /** Takes the frames of the parser. */
  frame(event: string, data: string): void {
    this.settle()
    this.#pattern = null
    this.#latest = null
    this.#parts.decode(event, data)
    if (this.#lessons > 0) this.#learn(event, data)
  }

  /** Tells decoder and assembler what was passed on. To be called before anything else is asked of them. */
  settle(): void {
    const pattern = this.#pattern
    const passed = this.#passed
    if (pattern === null || passed === 0) return
    const data = pattern.tell(this.#untold.take().toString())
    this.#passed = 0
    this.#parts.answer.overheard(passed, () => this.#parts.decode(pattern.event, data))
  }

  /** The frames from `at` that need no decoding; returns where they end. */
  #pass(chunk: Buffer, at: number, pattern: FramePattern): number {
    const ours = this.#parts.answer.next
    let end = at
    while (end < chunk.length) {
      const number = ours + this.#passed
      const next = pattern.match(chunk, end, number + this.#ahead)
      if (next === -1) break
      if (this.#ahead !== 0) this.#renumber(chunk, end, next, pattern, number)
      this.#untold.add(chunk, pattern.deltaStart, pattern.deltaEnd)
      this.#passed++
      end = next
    }
    return end
  }

  /** What to send for the frames of this range. */
  #frames(chunk: Buffer, start: number, end: number): Buffer {
    if (this.#ahead === 0) return end - start === chunk.length ? chunk : chunk.subarray(start, end)
    return this.#renumbered.take()
  }

  #renumber(chunk: Buffer, start: number, end: number, pattern: FramePattern, number: number): void {
    this.#renumbered.add(chunk, start, pattern.numberStart)
    this.#renumbered.addNumber(number)
    this.#renumbered.add(chunk, pattern.numberEnd, end)
  }

  /** Decodes to the end of the frame, or all of it when nothing will be passed on; returns how far that was. */
  #read(chunk: Buffer, from: number): number {
    const { parser } = this.#parts
    const { length } = chunk
    let at = from
    do {
      const lineEnd = this.#lessons === 0 ? -1 : chunk.indexOf(LF, at)
      const end = lineEnd === -1 ? length : lineEnd + 1
      parser.push(end - at === length ? chunk : chunk.subarray(at, end))
      at = end
    } while (at < length && !parser.atBorder)
    return at
  }

  #learn(event: string, data: string): void {
    const latest = this.#latest
    if (latest === null || !latest.type.endsWith('.delta')) return
    const lesson = latest.type === event ? FramePattern.learn(event, data) : null
    this.#lessons--
    if (lesson === null || !saysTheSame(lesson, latest)) return
    this.#pattern = lesson.pattern
    this.#ahead = lesson.number - latest.sequence_number
    this.#latest = null
  }
}

/** Bytes that are gathered piece by piece, and taken all at once. */
class Gathering {
  #bytes: Buffer = EMPTY
  #length = 0

  get length(): number {
    return this.#length
  }

  add(chunk: Buffer, start: number, end: number): void {
    const length = this.#length + end - start
    if (length > this.#bytes.length) this.#grow(length)
    if (end - start > SHORT_BYTES) chunk.copy(this.#bytes, this.#length, start, end)
    else {
      const bytes = this.#bytes
      let to = this.#length
      for (let from = start; from < end; from++) bytes[to++] = chunk[from] as number
    }
    this.#length = length
  }

  addNumber(value: number): void {
    const digits = String(value)
    if (this.#length + digits.length > this.#bytes.length) this.#grow(this.#length + digits.length)
    this.#length += this.#bytes.write(digits, this.#length, 'latin1')
  }

  /** What was gathered, valid until more is. */
  take(): Buffer {
    const bytes = this.#bytes.subarray(0, this.#length)
    this.#length = 0
    return bytes
  }

  #grow(length: number): void {
    let size = Math.max(START_BYTES, this.#bytes.length)
    while (size < length) size *= 2
    const grown = Buffer.allocUnsafeSlow(size)
    this.#bytes.copy(grown, 0, 0, this.#length)
    this.#bytes = grown
  }
}

/** The event is the frame, but for padding and its number. */
function saysTheSame(frame: Lesson, event: StreamEvent): boolean {
  const said = frame.members.filter(member => !member.isPadding)
  return (
    said.length === Object.keys(event).length &&
    said.every(({ key, value }) => {
      const made: unknown = Object.hasOwn(event, key) ? Reflect.get(event, key) : undefined
      if (key === 'sequence_number') return true
      return Array.isArray(value) ? Array.isArray(made) && made.length === 0 : made === value
    })
  )
}
