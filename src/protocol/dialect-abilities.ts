/**
 * Abilities of dialects: what the clients of each API can send, receive and request. Each difference between dialects
 * that matters outside `dialects/` is a column here. A row names the abilities of its dialect. Pure.
 */
import type { DialectName } from './request.ts'

interface DialectAbilities {
  /** True for embeddings requests, false for text. */
  readonly embeds: boolean
  /** Clients can continue to read its streams after a lost connection. */
  readonly resumes: boolean
  /** The last event of its streams contains the whole reply. */
  readonly endsWithReply: boolean
  /**
   * Its answers can contain the item of a server tool that waits for the client. Otherwise a call for the client is a
   * function call.
   */
  readonly openItems: boolean
  /** It can ask the client to approve a call. */
  readonly approvals: boolean
  /** Its answers can contain the patches of `apply_patch`. */
  readonly patches: boolean
  /** Its streams can report the progress of a server tool. */
  readonly toolProgress: boolean
  /** Its answers can contain the items of `shell` and `tool_search`. */
  readonly toolItems: boolean
  /** Subagents may call functions of the client. */
  readonly innerFunctions: boolean
  /** Tools may be deferred without a search tool: the client or the provider names those that it needs. */
  readonly bareDeferral: boolean
  /** Its requests may have the field `mcp_servers`. */
  readonly mcpServers: boolean
  /** It has fields of parts, items and tools that no other API knows (json/native.ts). */
  readonly nativeFields: boolean
  /** It has kinds of parts, tools and settings that only providers with the same API understand. */
  readonly ownKinds: boolean
  /** Providers that speak it may be sent fields of chat completions that it does not document. */
  readonly takesChatFields: boolean
  /** An item at the end of its input may request a summary of the conversation. */
  readonly compacts: boolean
  /** Its clients may keep only the encrypted part of a thought. Absent: they keep the complete thought. */
  readonly thoughtsInSeals?: true
  /** The error for an unknown model name. */
  readonly unknownModel: 'model_not_found' | 'unknown_model'
}

/** Every row starts from this one. */
const NO_ABILITIES: Omit<DialectAbilities, 'takesChatFields' | 'unknownModel'> = {
  embeds: false,
  resumes: false,
  endsWithReply: false,
  openItems: false,
  approvals: false,
  patches: false,
  toolProgress: false,
  toolItems: false,
  innerFunctions: false,
  bareDeferral: false,
  mcpServers: false,
  nativeFields: false,
  ownKinds: false,
  compacts: false,
}

export const DIALECT_ABILITIES: Readonly<Record<DialectName, DialectAbilities>> = {
  responses: {
    ...NO_ABILITIES,
    resumes: true,
    endsWithReply: true,
    openItems: true,
    approvals: true,
    patches: true,
    toolProgress: true,
    toolItems: true,
    innerFunctions: true,
    takesChatFields: false,
    compacts: true,
    thoughtsInSeals: true,
    unknownModel: 'model_not_found',
  },
  'chat-completions': {
    ...NO_ABILITIES,
    resumes: true,
    takesChatFields: true,
    unknownModel: 'model_not_found',
  },
  messages: {
    ...NO_ABILITIES,
    resumes: true,
    toolItems: true,
    bareDeferral: true,
    mcpServers: true,
    nativeFields: true,
    takesChatFields: true,
    unknownModel: 'unknown_model',
  },
  gemini: {
    ...NO_ABILITIES,
    nativeFields: true,
    ownKinds: true,
    takesChatFields: true,
    unknownModel: 'unknown_model',
  },
  embeddings: {
    ...NO_ABILITIES,
    embeds: true,
    takesChatFields: true,
    unknownModel: 'model_not_found',
  },
}
