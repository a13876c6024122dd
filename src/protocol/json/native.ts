/**
 * Request data that only the client's own API can express. Pure. In both directions it goes from one side of the
 * gateway to the other, where client and provider speak the same API, and nobody else sees it:
 * - of a request, the field `native` of a content part, an item or a tool. Guardrails read it like any other field. The
 *   provider's format merges it over what it makes of the rest; with a `type` it replaces that. All other formats never
 *   get it (formats/outgoing.ts);
 * - of an answer, the symbol NATIVE of an item, an annotation or its usage. A symbol, so that other dialects do not
 *   write it, and that it is gone where a guardrail has rewritten the fields beside it.
 */
export type Native = Readonly<Record<string, unknown>>

const NATIVE = Symbol('native')

/** In the usage of an answer, as Google counts it: the part of the input that was prompts of the provider's tools. */
export const TOOL_PROMPT = 'toolUsePromptTokenCount'

/** The object with this in the provider's own words. */
export function withNative<Fields extends object>(fields: Fields, native: Native): Fields {
  return Object.assign(fields, { [NATIVE]: native })
}

/** The provider's own words; null where they are not known. */
export function nativeOf(fields: object): Native | null {
  return (fields as { readonly [NATIVE]?: Native })[NATIVE] ?? null
}
