/**
 * The client library of MCP, loaded when it is first used: it takes some tenths of a second, in which the thread does
 * nothing else, and some megabytes. One for each thread.
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
