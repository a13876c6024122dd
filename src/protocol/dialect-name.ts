/** The names of the dialects: how clients speak. Pure. */

export const DIALECT_NAMES = ['responses', 'chat-completions', 'messages', 'embeddings'] as const
export type DialectName = (typeof DIALECT_NAMES)[number]
