/**
 * Loads the MCP client library in an idle moment if MCP was used before, so that the first MCP call blocks nobody. A
 * file in the data folder tells the other threads and the next start that MCP was used. Serve threads.
 */
import { access, writeFile } from 'node:fs/promises'
import type { McpLibrary } from '../../features/tools/mcp/library.ts'

/**
 * Called at the beginning of each idle period; never rejects. `isExpected`: the configuration alone is reason enough
 * to load the library.
 */
export async function followMcpHint(library: McpLibrary, file: string, isExpected: boolean): Promise<void> {
  try {
    const isNoted = await access(file).then(
      () => true,
      () => false,
    )
    if (library.isLoaded) {
      if (!isNoted && !isExpected) await writeFile(file, '')
    } else if (isNoted || isExpected) await library.load()
  } catch {
    // Without the hint, the library is loaded when it is first used.
  }
}
