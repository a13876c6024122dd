/**
 * Joins adjacent texts of a request, because a finding may be split across two message parts, across instructions and
 * input, or across two messages. Only findings that cross from one text into the next count here; each text is also
 * scanned by itself, which covers findings within one text. Pure.
 */
import { type Author, CONTEXT_CHARS, type Finding } from '../detector.ts'
import type { RequestText } from './request-texts.ts'

/** A stretch of one text within a joined one. */
interface Stretch {
  /** Index of the text. */
  readonly index: number
  /** Its position in the text. */
  readonly start: number
  /** Its position in the joined text. */
  readonly position: number
  readonly length: number
}

export interface JoinedText {
  readonly text: string
  readonly who: Author
  readonly stretches: readonly Stretch[]
}

/**
 * The texts around each border between two texts: CONTEXT_CHARS of each, or all of it. An empty text was scanned
 * before, and nothing is joined across it.
 */
export function joinedTexts(texts: readonly RequestText[]): readonly JoinedText[] {
  const joined: JoinedText[] = []
  let text = ''
  let who: Author = 'other'
  let stretches: Stretch[] = []
  const add = (index: number, start: number, part: string): void => {
    stretches.push({ index, start, position: text.length, length: part.length })
    text += part
    if (texts[index]?.who === 'user') who = 'user'
  }
  const finish = (): void => {
    if (stretches.length > 1) joined.push({ text, who, stretches })
    text = ''
    who = 'other'
    stretches = []
  }
  for (const index of inReadingOrder(texts)) {
    const content = texts[index]?.text ?? ''
    if (content === '') finish()
    else if (content.length <= 2 * CONTEXT_CHARS) add(index, 0, content)
    else {
      add(index, 0, content.slice(0, CONTEXT_CHARS))
      finish()
      const start = content.length - CONTEXT_CHARS
      add(index, start, content.slice(start))
    }
  }
  finish()
  return joined
}

/** Instructions come first, wherever they are in the body. */
function inReadingOrder(texts: readonly RequestText[]): readonly number[] {
  const [first, later]: [number[], number[]] = [[], []]
  for (const [index, { order }] of texts.entries()) {
    if (order === 'first') first.push(index)
    else if (order === 'later') later.push(index)
  }
  return first.length + later.length < 2 ? [] : [...first, ...later]
}

/**
 * Adds the findings that cross from one text into another to the findings of both texts, each with its part. Findings
 * are sorted by start. Linear, because there may be as many findings as joined texts.
 */
export function withCrossing(
  findings: readonly (readonly Finding[])[],
  joined: readonly JoinedText[],
  crossing: readonly (readonly Finding[])[],
): readonly (readonly Finding[])[] {
  const additions = new Map<number, Finding[]>()
  for (const [number, { text, stretches }] of joined.entries()) {
    let first = 0
    for (const finding of crossing[number] ?? []) {
      while (endOf(stretches[first]) <= finding.start) first++
      const parts = partsOf(finding, stretches, first)
      if (parts.length < 2 || parts.some(part => hasOwnFinding(findings[part.index] ?? [], finding, part)))
        continue
      for (const [partIndex, { index, start, position, length }] of parts.entries()) {
        const part: Finding = {
          ...finding,
          start: start + Math.max(0, finding.start - position),
          end: start + Math.min(length, finding.end - position),
          // Only the first part has the replacement.
          replacement: partIndex === 0 ? finding.replacement : '',
          ...(partIndex === 0 ? { continuedText: text.slice(position + length, finding.end) } : undefined),
        }
        const list = additions.get(index)
        if (list === undefined) additions.set(index, [part])
        else list.push(part)
      }
    }
  }
  if (additions.size === 0) return findings
  const combined = [...findings]
  for (const [index, parts] of additions) {
    combined[index] = [...(combined[index] ?? []), ...parts].sort(
      (a, b) => a.start - b.start || b.end - a.end || a.rule - b.rule,
    )
  }
  return combined
}

function endOf(stretch: Stretch | undefined): number {
  return stretch === undefined ? Number.POSITIVE_INFINITY : stretch.position + stretch.length
}

/** The stretches that a finding touches, the first of which is at `first`. */
function partsOf({ end }: Finding, stretches: readonly Stretch[], first: number): readonly Stretch[] {
  let last = first
  for (let next = stretches[last]; next !== undefined && next.position < end; next = stretches[last]) last++
  return stretches.slice(first, last)
}

/**
 * True if the text of this stretch by itself contains what the finding found there. The finding then ends with its
 * text: an address at the end of one message and a word at the start of the next look like one longer address, but are
 * not.
 */
function hasOwnFinding(
  ownFindings: readonly Finding[],
  { rule, start, end }: Finding,
  { start: textStart, position }: Stretch,
): boolean {
  return ownFindings.some(
    ownFinding =>
      ownFinding.rule === rule &&
      ownFinding.start - textStart < end - position &&
      start - position < ownFinding.end - textStart,
  )
}
