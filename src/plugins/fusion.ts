/**
 * Fusion as a model: the slugs `gateway/fusion` and `gateway/fusion-flash` stand for a model that has the server tool
 * fusion. The plugin's own settings are those of the tool, which reads them itself.
 */
import { GatewayError } from '../errors.ts'
import type { PluginSettings } from '../protocol/plugins.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { ActivePlugin, Plugin, PluginDeps } from './plugin.ts'

export type FusionDeps = Pick<PluginDeps, 'fusionModels'>

type Settings = Extract<PluginSettings, { id: 'fusion' }>
type Preset = NonNullable<Settings['preset']>

/** The preset of each slug; null: that of the settings. */
const SLUGS: ReadonlyMap<string, Preset | null> = new Map(
  ['gateway', 'openrouter'].flatMap((prefix): [string, Preset | null][] => [
    [`${prefix}/fusion`, null],
    [`${prefix}/fusion-flash`, 'general-fast'],
  ]),
)

export function createFusionPlugin(deps: FusionDeps): Plugin<'fusion'> {
  return {
    id: 'fusion',
    alwaysOn: true,
    activate(settings, request) {
      const slug = request.model === undefined ? undefined : SLUGS.get(request.model)
      if (slug === undefined && !request.models?.some(model => SLUGS.has(model))) return null
      return activeFusion(deps, settings, slug)
    },
  }
}

function activeFusion(
  { fusionModels }: FusionDeps,
  settings: Settings | null,
  slug: Preset | null | undefined,
): ActivePlugin {
  return {
    id: 'fusion',
    isRepeatable: true,
    // It adds no text of the caller.
    skipsRescan: true,
    prepare(exchange) {
      if (slug === undefined) {
        throw new GatewayError(
          'invalid_request',
          'models: a fusion cannot be a fallback: name it in model alone',
        )
      }
      const preset = settings?.preset ?? slug
      const panel = settings?.analysis_models ?? fusionModels.panel(preset)
      const model = settings?.model ?? fusionModels.analyst ?? panel[0]
      if (model === undefined) {
        throw new GatewayError(
          'invalid_request',
          'plugins: fusion needs model or analysis_models: the settings and the catalogue of this gateway have no panel',
        )
      }
      exchange.strategy = 'fusion'
      exchange.prompt = withFusion(exchange.prompt, model, preset)
    },
  }
}

/** The model in place of the slug, with the tool unless the request names it itself. */
function withFusion(prompt: ResponsesRequest, model: string, preset: Preset | null): ResponsesRequest {
  const tools = prompt.tools ?? []
  const { models: _, ...rest } = prompt
  if (tools.some(({ type }) => type === 'gateway:fusion' || type === 'openrouter:fusion')) {
    return { ...rest, model }
  }
  const tool = { type: 'gateway:fusion' as const, parameters: preset === null ? {} : { preset } }
  return { ...rest, model, tools: [...tools, tool] }
}
