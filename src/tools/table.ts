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
import { createAdvisor } from './advisor.ts'
import { createDatetime } from './datetime.ts'
import type { FusionModels } from './fusion/models.ts'
import { createFusion } from './fusion.ts'
import { createSubagent } from './subagent.ts'
import type { StateSeal } from './subagent-state.ts'
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
  /** Seals what a client keeps for a tool. */
  readonly seal: StateSeal
  readonly fusionModels: FusionModels
}

/** All tools, for those that give some to the models that they ask. Empty until all are created. */
interface WithTools {
  readonly tools: ReadonlyMap<string, ServerTool>
}

const TOOLS: readonly ((deps: ToolDeps & WithTools) => ServerTool | null)[] = [
  createDatetime,
  createAdvisor,
  createSubagent,
  createFusion,
]

/** The server tools by their names; one that returns null is not offered as this gateway is configured. */
export function createTools(deps: ToolDeps): ReadonlyMap<string, ServerTool> {
  const tools = new Map<string, ServerTool>()
  for (const tool of TOOLS.flatMap(create => create({ ...deps, tools }) ?? [])) tools.set(tool.name, tool)
  return tools
}
