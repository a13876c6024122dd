/**
 * Translates `generationConfig` to request fields. Pure. Settings that no other API has stay in a field of this name:
 * providers of this API receive them. Other providers work without them, because they only tune the answer.
 */
import { refuseField } from '../../base/errors.ts'
import { isStrict } from '../strict-schema.ts'
import type { GeminiBody, GenerationConfig } from './body-schema.ts'
import { jsonSchema } from './schema.ts'

type Fields = Record<string, unknown>

/** Settings that a request has under another name, or in another form. */
const TRANSLATED_SETTINGS: ReadonlySet<string> = new Set([
  'stopSequences',
  'responseMimeType',
  'responseSchema',
  'responseJsonSchema',
  '_responseJsonSchema',
  'candidateCount',
  'maxOutputTokens',
  'temperature',
  'topP',
  'topK',
  'seed',
  'presencePenalty',
  'frequencyPenalty',
  'responseLogprobs',
  'logprobs',
  'thinkingConfig',
  'responseModalities',
  'imageConfig',
])
const JSON_TYPE = 'application/json'
const EFFORTS: readonly string[] = ['minimal', 'low', 'medium', 'high']
const MODALITIES: ReadonlyMap<string, string> = new Map([
  ['TEXT', 'text'],
  ['IMAGE', 'image'],
])
const IMAGE_SETTINGS: ReadonlyMap<string, string> = new Map([
  ['aspectRatio', 'aspect_ratio'],
  ['imageSize', 'image_size'],
  ['personGeneration', 'person_generation'],
])
const SERVICE_TIERS: ReadonlyMap<string, string> = new Map([
  ['standard', 'default'],
  ['flex', 'flex'],
  ['priority', 'priority'],
])

/** @throws GatewayError `invalid_request` for settings that no provider supports */
export function setConfig(config: GenerationConfig, fields: Fields): void {
  if ((config.candidateCount ?? 1) > 1)
    throw refuseField('generationConfig.candidateCount', 'must be 1: only one answer is returned')
  const set = (name: string, value: unknown): void => {
    if (value !== undefined && value !== null) fields[name] = value
  }
  set('max_output_tokens', config.maxOutputTokens)
  set('temperature', config.temperature)
  set('top_p', config.topP)
  set('top_k', config.topK)
  set('seed', config.seed)
  set('presence_penalty', config.presencePenalty)
  set('frequency_penalty', config.frequencyPenalty)
  if (config.stopSequences != null && config.stopSequences.length > 0) set('stop', config.stopSequences)
  if (config.responseLogprobs === true) set('top_logprobs', Math.max(1, config.logprobs ?? 1))
  set('reasoning', reasoningOf(config))
  set('modalities', modalitiesOf(config))
  set('image_config', imageConfigOf(config))
  const format = formatOf(config)
  if (format !== null) fields['text'] = { format }
  const otherSettings = Object.entries(config).filter(
    ([name, value]) => value != null && !TRANSLATED_SETTINGS.has(name),
  )
  const ownFields: Fields = Object.fromEntries(otherSettings)
  if (isOwnType(config)) {
    ownFields['responseMimeType'] = config.responseMimeType
    if (config.responseSchema != null) ownFields['responseSchema'] = config.responseSchema
  }
  if (Object.keys(ownFields).length > 0) fields['generationConfig'] = ownFields
}

/**
 * `thinkingConfig` also stays in the configuration as the client sent it: a provider of this API gets it instead of the
 * translation for others.
 */
function reasoningOf({ thinkingConfig: thinking }: GenerationConfig): Fields | null {
  if (thinking == null) return null
  const { includeThoughts, thinkingBudget: budget, thinkingLevel } = thinking
  if (budget === 0) return { enabled: false, thinking }
  const effort = EFFORTS.find(name => name === thinkingLevel?.toLowerCase())
  // Showing thoughts does not turn reasoning on.
  const isEnabled = effort !== undefined || budget != null
  return {
    ...(isEnabled ? { enabled: true } : {}),
    ...(effort === undefined ? {} : { effort }),
    // A budget of -1 leaves it to the model.
    ...(budget == null || budget < 0 || effort !== undefined ? {} : { max_tokens: budget }),
    ...(includeThoughts === true ? { summary: 'auto' } : {}),
    thinking,
  }
}

/** Null for text only, which every model can answer with. */
function modalitiesOf({ responseModalities: requestedNames }: GenerationConfig): readonly string[] | null {
  if (requestedNames == null || requestedNames.length === 0) return null
  const modalities = requestedNames.map((name, index) => {
    const modality = MODALITIES.get(name.toUpperCase())
    if (modality !== undefined) return modality
    throw refuseField(
      `generationConfig.responseModalities[${index}]`,
      'must be TEXT or IMAGE: audio output is not offered by this gateway',
    )
  })
  return modalities.includes('image') ? modalities : null
}

function imageConfigOf({ imageConfig }: GenerationConfig): Fields | null {
  if (imageConfig == null) return null
  const settings: Fields = {}
  for (const [name, value] of Object.entries(imageConfig)) {
    const setting = IMAGE_SETTINGS.get(name)
    if (setting !== undefined && value !== null) settings[setting] = value
  }
  const { imageOutputOptions: output } = imageConfig as { imageOutputOptions?: Fields | null }
  if (typeof output?.['mimeType'] === 'string') settings['output_format'] = output['mimeType']
  if (typeof output?.['compressionQuality'] === 'number')
    settings['output_compression'] = output['compressionQuality']
  return Object.keys(settings).length === 0 ? null : settings
}

function formatOf(config: GenerationConfig): Fields | null {
  const { responseMimeType: type, responseSchema, responseJsonSchema, _responseJsonSchema } = config
  if (isOwnType(config)) return null
  const schema =
    responseJsonSchema ?? _responseJsonSchema ?? (responseSchema == null ? null : jsonSchema(responseSchema))
  // The API has no name for it, and others demand one.
  if (schema !== null)
    return { type: 'json_schema', name: 'output', schema, ...(isStrict(schema) ? { strict: true } : {}) }
  return type === JSON_TYPE ? { type: 'json_object' } : null
}

/** An answer type that only this API has, such as one word of an enumeration. */
function isOwnType({ responseMimeType: type }: GenerationConfig): boolean {
  return type != null && type !== JSON_TYPE && type !== 'text/plain'
}

/** The service tier; null if it is absent or exists only at Google. */
export function tierOf({ serviceTier }: GeminiBody): string | null {
  return SERVICE_TIERS.get((serviceTier ?? '').toLowerCase().replace(/^service_tier_/, '')) ?? null
}
