/**
 * All plugins, in the order in which they work on a request. A new plugin is its file and a row here. Plugins that
 * refuse come before those that cost; those that repair an answer come before those that check it.
 */
import { createAlignment } from './alignment.ts'
import { createContextCompression } from './context-compression.ts'
import { createFileParser } from './file-parser.ts'
import { createFusionPlugin } from './fusion.ts'
import { createModeration } from './moderation.ts'
import type { AnyPlugin, PluginDeps } from './plugin.ts'
import { createResponseHealing } from './response-healing.ts'
import { createStructuredOutput } from './structured-output.ts'

const PLUGINS: readonly ((deps: PluginDeps) => AnyPlugin)[] = [
  createFusionPlugin,
  createModeration,
  createFileParser,
  createAlignment,
  createContextCompression,
  createResponseHealing,
  createStructuredOutput,
]

export function createPlugins(deps: PluginDeps): readonly AnyPlugin[] {
  return PLUGINS.map(create => create(deps))
}
