/** All server tools. A new one is a file, a row here and its name in protocol/built.ts. */
import type { Clock } from '../clock.ts'
import { createDatetime } from './datetime.ts'
import type { ServerTool } from './tool.ts'

export interface ToolDeps {
  readonly clock: Clock
}

export function createTools(deps: ToolDeps): ReadonlyMap<string, ServerTool> {
  return new Map([createDatetime(deps)].map(tool => [tool.name, tool]))
}
