/**
 * The MCP client library, loaded on first use: loading blocks the thread for a few tenths of a second and takes a few
 * megabytes. One instance per thread.
 */
export type McpClient = typeof import('@modelcontextprotocol/client')

export class McpLibrary {
  #client: McpClient | null = null

  /** True once this thread has loaded the library. */
  get isLoaded(): boolean {
    return this.#client !== null
  }

  /** Loads the library; further calls cost nothing. */
  async load(): Promise<McpClient> {
    this.#client ??= await import('@modelcontextprotocol/client')
    return this.#client
  }
}
