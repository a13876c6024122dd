/** Translates image settings (`image_config`) to Gemini's `imageConfig`. Pure. */
import { GatewayError } from '../../base/errors.ts'
import type { Json } from '../../base/json.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'

/** Settings with a name of their own here. `size` is a resolution, or width and height. */
const SETTING_NAMES: ReadonlyMap<string, string> = new Map([
  ['aspect_ratio', 'aspectRatio'],
  ['image_size', 'imageSize'],
  ['person_generation', 'personGeneration'],
])

/** Settings of other providers that only tune a picture; the gateway's own tool sends them to any model. */
const IGNORED_SETTINGS: ReadonlySet<string> = new Set([
  'quality',
  'background',
  'moderation',
  'input_fidelity',
  'partial_images',
])

const ASPECT_RATIOS = ['1:1', '2:3', '3:2', '3:4', '4:3', '4:5', '5:4', '9:16', '16:9', '21:9'] as const

/**
 * Null: nothing is set that Gemini has.
 * @throws GatewayError `invalid_request` for a setting that no provider of this API has
 */
export function imageConfig({ image_config: settings }: ResponsesRequest): Json | null {
  if (settings == null) return null
  const config: Record<string, unknown> = {}
  const options: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(settings)) {
    const ownName = SETTING_NAMES.get(name)
    if (IGNORED_SETTINGS.has(name) || value === 'auto') continue
    if (ownName !== undefined) config[ownName] = value
    else if (name === 'size') Object.assign(config, sizeFields(String(value)))
    else if (name === 'output_format') options['mimeType'] = mediaType(String(value))
    else if (name === 'output_compression') options['compressionQuality'] = value
    else throw unknownSetting(name)
  }
  if (Object.keys(options).length > 0) config['imageOutputOptions'] = options
  return Object.keys(config).length === 0 ? null : config
}

/** Width and height become the nearest aspect ratio; other values stay unchanged. */
function sizeFields(size: string): Json {
  const [, width, height] = /^(\d{1,5})x(\d{1,5})$/.exec(size) ?? []
  if (width === undefined || height === undefined) return { imageSize: size }
  const wantedRatio = Number(width) / Number(height)
  const distance = (ratio: string): number => {
    const [ratioWidth = 1, ratioHeight = 1] = ratio.split(':').map(Number)
    return Math.abs(Math.log(ratioWidth / ratioHeight / wantedRatio))
  }
  const nearest = ASPECT_RATIOS.reduce((best, ratio) => (distance(ratio) < distance(best) ? ratio : best))
  return { aspectRatio: nearest }
}

function mediaType(format: string): string {
  return format.includes('/') ? format : `image/${format === 'jpg' ? 'jpeg' : format}`
}

const SETTING_PATTERN = /^\w{1,64}$/

function unknownSetting(name: string): GatewayError {
  const path = `image_config.${SETTING_PATTERN.test(name) ? name : '*'}`
  const knownNames = [...SETTING_NAMES.keys(), 'size', 'output_format', 'output_compression'].join(', ')
  return new GatewayError(
    'invalid_request',
    `${path}: is not a setting of this provider, which supports ${knownNames}`,
  )
}
