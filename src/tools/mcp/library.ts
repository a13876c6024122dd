/**
 * The MCP client library, loaded on first use: loading takes some tenths of a second, which block the thread, and some
 * megabytes. One for each thread.
 */
export type McpClient = typeof import('@modelcontextprotocol/client')

export class McpLibrary {
  #client: McpClient | null = null

  /** True once this thread has the library. */
  get isLoaded(): boolean {
    return this.#client !== null
  }

  /** Loads the library; the second call costs nothing. */
  async load(): Promise<McpClient> {
    this.#client ??= await import('@modelcontextprotocol/client')
    return this.#client
  }
}
