/**
 * The "prompt is too long" error in the wording that clients of this API recognize: they then shorten the conversation
 * and retry. Pure.
 */

/** The words of the API itself. The second form is about `max_tokens`, and clients read its numbers. */
const OWN_WORDS = /prompt is too long: \d+ tokens > \d+ maximum|exceed context limit: \d+ \+ \d+ > \d+/
/** A number behind words for a limit. */
const LIMIT =
  /(?:(?:context|prompt|model|input) (?:length|window|size)|limit|maximum|allowed|less than|max input tokens|model with)(?: is| of)?(?: only)?:? ?\(?(\d{3,9})\b/i
const NUMBER = /\b\d{3,9}\b/g
/** Clients that find no numbers act upon this. */
const REJECTED = 'capability_rejected: prompt_too_long'
/** The numbers are at the beginning. */
const LOOKED_AT_CHARS = 2_000

/** `words`: those of a provider or of the gateway. */
export function tooLongMessage(words: string): string {
  if (OWN_WORDS.test(words)) return words
  const text = words.slice(0, LOOKED_AT_CHARS)
  const most = LIMIT.exec(text)?.[1]
  const tokens = text.match(NUMBER)?.find(number => Number(number) > Number(most))
  if (most !== undefined && tokens !== undefined)
    return `prompt is too long: ${tokens} tokens > ${most} maximum`
  return `prompt is too long: ${words} (${REJECTED})`
}
