/** Every server tool that is built. A new one is a file, a row here and its name in protocol/built.ts. */
import type { Clock } from '../clock.ts'
import { createDatetime } from './datetime.ts'
import type { ServerTool } from './tool.ts'

export interface ToolParts {
  readonly clock: Clock
}

export function createTools(parts: ToolParts): ReadonlyMap<string, ServerTool> {
  return new Map([createDatetime(parts)].map(tool => [tool.name, tool]))
}
