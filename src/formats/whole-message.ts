/**
 * Messages in whole replies: emitted in one piece if they have a single text and nothing else. The text is passed on in
 * the provider's bytes if the gateway would write the same bytes. Pure. Hot path.
 */
import type { MessageItem } from '../protocol/items.ts'

/** A message with one text and nothing else. */
export interface WholeMessage {
  /** The id of the message at the provider; null: the provider gave none that a later turn could use. */
  readonly id: string | null
  readonly phase: string | null
  readonly status: MessageItem['status']
  readonly text: string
  /** The text as JSON, with its quotes, as the reply has it; null: it must be serialised. */
  readonly json: string | null
}

/** Takes a message in place of the deltas that say the same. */
export type TakeMessage = (message: WholeMessage) => void

/** A shorter text is written faster than it is found. */
const SEARCHED_MIN_CHARS = 256

const QUOTE = 34
const BACKSLASH = 92
const [SPACE, TAB, LF, CR] = [32, 9, 10, 13]

/**
 * Finds a text in the document that it was parsed from, as the value of a member of this name. Null if the text is too
 * short to search for, or if the document spells it differently from `JSON.stringify`. The document must be valid.
 */
export function jsonOf(text: string, document: string, name: 'text' | 'content'): string | null {
  if (text.length < SEARCHED_MIN_CHARS) return null
  const key = `"${name}":`
  for (let start = document.indexOf(key); start !== -1; start = document.indexOf(key, start + key.length)) {
    // Behind a backslash it is the end of another name.
    if (document.charCodeAt(start - 1) === BACKSLASH) continue
    let quote = start + key.length
    if (document.charCodeAt(quote) !== QUOTE) quote = afterBlanks(document, quote)
    if (document.charCodeAt(quote) !== QUOTE) continue
    const end = closingQuote(document, quote + 1)
    const json = document.slice(quote, end + 1)
    if (json.includes('\\') ? isAsWritten(json, text) : isSame(json, text)) return json
  }
  return null
}

/** Without escapes the text is between the quotes. Equality compares blocks, `startsWith` single characters. */
function isSame(json: string, text: string): boolean {
  return json.length === text.length + 2 && json.slice(1, -1) === text
}

/** Escapes that `JSON.stringify` does not write, or only some of them. */
const OTHER_ESCAPE = /\\[u/]/

function isAsWritten(json: string, text: string): boolean {
  return !OTHER_ESCAPE.test(json) && JSON.parse(json) === text
}

function afterBlanks(document: string, start: number): number {
  for (let index = start; ; index++) {
    const code = document.charCodeAt(index)
    if (code !== SPACE && code !== LF && code !== CR && code !== TAB) return index
  }
}

/** The index of the quote that ends the string whose content begins at `start`. */
function closingQuote(document: string, start: number): number {
  for (let quote = document.indexOf('"', start); ; quote = document.indexOf('"', quote + 1)) {
    if (quote === -1) return document.length
    let index = quote
    while (document.charCodeAt(index - 1) === BACKSLASH) index--
    if ((quote - index) % 2 === 0) return quote
  }
}
