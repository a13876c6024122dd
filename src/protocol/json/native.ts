/**
 * Request data that only the client's own API can express. Pure. If client and provider use the same API, it passes
 * through the gateway in both directions, and no other format or dialect sees it:
 * - in a request, it is the `native` field of a content part, an item or a tool. Guardrails read it like any other
 *   field. The provider's format merges it over its encoding of the rest; with a `type`, it replaces that encoding.
 *   Other formats never get it (formats/outgoing.ts);
 * - in an answer, it is the symbol NATIVE of an item, an annotation or the usage. It is a symbol so that other dialects
 *   do not write it, and so that it disappears if a guardrail rewrites the fields next to it.
 */
type Native = Readonly<Record<string, unknown>>

const NATIVE = Symbol('native')

/** In the usage of an answer, as counted by Google: input tokens from prompts of the provider's tools. */
export const TOOL_PROMPT_FIELD = 'toolUsePromptTokenCount'

/** Adds the provider's own fields to the object. */
export function withNative<Fields extends object>(fields: Fields, native: Native): Fields {
  return Object.assign(fields, { [NATIVE]: native })
}

/** The provider's own fields; null if there are none. */
export function nativeOf(fields: object): Native | null {
  return (fields as { readonly [NATIVE]?: Native })[NATIVE] ?? null
}
