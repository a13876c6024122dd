/**
 * Which optional features this gateway runs itself. A request that asks for another one is refused by name, so
 * that nothing a client relies on is ever left out in silence. Grows with the plugins and tools. Pure.
 */

/** Plugin ids that run. */
export const PLUGINS_BUILT: ReadonlySet<string> = new Set<string>([
  'moderation',
  'file-parser',
  'alignment',
  'context-compression',
  'response-healing',
])

/** Names of gateway tools that run, without their prefix. */
export const SERVER_TOOLS_BUILT: ReadonlySet<string> = new Set<string>(['datetime'])

/** Router slugs that choose a model, without their vendor prefix where it is ours. */
export const ROUTERS_BUILT: ReadonlySet<string> = new Set<string>()
