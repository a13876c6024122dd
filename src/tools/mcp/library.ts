/**
 * The client library of MCP, loaded when it is first used: it takes some tenths of a second, in which the thread does
 * nothing else, and some megabytes.
 */
const state = { isLoaded: false }

/** Loads the library; the second call costs nothing. */
export async function loadMcpLibrary() {
  const [{ Client }, { StreamableHTTPClientTransport }] = await Promise.all([
    import('@modelcontextprotocol/sdk/client/index.js'),
    import('@modelcontextprotocol/sdk/client/streamableHttp.js'),
    import('@modelcontextprotocol/sdk/types.js'),
  ])
  state.isLoaded = true
  return { Client, StreamableHTTPClientTransport }
}

/** True once this thread has the library. */
export function hasMcpLibrary(): boolean {
  return state.isLoaded
}
