/**
 * Scans a text that arrives in pieces, and releases the parts that have been scanned. Pure. Hot path of guarded
 * streams.
 *
 * Windows begin at fixed positions in the text, counted in UTF-8 bytes from its start, so the result does not depend on
 * the pieces. Window n holds bytes [n·s, n·s + w), with s = w − overlap: once it is full, everything that starts in its
 * first s bytes is decided and released. Findings of at most `overlap` bytes are the same as in the whole text; longer
 * ones are found up to the end of the window in which they start, and private keys up to their end.
 */
import { CONTEXT_CHARS, type Finding } from './detector.ts'
import type { Continuation, Progress, Scanner } from './scanner.ts'

export interface WindowSize {
  /** UTF-8 bytes: maximum held back. */
  readonly windowBytes: number
  /** Less than `windowBytes`. */
  readonly overlapBytes: number
}

/**
 * A window to scan, with the context before it: for findings that start in [from, until) of `text`. The first window of
 * a text that follows another text is scanned from the end of that text on, for findings that cross into it.
 */
export interface Window {
  readonly text: string
  /** Units of the whole text before `text`; negative if `text` begins with the end of another text. */
  readonly base: number
  readonly from: number
  readonly until: number
}

/** The result of Scanner.scanPiece for a window, with positions in the whole text. */
export interface WindowFindings {
  readonly findings: readonly Finding[]
  readonly continued: readonly Continuation[]
}

const NOT_ASCII = /[\u0080-\uffff]/

export class TextWindow {
  readonly #scanner: Scanner
  readonly #windowBytes: number
  readonly #strideBytes: number
  readonly #progress: Progress
  readonly #findings: Finding[] = []
  /** The end of the released text: context for detectors. */
  #context = ''
  /** The held text. It begins at `#base`, in units of the whole text. */
  #held = ''
  #heldBytes = 0
  #base = 0
  /** A redaction covers the text up to here, in units of the whole text. */
  #coveredTo = 0
  /** Ranges of redactions that continued from one window into the next. */
  readonly #continued: { readonly start: number; readonly end: number }[] = []
  #isBlocked = false
  #isFinished = false

  /**
   * `before`: the text that was read directly before this one.
   * @throws RangeError if the overlap is not smaller than the window
   */
  constructor(scanner: Scanner, { windowBytes, overlapBytes }: WindowSize, before = '') {
    if (!(overlapBytes >= 0 && overlapBytes < windowBytes)) {
      throw new RangeError('overlapBytes must be less than windowBytes')
    }
    this.#scanner = scanner
    this.#windowBytes = windowBytes
    this.#strideBytes = windowBytes - overlapBytes
    this.#progress = scanner.begin()
    const context = before.slice(-CONTEXT_CHARS)
    // Otherwise an address at the end of the context would take in the first word of this text.
    this.#context = scanner.endsWithFinding(context) ? '' : context
  }

  /** The findings in released text, in order. */
  get findings(): readonly Finding[] {
    return this.#findings
  }

  /** True if a finding blocks; nothing more is then released. */
  get isBlocked(): boolean {
    return this.#isBlocked
  }

  /** The end of the released text, and of the text before it, as it was before redactions. */
  get tail(): string {
    return this.#context
  }

  /** Units of the whole text that were released or redacted. */
  get releasedUnits(): number {
    return this.#base
  }

  /** Units of the whole text that were added. */
  get length(): number {
    return this.#base + this.#held.length
  }

  /** True if a redaction covers part of this range of released text. */
  covers(start: number, end: number): boolean {
    const overlaps = (range: { readonly start: number; readonly end: number }) =>
      range.start < end && start < range.end
    return (
      this.#continued.some(overlaps) ||
      this.#findings.some(finding => finding.action === 'redact' && overlaps(finding))
    )
  }

  /** UTF-8 bytes currently held. */
  get heldBytes(): number {
    return this.#isBlocked ? 0 : this.#heldBytes
  }

  /** Adds the next piece; returns the redacted text that may be sent now, which is often empty. */
  push(piece: string): string {
    this.add(piece)
    return this.#releaseScanned()
  }

  /** Ends the text; returns the rest of it, redacted. */
  end(): string {
    this.finish()
    return this.#releaseScanned()
  }

