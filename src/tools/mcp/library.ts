/**
 * The client library of MCP, loaded when it is first used: it takes some tenths of a second, in which the thread does
 * nothing else, and some megabytes.
 */
export type McpLibrary = typeof import('@modelcontextprotocol/client')

const state: { library: McpLibrary | null } = { library: null }

/** Loads the library; the second call costs nothing. */
export async function loadMcpLibrary(): Promise<McpLibrary> {
  state.library ??= await import('@modelcontextprotocol/client')
  return state.library
}

/** True once this thread has the library. */
export function hasMcpLibrary(): boolean {
  return state.library !== null
}
