/**
 * Learned patterns of delta frames: the pieces that stay the same from frame to frame, and the slots between them. A
 * match proves, without decoding the frame, that it is complete and valid, and that it differs from the previous frame
 * only in its piece of text. Pure. Hot path: `match` runs per delta and creates no objects.
 */
const SPACE = 32
const QUOTE = 34
const BACKSLASH = 92
const LOWER_U = 117
const DIGIT_0 = 48
const DIGIT_9 = 57

/** `\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`; `\u` takes four more characters. */
const ESCAPES: ReadonlySet<number> = new Set(Array.from('"\\/bfnrt', letter => letter.charCodeAt(0)))

/**
 * A part that may change from frame to frame: the event number, the piece of text, a copy of that piece, padding
 * without content, or blanks before the last brace, of which there may be none.
 */
export type FrameSlot = 'number' | 'delta' | 'copy' | 'padding' | 'blank'

/** A string (without its quotes) or a literal in a JSON text. */
export interface JsonSpan {
  readonly start: number
  readonly end: number
  readonly isString: boolean
}

interface SlotSpan extends JsonSpan {
  readonly slot: FrameSlot
}

/** Deltas are short; nothing is learned from a longer frame. */
const LEARNED_MAX_CHARACTERS = 4096

const BLANK = /[ \t]*/y
const STRING = /"(?:[^"\\]|\\.)*"/y
const LITERAL = /[^ \t,\]}]+/y

/**
 * The strings and literals of a JSON object by path, such as `choices.0.delta.content`, in order. Null if the text is
 * not a JSON object, is long, has several lines, or has a key twice.
 */
