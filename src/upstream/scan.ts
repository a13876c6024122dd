/**
 * Byte pattern of one kind of delta frame: all bytes but the number, the piece of text and the padding are the same
 * from frame to frame. A match proves, without decoding, that the frame is complete, valid, and equal to the learned
 * one but for the text. Pure. Hot path: `match` runs per delta and allocates nothing.
 */
const SPACE = 32
const QUOTE = 34
const BACKSLASH = 92
const LOWER_U = 117
const DIGIT_0 = 48
const DIGIT_9 = 57

/** The parts that change from frame to frame: `sequence_number`, the piece of text, and meaningless padding. */
type Slot = 'number' | 'delta' | 'padding'

const SLOTS: ReadonlyMap<string, Slot> = new Map([
  ['sequence_number', 'number'],
  ['delta', 'delta'],
  ['obfuscation', 'padding'],
])

/** `\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`; `\u` takes four more characters. */
const ESCAPES: ReadonlySet<number> = new Set(Array.from('"\\/bfnrt', letter => letter.charCodeAt(0)))

/**
 * One member of a flat object, and the character after it. Only blanks may stand between: a line end in the data would
 * be a second data line in the bytes.
 */
const MEMBER =
  /[ \t]*"([^"\\]*)"[ \t]*:[ \t]*("[^"\\]*(?:\\.[^"\\]*)*"|0|[1-9][0-9]{0,14}|\[[ \t]*\])[ \t]*([,}])/y
/** Longest frame that is learned. Deltas are short; longer frames are decoded. */
const LEARNED_MAX_CHARACTERS = 4096

/** One member of the frame that a pattern was learned from. */
export interface FrameMember {
  readonly key: string
  /** A string, a number, or an empty list. */
  readonly value: unknown
  /** True for padding, which only hides the length of the text. */
  readonly isPadding: boolean
}

/** The result of learning from a frame: the pattern of its kind, and its own members. */
export interface Lesson {
  readonly pattern: FramePattern
  /** In their order. */
  readonly members: readonly FrameMember[]
  readonly number: number
}

/** The pattern of one kind of frame. */
export class FramePattern {
  /** Name in the event line. */
  readonly event: string
  /** The bytes between the slots; the first piece begins the frame, the last ends with its blank line. */
  readonly #fixed: readonly Uint8Array[]
  readonly #slots: readonly Slot[]
  /** Place of the text in the last matching frame, without quotes. */
  deltaStart = 0
  deltaEnd = 0
  /** Place of its number. */
  numberStart = 0
  numberEnd = 0

  private constructor(event: string, fixed: readonly Uint8Array[], slots: readonly Slot[]) {
    this.event = event
    this.#fixed = fixed
    this.#slots = slots
  }

  /**
   * Learns the pattern of a frame that was decoded successfully; null if its shape is not that simple.
   * `event` is its event line, `data` its one data line.
   */
  static learn(event: string, data: string): Lesson | null {
    if (data.length > LEARNED_MAX_CHARACTERS || !data.startsWith('{')) return null
    const members: FrameMember[] = []
    const slots: Slot[] = []
    const fixed: Uint8Array[] = []
    let text = `event: ${event}\ndata: `
    let from = 0
    let next: string | undefined
    MEMBER.lastIndex = 1
    while (next !== '}') {
      const found = MEMBER.exec(data)
      if (found === null) return null
      const [whole, key = '', raw = ''] = found
      next = found[3]
      const value: unknown = JSON.parse(raw)
      if (members.some(member => member.key === key)) return null
      const slot = SLOTS.get(key)
      members.push({ key, value, isPadding: slot === 'padding' })
      if (slot === undefined) continue
      if (typeof value !== (slot === 'number' ? 'number' : 'string')) return null
      const quote = slot === 'number' ? 0 : 1
      const start = found.index + whole.lastIndexOf(raw) + quote
      fixed.push(Buffer.from(text + data.slice(from, start)))
      slots.push(slot)
      text = ''
      from = start + raw.length - 2 * quote
    }
    if (MEMBER.lastIndex !== data.length || !slots.includes('number') || !slots.includes('delta')) return null
    fixed.push(Buffer.from(`${data.slice(from)}\n\n`))
    // Copied to their exact length, because a list that grew keeps spare room for the life of its stream.
    const pattern = new FramePattern(event, fixed.slice(), slots.slice())
    const number = Number(members.find(member => member.key === 'sequence_number')?.value)
    return { pattern, members, number }
  }

