/**
 * All plugins, in the order in which they process a request. A new plugin is a file and a row here. Plugins that refuse
 * requests come before those that cost money; those that repair an answer come before those that check it.
 */
import type { AnyPlugin } from '../../exchange/plugin.ts'
import { createAlignment } from './alignment.ts'
import { createAutoBetaRouter, createAutoRouter } from './auto-router.ts'
import { createBodyBuilder } from './bodybuilder.ts'
import { createContextCompression } from './context-compression.ts'
import { createFileParser } from './file-parser.ts'
import { createFreeRouter } from './free-router.ts'
import { createFusionPlugin } from './fusion.ts'
import { createJevRouter } from './jev-router.ts'
import { createModeration } from './moderation.ts'
import { createParetoRouter } from './pareto-router.ts'
import type { PluginDeps } from './plugin-deps.ts'
import { createResponseHealing } from './response-healing.ts'
import { createStructuredOutput } from './structured-output.ts'
import { createSwitchyardRouter } from './switchyard-router.ts'
import { createWeb } from './web.ts'
import { createWebFetchPlugin } from './web-fetch.ts'

const PLUGINS: readonly ((deps: PluginDeps) => AnyPlugin)[] = [
  createFusionPlugin,
  createModeration,
  createFileParser,
  createWeb,
  createWebFetchPlugin,
  createAlignment,
  createContextCompression,
  createResponseHealing,
  createStructuredOutput,
  createAutoRouter,
  createAutoBetaRouter,
  createParetoRouter,
  createSwitchyardRouter,
  createJevRouter,
  createFreeRouter,
  createBodyBuilder,
]

export function createPlugins(deps: PluginDeps): readonly AnyPlugin[] {
  return PLUGINS.map(create => create(deps))
}
