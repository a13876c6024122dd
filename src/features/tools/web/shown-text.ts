/**
 * Sanitizes text from pages and engines: removes control characters and characters that hide or reorder text, and
 * truncates it. The text stays data: no instruction in it is followed. Pure.
 */

/** Control and format characters (invisible, tag and bidirectional ones), except tab, line feed and the two joiners. */
const HIDDEN_CHARACTERS = /(?![\t\n\u200c\u200d])[\p{Cc}\p{Cf}]/gu

/** The text without hidden characters, lines ended by line feeds. */
export function visibleText(text: string): string {
  return text.toWellFormed().replace(/\r\n?/g, '\n').replace(HIDDEN_CHARACTERS, '')
}

/** Like `visibleText`, in one line of at most `maxChars`. */
export function visibleTitle(text: string, maxChars: number): string {
  return cutText(
    visibleText(text.slice(0, maxChars * 4))
      .replace(/\s+/g, ' ')
      .trim(),
    maxChars,
  )
}

/** Shortens to this many characters without splitting one. */
export function cutText(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text
  const code = text.charCodeAt(maxChars - 1)
  return text.slice(0, code >= 0xd800 && code <= 0xdbff ? maxChars - 1 : maxChars)
}