  /** The data of such a frame with `delta` as its text, in JSON without the quotes. */
  tell(delta: string): string {
    let frame = ''
    this.#fixed.forEach((piece, index) => {
      const slot = this.#slots[index]
      frame += Buffer.from(piece).toString()
      if (slot === 'number') frame += '0'
      else if (slot === 'delta') frame += delta
    })
    return frame.slice(`event: ${this.event}\ndata: `.length, -2)
  }

  /** The end of the frame at `at`, if it is complete, of this kind and numbered `sequence`; else -1. */
  match(bytes: Buffer, at: number, sequence: number): number {
    const fixed = this.#fixed
    const slots = this.#slots
    let end = at
    for (let index = 0; index < fixed.length; index++) {
      const piece = fixed[index] as Uint8Array
      if (end + piece.length > bytes.length) return -1
      for (let offset = 0; offset < piece.length; offset++) {
        if (bytes[end + offset] !== piece[offset]) return -1
      }
      end += piece.length
      const slot = slots[index]
      if (slot === undefined) break
      const start = end
      end = slot === 'number' ? numberEnd(bytes, start, sequence) : stringEnd(bytes, start)
      if (end === -1) return -1
      if (slot === 'delta') {
        this.deltaStart = start
        this.deltaEnd = end
      } else if (slot === 'number') {
        this.numberStart = start
        this.numberEnd = end
      }
    }
    return end
  }
}

/** The end of the digits at `at`, if they are the expected number; else -1. */
function numberEnd(bytes: Buffer, at: number, expected: number): number {
  let value = 0
  let end = at
  for (;;) {
    const byte = bytes[end] ?? 0
    if (byte < DIGIT_0 || byte > DIGIT_9) break
    // JSON allows no leading zero; more digits than a safe number has are never ours.
    if ((value === 0 && end > at) || end - at > 15) return -1
    value = value * 10 + byte - DIGIT_0
    end++
  }
  return end > at && value === expected ? end : -1
}

/**
 * The place of the quote that closes the JSON string whose content begins at `at`; -1 if the string is invalid, cut or
 * no UTF-8.
 */
function stringEnd(bytes: Buffer, at: number): number {
  const { length } = bytes
  for (let end = at; end < length; end++) {
    const byte = bytes[end] as number
    if (byte === QUOTE) return end
    if (byte < SPACE) return -1
    if (byte > 127) {
      const more = continuation(byte, bytes[end + 1] ?? 0)
      if (more === 0) return -1
      for (let offset = 2; offset <= more; offset++) if (!isContinuing(bytes[end + offset] ?? 0)) return -1
      end += more
    } else if (byte === BACKSLASH) {
      end++
      const escaped = bytes[end] ?? 0
      if (escaped === LOWER_U) {
        for (let digit = 1; digit <= 4; digit++) if (!isHex(bytes[end + digit] ?? 0)) return -1
        end += 4
      } else if (!ESCAPES.has(escaped)) return -1
    }
  }
  return -1
}

/** Number of bytes after the first of a character, from its first two; 0 if they begin none (RFC 3629). */
function continuation(first: number, second: number): number {
  if (!isContinuing(second)) return 0
  if (first >= 0xc2 && first <= 0xdf) return 1
  // Excludes overlong forms, surrogates, and codes beyond the last character.
  if (first === 0xe0) return second >= 0xa0 ? 2 : 0
  if (first === 0xed) return second <= 0x9f ? 2 : 0
  if (first >= 0xe1 && first <= 0xef) return 2
  if (first === 0xf0) return second >= 0x90 ? 3 : 0
  if (first === 0xf4) return second <= 0x8f ? 3 : 0
  return first >= 0xf1 && first <= 0xf3 ? 3 : 0
}

function isContinuing(byte: number): boolean {
  return (byte & 0xc0) === 0x80
}

function isHex(byte: number): boolean {
  const lower = byte | 32
  return (byte >= DIGIT_0 && byte <= DIGIT_9) || (lower >= 97 && lower <= 102)
}
