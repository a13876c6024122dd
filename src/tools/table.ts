/** All server tools. A new one is its file and a row here; its parameters are a row of protocol/gateway-tools.ts. */
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { AskAs } from '../gateway/exchange.ts'
import type { Log } from '../log/log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Store } from '../storage/store.ts'
import type { GatewayTasks } from '../tasks/pool.ts'
import type { Transport } from '../upstream/transport.ts'
import { createDatetime } from './datetime.ts'
import type { ServerTool } from './tool.ts'

/** Dependencies of all server tools: build-gateway passes them whole, and each tool picks what it uses. */
export interface ToolDeps {
  readonly config: Config
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly tasks: GatewayTasks
  readonly store: Store
  readonly catalog: Catalog
  readonly client: Transport
  /** Asks a model on behalf of the caller of an exchange. */
  readonly askAs: AskAs
}

const TOOLS: readonly ((deps: ToolDeps) => ServerTool | null)[] = [createDatetime]

/** The server tools by their names; one that returns null is not offered as this gateway is configured. */
export function createTools(deps: ToolDeps): ReadonlyMap<string, ServerTool> {
  const tools = TOOLS.flatMap(create => create(deps) ?? [])
  return new Map(tools.map(tool => [tool.name, tool]))
}
