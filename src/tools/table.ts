/** All server tools. A new one is its file and a row here; its parameters are a row of protocol/gateway-tools.ts. */
import type { Clock } from '../clock.ts'
import { createDatetime } from './datetime.ts'
import type { ServerTool } from './tool.ts'

/** Dependencies of all server tools: build-gateway passes them whole. */
export interface ToolDeps {
  readonly clock: Clock
}

const TOOLS: readonly ((deps: ToolDeps) => ServerTool)[] = [createDatetime]

/** The server tools by their names. */
export function createTools(deps: ToolDeps): ReadonlyMap<string, ServerTool> {
  return new Map(TOOLS.map(create => create(deps)).map(tool => [tool.name, tool]))
}