export function spansIn(json: string): ReadonlyMap<string, JsonSpan> | null {
  if (json.length > LEARNED_MAX_CHARACTERS || !json.startsWith('{') || /[\r\n]/.test(json)) return null
  if (!isJson(json)) return null
  const spans = new Map<string, JsonSpan>()
  return new JsonSpans(json, spans).read() ? spans : null
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

class JsonSpans {
  readonly #json: string
  readonly #spans: Map<string, JsonSpan>
  #index = 0

  constructor(json: string, spans: Map<string, JsonSpan>) {
    this.#json = json
    this.#spans = spans
  }

  /** False if a key occurs twice or cannot be compared. */
  read(): boolean {
    return this.#value('') && this.#index === this.#json.length
  }

  #value(path: string): boolean {
    this.#skip(BLANK)
    const firstChar = this.#json[this.#index]
    if (firstChar === '{' || firstChar === '[') return this.#members(path, firstChar === '{')
    const start = this.#index
    const isString = firstChar === '"'
    this.#skip(isString ? STRING : LITERAL)
    if (this.#index === start) return false
    const quote = isString ? 1 : 0
    this.#spans.set(path, { start: start + quote, end: this.#index - quote, isString })
    return true
  }

  #members(path: string, isObject: boolean): boolean {
    const keys = new Set<string>()
    for (;;) {
      this.#index++
      this.#skip(BLANK)
      if (this.#json[this.#index] === (isObject ? '}' : ']')) break
      let key = String(keys.size)
      if (isObject) {
        const start = this.#index
        this.#skip(STRING)
        key = this.#json.slice(start + 1, this.#index - 1)
        this.#skip(BLANK)
        if (this.#json[this.#index] !== ':' || /[.\\]/.test(key)) return false
        this.#index++
      }
      if (keys.has(key)) return false
      keys.add(key)
      if (!this.#value(path === '' ? key : `${path}.${key}`)) return false
      this.#skip(BLANK)
      if (this.#json[this.#index] !== ',') break
    }
    if (this.#json[this.#index] !== (isObject ? '}' : ']')) return false
    this.#index++
    return true
  }

  #skip(token: RegExp): void {
    token.lastIndex = this.#index
    if (token.test(this.#json)) this.#index = token.lastIndex
  }
}

/** The pattern of one kind of frame. */
export class FramePattern {
  /** Name in the event line; empty if there is none. */
  readonly event: string
  /** The bytes between the slots; the first piece begins the frame, the last one ends with its blank line. */
  readonly #fixed: FramePieces
  readonly #slots: readonly FrameSlot[]
  readonly #takesEmpty: boolean
  /** Position of the text in the last matching frame, without quotes. */
  deltaStart = 0
  deltaEnd = 0

  /** `slots`: spans of `data`, in order; one of them is the delta. `takesEmpty`: frames with an empty text match. */
  constructor(event: string, data: string, slots: readonly SlotSpan[], takesEmpty: boolean) {
    this.event = event
    this.#takesEmpty = takesEmpty
    const head = headOf(event)
    this.#fixed = piecesOf(`${head}${data}\n\n`, slots, head.length)
    this.#slots = slots.map(({ slot }) => slot)
  }

  /** The data of a frame of this kind with `delta` as its text, in JSON without the quotes. */
  frameWith(delta: string): string {
    let frame = ''
    textsOf(this.#fixed).forEach((piece, index) => {
      const slot = this.#slots[index]
      frame += piece
      if (slot === 'number') frame += '0'
      else if (slot === 'delta' || slot === 'copy') frame += delta
    })
    return frame.slice(headOf(this.event).length, -2)
  }

  /** The JSON text between the quotes of the delta; null if the frame is not of this kind. */
  deltaOf(event: string, data: string, sequence: number): string | null {
    const frame = Buffer.from(`${headOf(event)}${data}\n\n`)
    if (this.match(frame, 0, sequence) !== frame.length) return null
    return frame.toString('utf8', this.deltaStart, this.deltaEnd)
  }

  /** The end of the frame at `frameStart`, if it is complete, of this kind and numbered `sequence`; otherwise -1. */
  match(bytes: Buffer, frameStart: number, sequence: number): number {
    const { bytes: fixed, start: fixedStart, ends } = this.#fixed
    const slots = this.#slots
    let end = frameStart
    let fixedIndex = fixedStart
    for (let index = 0; index < ends.length; index++) {
      const pieceEnd = ends[index] as number
      if (end + pieceEnd - fixedIndex > bytes.length) return -1
      for (; fixedIndex < pieceEnd; fixedIndex++, end++) if (bytes[end] !== fixed[fixedIndex]) return -1
      const slot = slots[index]
      if (slot === undefined) break
      const start = end
      if (slot === 'copy') end = this.#copyEnd(bytes, start)
      else if (slot === 'blank') end = blanksEnd(bytes, start)
      else end = slot === 'number' ? numberEnd(bytes, start, sequence) : stringEnd(bytes, start)
      if (end === -1) return -1
      if (slot === 'delta') {
        if (end === start && !this.#takesEmpty) return -1
        this.deltaStart = start
        this.deltaEnd = end
      }
    }
    return end
  }

  /** The end of the bytes at `start`, if they repeat the delta; otherwise -1. */
  #copyEnd(bytes: Buffer, start: number): number {
    const length = this.deltaEnd - this.deltaStart
    for (let offset = 0; offset < length; offset++) {
      if (bytes[start + offset] !== bytes[this.deltaStart + offset]) return -1
    }
    return start + length
  }
}

/** The bytes of a frame between its slots, one piece after the other from `start`, and the end of each piece. */
export interface FramePieces {
  /** May contain other frames as well. */
  readonly bytes: Buffer
  readonly start: number
  readonly ends: readonly number[]
}

/**
 * Frames of several streams share this much memory, because allocating it costs more than filling it. An open stream
 * may keep all of it alive: Node's own pool would be too large.
 */
const SHARED_BYTES = 2048
/** A longer frame gets its own memory. */
const SHARING_MAX_BYTES = 512
let sharedBuffer = Buffer.allocUnsafeSlow(SHARED_BYTES)
let sharedEnd = 0

/** `textStart`: the index at which the text begins; the positions of the slots are relative to it. */
export function piecesOf(frame: string, slots: readonly JsonSpan[], textStart: number): FramePieces {
  const frameBytes = Buffer.byteLength(frame)
  if (frameBytes > SHARING_MAX_BYTES)
    return pieceBytes(Buffer.allocUnsafeSlow(frameBytes), 0, frame, slots, textStart)
  if (sharedEnd + frameBytes > SHARED_BYTES) {
    sharedBuffer = Buffer.allocUnsafeSlow(SHARED_BYTES)
    sharedEnd = 0
  }
  const pieces = pieceBytes(sharedBuffer, sharedEnd, frame, slots, textStart)
  sharedEnd = pieces.ends.at(-1) ?? sharedEnd
  return pieces
}

function pieceBytes(
  bytes: Buffer,
  start: number,
  frame: string,
  slots: readonly JsonSpan[],
  textStart: number,
): FramePieces {
  let textIndex = 0
  let end = start
  const ends = slots.map(slot => {
    end += bytes.write(frame.slice(textIndex, textStart + slot.start), end)
    textIndex = textStart + slot.end
    return end
  })
  const lastEnd = end + bytes.write(frame.slice(textIndex), end)
  // Spreading the list would reserve memory for more entries.
  return { bytes, start, ends: ends.concat(lastEnd) }
}

export function textsOf({ bytes, start, ends }: FramePieces): readonly string[] {
  return ends.map((end, index) => bytes.toString('utf8', ends[index - 1] ?? start, end))
}

/** A frame up to the beginning of its data. */
function headOf(event: string): string {
  return event === '' ? 'data: ' : `event: ${event}\ndata: `
}

/** The end of the blanks at `start`. */
function blanksEnd(bytes: Buffer, start: number): number {
  let end = start
  while (bytes[end] === SPACE) end++
  return end
}

/** The end of the digits at `start`, if they are the expected number; otherwise -1. */
function numberEnd(bytes: Buffer, start: number, expected: number): number {
  let value = 0
  let end = start
  for (;;) {
    const byte = bytes[end] ?? 0
    if (byte < DIGIT_0 || byte > DIGIT_9) break
    // JSON allows no leading zeros; the gateway's numbers never have more digits than a safe integer.
    if ((value === 0 && end > start) || end - start > 15) return -1
    value = value * 10 + byte - DIGIT_0
    end++
  }
  return end > start && value === expected ? end : -1
}

/**
 * The position of the quote that closes the JSON string whose content begins at `start`; -1 if the string is invalid,
 * cut off or not UTF-8.
 */
function stringEnd(bytes: Buffer, start: number): number {
  const { length } = bytes
  for (let end = start; end < length; end++) {
    const byte = bytes[end] as number
    if (byte === QUOTE) return end
    if (byte < SPACE) return -1
    if (byte > 127) {
      const continuationBytes = continuation(byte, bytes[end + 1] ?? 0)
      if (continuationBytes === 0) return -1
      for (let offset = 2; offset <= continuationBytes; offset++)
        if (!isContinuing(bytes[end + offset] ?? 0)) return -1
      end += continuationBytes
    } else if (byte === BACKSLASH) {
      end++
      const escapeByte = bytes[end] ?? 0
      if (escapeByte === LOWER_U) {
        for (let digit = 1; digit <= 4; digit++) if (!isHex(bytes[end + digit] ?? 0)) return -1
        end += 4
      } else if (!ESCAPES.has(escapeByte)) return -1
    }
  }
  return -1
}

/**
 * Number of bytes of a character after its first, from its first two; 0 if they do not begin a character (RFC 3629).
 */
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
