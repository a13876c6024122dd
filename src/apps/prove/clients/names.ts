/**
 * Names of the clients whose traffic can be replayed; separate from the recordings, which are loaded only when
 * `sluice prove` runs.
 */
export const CLIENT_NAMES = ['claude-code', 'codex', 'gemini-cli', 'opencode'] as const

export type ProvedClientName = (typeof CLIENT_NAMES)[number]
