/**
 * Names that callers send: ids of their requests, and the names of client programs. Bounded and checked. Leaf. Pure.
 */

/** The format of request ids: no spaces, no quotes, nothing that a log or a header could misread. */
const REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9._:/+=@~-]{0,127}$/
/** The gateway's keys, in case a client puts one here by mistake. */
const KEY = /sk-gw-/i
/** A product, perhaps with its language (`OpenAI/JS`), without versions and comments. */
const FAMILY = /^[A-Za-z@][\w.@-]{0,39}(?:\/[A-Za-z][\w.-]{0,23})?/

/** The id that a caller gives its request; undefined: none, or an invalid one. */
export function callerRequestId(text: string | undefined): string | undefined {
  return text !== undefined && REQUEST_ID.test(text) && !KEY.test(text) ? text : undefined
}

/** The client program, for example `claude-cli` for `claude-cli/2.1 (external)`; undefined: unknown. */
export function userAgentFamily(text: string): string | undefined {
  const family = FAMILY.exec(text)?.[0]
  return family === undefined || KEY.test(family) ? undefined : family
}
