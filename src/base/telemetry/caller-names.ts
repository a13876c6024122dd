/**
 * Names that callers supply: ids of their requests, and the names of client programs. Bounded and checked. Leaf. Pure.
 */

/** The form of request ids everywhere: no spaces, no quotes, nothing that a log or a header could misread. */
const REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9._:/+=@~-]{0,127}$/
/** Our keys, wherever a client has put one. */
const KEY = /sk-gw-/i
/** A product, perhaps with its language (`OpenAI/JS`), without versions and comments. */
const FAMILY = /^[A-Za-z@][\w.@-]{0,39}(?:\/[A-Za-z][\w.-]{0,23})?/

/** The id that a caller gives its request; undefined: none, or an unfit one. */
export function callerRequestId(text: string | undefined): string | undefined {
  return text !== undefined && REQUEST_ID.test(text) && !KEY.test(text) ? text : undefined
}

/** The program that asks, e.g. `claude-cli` of `claude-cli/2.1 (external)`; undefined: it does not say. */
export function userAgentFamily(text: string | undefined): string | undefined {
  if (text === undefined) return undefined
  const family = FAMILY.exec(text)?.[0]
  return family === undefined || KEY.test(family) ? undefined : family
}
