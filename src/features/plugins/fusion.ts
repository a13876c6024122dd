/**
 * Fusion as a model or a plugin: the slugs `gateway/fusion` and `gateway/fusion-flash` select a model with the fusion
 * server tool, and the plugin adds the tool to the requested model. The plugin's settings are those of the tool, which
 * reads them itself.
 */
import { GatewayError } from '../../base/errors.ts'
import type { ActivePlugin, Plugin } from '../../exchange/plugin.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { PluginDeps } from './plugin-deps.ts'

type FusionSlugDeps = Pick<PluginDeps, 'fusionModels'>

type Settings = Extract<PluginSettings, { id: 'fusion' }>
type Preset = NonNullable<Settings['preset']>

/** The preset of each slug; null: the settings choose the preset. */
const PRESET_OF_SLUG: ReadonlyMap<string, Preset | null> = new Map(
  ['gateway', 'openrouter'].flatMap((prefix): [string, Preset | null][] => [
    [`${prefix}/fusion`, null],
    [`${prefix}/fusion-flash`, 'general-fast'],
  ]),
)

export function createFusionPlugin(deps: FusionSlugDeps): Plugin<'fusion'> {
  return {
    id: 'fusion',
    alwaysOn: true,
    slugs: ['fusion', 'fusion-flash'],
    activate(settings, request) {
      const slug = request.model === undefined ? undefined : PRESET_OF_SLUG.get(request.model)
      const isFallback = request.models?.some(model => PRESET_OF_SLUG.has(model)) === true
      if (slug !== undefined || isFallback) return activeFusion(deps, settings, slug)
      return settings === null ? null : TOOL_FOR_ANY_MODEL
    },
  }
}

/** Offers the tool to the requested model. */
const TOOL_FOR_ANY_MODEL: ActivePlugin = {
  id: 'fusion',
  isRepeatable: true,
  skipsRescan: true,
  prepare: ({ prompt }) => withTool(prompt, null),
}

function activeFusion(
  { fusionModels }: FusionSlugDeps,
  settings: Settings | null,
  slug: Preset | null | undefined,
): ActivePlugin {
  return {
    id: 'fusion',
    isRepeatable: true,
    // The plugin adds no text of the caller.
    skipsRescan: true,
    strategy: 'fusion',
    prepare({ prompt }) {
      if (slug === undefined) {
        throw new GatewayError('invalid_request', 'models: a fusion cannot be a fallback: name it in model')
      }
      const preset = settings?.preset ?? slug
      const panel = settings?.analysis_models ?? fusionModels.panel(preset)
      const model = settings?.model ?? fusionModels.analyst ?? panel[0]
      if (model === undefined) {
        throw new GatewayError(
          'invalid_request',
          'plugins: fusion needs model or analysis_models, because neither the settings nor the catalogue of this gateway provide a panel',
        )
      }
      return withFusion(prompt, model, preset)
    },
  }
}

/** The prompt with the model in place of the slug, and with the tool. */
function withFusion(prompt: ResponsesRequest, model: string, preset: Preset | null): ResponsesRequest {
  const { models: _, ...promptWithoutModels } = prompt
  return withTool({ ...promptWithoutModels, model }, preset)
}

/** Adds the tool to the prompt, unless the prompt already names the tool. */
function withTool(prompt: ResponsesRequest, preset: Preset | null): ResponsesRequest {
  const tools = prompt.tools ?? []
  if (tools.some(({ type }) => type === 'gateway:fusion' || type === 'openrouter:fusion')) return prompt
  const tool = { type: 'gateway:fusion' as const, parameters: preset === null ? {} : { preset } }
  return { ...prompt, tools: [...tools, tool] }
}
