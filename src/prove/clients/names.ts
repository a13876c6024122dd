/** Names of the clients whose traffic can be replayed; apart from the rest, which only a proof loads. */
export const CLIENT_NAMES = ['claude-code', 'codex', 'gemini-cli', 'opencode'] as const

export type ProvedClientName = (typeof CLIENT_NAMES)[number]