  /** Adds the next piece without a scan. The caller scans: it calls `next` and `release` in turns. */
  add(piece: string): void {
    if (this.#isBlocked) return
    this.#held += piece
    this.#heldBytes += bytesOf(piece)
  }

  /** Ends the text: the last window need not be full. */
  finish(): void {
    this.#isFinished = true
  }

  /** The next window to scan; null if none is full. */
  next(): Window | null {
    if (this.#isBlocked || this.#held === '') return null
    if (this.#heldBytes >= this.#windowBytes) {
      const isAscii = this.#heldBytes === this.#held.length
      const window = this.#held.slice(0, unitsWithin(this.#held, this.#windowBytes, isAscii))
      // A step takes at least one character, even if that has more bytes.
      const step = Math.max(unitsWithin(window, this.#strideBytes, isAscii), unitsOfFirst(window))
      // The second half of a surrogate pair may still come.
      const isCut = step >= this.#held.length && step === window.length && isHalf(window)
      if (!isCut) return this.#windowOf(window, step)
    }
    return this.#isFinished ? this.#windowOf(this.#held, this.#held.length) : null
  }

  #windowOf(window: string, step: number): Window {
    const contextLength = this.#context.length
    const from = this.#base === 0 ? 0 : contextLength
    return {
      text: this.#context + window,
      base: this.#base - contextLength,
      from,
      until: contextLength + step,
    }
  }

  #releaseScanned(): string {
    let released = ''
    for (let window = this.next(); window !== null; window = this.next()) {
      const { text, base, from, until } = window
      released += this.release(window, this.#scanner.scanPiece(text, base, from, until, this.#progress))
    }
    return released
  }

  /** Releases the part of the window that its scan has decided, redacted. */
  release(window: Window, { findings, continued }: WindowFindings): string {
    const step = window.base + window.until - this.#base
    let coveredTo = this.#coveredTo
    for (const { lane, end } of continued) if (lane.action === 'redact') coveredTo = Math.max(coveredTo, end)
    if (coveredTo > this.#coveredTo) this.#continued.push({ start: this.#base, end: coveredTo })
    for (const finding of findings) {
      this.#findings.push(finding.start < 0 ? { ...finding, start: 0 } : finding)
      if (finding.action === 'block') this.#isBlocked = true
    }
    if (this.#isBlocked) {
      this.#held = this.#context = ''
      return ''
    }
    const stop = this.#base + step
    let copiedTo = this.#base
    let redacted = ''
    const skipCovered = (): void => {
      copiedTo = Math.min(stop, Math.max(copiedTo, coveredTo))
    }
    skipCovered()
    for (const { action, start: findingStart, end, replacement } of findings) {
      if (action !== 'redact') continue
      // A finding may begin in the text before this one, which was already sent.
      const start = Math.max(0, findingStart)
      if (start >= coveredTo) {
        redacted += this.#held.slice(copiedTo - this.#base, start - this.#base) + replacement
        copiedTo = start
      }
      coveredTo = Math.max(coveredTo, end)
      skipCovered()
    }
    redacted += this.#held.slice(copiedTo - this.#base, step)
    this.#coveredTo = coveredTo
    const released = this.#held.slice(0, step)
    this.#context = (this.#context + released).slice(-CONTEXT_CHARS)
    this.#held = this.#held.slice(step)
    this.#heldBytes -= bytesOf(released)
    this.#base = stop
    return redacted
  }
}

/** UTF-8 bytes of one UTF-16 unit. Each half of a pair counts two, so that a cut between them changes nothing. */
const unitBytes = (code: number): number =>
  code < 0x80 ? 1 : code < 0x800 || (code >= 0xd800 && code <= 0xdfff) ? 2 : 3

function bytesOf(text: string): number {
  if (!NOT_ASCII.test(text)) return text.length
  let bytes = 0
  for (let index = 0; index < text.length; index++) bytes += unitBytes(text.charCodeAt(index))
  return bytes
}

/** The number of units of the text that fit into this many bytes, without splitting a character. */
function unitsWithin(text: string, bytes: number, isAscii: boolean): number {
  if (isAscii) return Math.min(bytes, text.length)
  let usedBytes = 0
  let index = 0
  while (index < text.length) {
    usedBytes += unitBytes(text.charCodeAt(index))
    if (usedBytes > bytes) break
    index++
  }
  return index > 0 && index < text.length && isHigh(text.charCodeAt(index - 1)) ? index - 1 : index
}

const isHigh = (code: number): boolean => code >= 0xd800 && code <= 0xdbff
const isHalf = (text: string): boolean => isHigh(text.charCodeAt(text.length - 1))
const unitsOfFirst = (text: string): number => (isHigh(text.charCodeAt(0)) && text.length > 1 ? 2 : 1)
