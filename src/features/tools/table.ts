/** All server tools. A new tool is a file and a row here; its parameters are a row of protocol/gateway-tools.ts. */
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { AskAs } from '../../exchange/exchange.ts'
import type { ServerTool } from '../../exchange/server-tool.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { ProxyOf } from '../../providers/upstream/egress.ts'
import type { FetchPage } from '../../providers/upstream/pages/fetch-page.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { Store } from '../../storage/store.ts'
import type { Files } from '../files/files.ts'
import type { Sandbox } from '../sandbox/sandbox.ts'
import type { GatewayTasks } from '../tasks/pool/pool.ts'
import { createApplyPatch } from './apply-patch.ts'
import { createBash } from './container/bash.ts'
import { createCodeInterpreter } from './container/code-interpreter.ts'
import { createShell } from './container/shell.ts'
import { createTextEditor } from './container/text-editor.ts'
import { createDatetime } from './datetime.ts'
import { createFileSearchTool } from './file-search.ts'
import { createFilesTool } from './files.ts'
import type { FusionModels } from './fusion/models.ts'
import { createFusion } from './fusion.ts'
import { createImageGeneration } from './image-generation.ts'
import type { McpLibrary } from './mcp/library.ts'
import { createMcp } from './mcp.ts'
import { createMemory } from './memory.ts'
import { createAdvisor } from './models/advisor.ts'
import { createSubagent } from './models/subagent.ts'
import type { StateSeal } from './models/subagent-state.ts'
import { createSearchModels } from './search-models.ts'
import type { ToolSettings } from './settings.ts'
import { createToolSearch } from './tool-search.ts'
import type { WebEngines } from './web/engines.ts'
import { createWebFetch } from './web-fetch.ts'
import { createWebSearch } from './web-search.ts'

/** Dependencies of all server tools. Each tool gets all of them; its own `…Deps` type names those that it uses. */
export interface ToolDeps {
  readonly config: ToolSettings
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly tasks: GatewayTasks
  readonly store: Store
  readonly files: Files
  readonly catalog: Catalog
  readonly client: Transport
  /** The egress proxy for an address from a caller. */
  readonly proxyOf: ProxyOf
  readonly sandbox: Sandbox
  readonly mcpLibrary: McpLibrary
  /** Calls a model on behalf of the exchange's caller. */
  readonly askAs: AskAs
  readonly webEngines: WebEngines
  /** Fetches pages for models, with the settings of `tools.webFetch`. */
  readonly fetchPage: FetchPage
  /** Encrypts data that a client stores for a tool. */
  readonly seal: StateSeal
  readonly fusionModels: FusionModels
}

/** All tools, for tools that call models and offer them tools. The map is empty until all tools are created. */
interface WithTools {
  readonly tools: ReadonlyMap<string, ServerTool>
}

const TOOLS: readonly ((deps: ToolDeps & WithTools) => ServerTool | null)[] = [
  createAdvisor,
  createSubagent,
  createFusion,
  createDatetime,
  createWebSearch,
  createWebFetch,
  createImageGeneration,
  createMcp,
  createSearchModels,
  createToolSearch,
  createBash,
  createCodeInterpreter,
  createShell,
  createFilesTool,
  createFileSearchTool,
  createMemory,
  createTextEditor,
  createApplyPatch,
]

/** The server tools by name; a tool whose function returns null is not offered in this configuration. */
export function createTools(deps: ToolDeps): ReadonlyMap<string, ServerTool> {
  const tools = new Map<string, ServerTool>()
  for (const tool of TOOLS.flatMap(create => create({ ...deps, tools }) ?? [])) tools.set(tool.name, tool)
  return tools
}
