/**
 * The place of each optional setting in the body of each format, from which the report of changes follows: a setting
 * without a place is lost, and one with another value was changed. Pure.
 */
import { type Json, strings } from '../base/json.ts'
import type { FormatName } from '../protocol/provider.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Change } from './format.ts'
import { hasAbility } from './format-abilities.ts'
import { fieldThatStops } from './reasoning.ts'

/** Settings with one value, which only tune a reply. */
const TUNING = [
  'temperature',
  'top_p',
  'top_k',
  'frequency_penalty',
  'presence_penalty',
  'top_logprobs',
  'seed',
  'logit_bias',
  'min_p',
  'top_a',
  'repetition_penalty',
  'prediction',
] as const satisfies readonly (keyof ResponsesRequest)[]
type Tuning = (typeof TUNING)[number]

/** A name, or the name of an object and the name in it. Absent: the format has no such setting. */
type SettingName = readonly [string] | readonly [string, string]
/** The first name that is set counts. */
type SettingNames = Readonly<Partial<Record<Tuning, readonly SettingName[]>>>

const SAME_NAMES: SettingNames = Object.fromEntries(TUNING.map(name => [name, [[name]]]))

const SETTING_PLACES: Readonly<Record<FormatName, SettingNames>> = {
  'openai-chat': SAME_NAMES,
  'openai-responses': SAME_NAMES,
  'anthropic-messages': { temperature: [['temperature']], top_p: [['top_p']], top_k: [['top_k']] },
  'google-gemini': {
    temperature: [['generationConfig', 'temperature']],
    top_p: [['generationConfig', 'topP']],
    top_k: [['generationConfig', 'topK']],
    frequency_penalty: [['generationConfig', 'frequencyPenalty']],
    presence_penalty: [['generationConfig', 'presencePenalty']],
    top_logprobs: [['generationConfig', 'logprobs']],
    seed: [['generationConfig', 'seed']],
  },
  'bedrock-converse': {
    temperature: [['inferenceConfig', 'temperature']],
    top_p: [['inferenceConfig', 'topP']],
    // Nova has an object of its own for it.
    top_k: [
      ['additionalModelRequestFields', 'top_k'],
      ['additionalModelRequestFields', 'inferenceConfig'],
    ],
  },
}

interface Setting {
  readonly name: Tuning
  /** Null: the format has no such setting. */
  readonly outer: string | null
  readonly inner: string | null
}

/** The settings of each format as a list, for a hot path that calls nothing. */
export const SETTINGS: Readonly<Record<FormatName, readonly Setting[]>> = {
  'openai-chat': settingsOf(SETTING_PLACES['openai-chat']),
  'openai-responses': settingsOf(SETTING_PLACES['openai-responses']),
  'anthropic-messages': settingsOf(SETTING_PLACES['anthropic-messages']),
  'google-gemini': settingsOf(SETTING_PLACES['google-gemini']),
  'bedrock-converse': settingsOf(SETTING_PLACES['bedrock-converse']),
}

function settingsOf(names: SettingNames): readonly Setting[] {
  return TUNING.map(name => {
    const [outer = null, inner = null] = names[name]?.[0] ?? []
    return { name, outer, inner }
  })
}

interface WordSettings {
  readonly verbosity: readonly SettingName[]
  readonly effort: readonly SettingName[]
  /** True: a word stops thinking. Absent: no word does, and a request to stop is not part of the report. */
  readonly hasNone?: true
}

/** The names of settings of text and thinking whose value is a word. The first name that is set counts. */
const WORD_SETTINGS: Readonly<Record<FormatName, WordSettings>> = {
  'openai-chat': {
    verbosity: [['verbosity']],
    effort: [['reasoning_effort'], ['reasoning', 'effort'], ['reasoning'], ['thinking']],
    hasNone: true,
  },
  'openai-responses': {
    verbosity: [['text', 'verbosity']],
    effort: [['reasoning', 'effort']],
    hasNone: true,
  },
  'anthropic-messages': { verbosity: [], effort: [['output_config', 'effort'], ['thinking']] },
  'google-gemini': {
    verbosity: [],
    effort: [['generationConfig', 'thinkingConfig']],
  },
  'bedrock-converse': {
    verbosity: [],
    effort: ['thinking', 'output_config', 'reasoningConfig', 'reasoning_effort'].map(
      name => ['additionalModelRequestFields', name] as const,
    ),
  },
}

/** Formats without a setting for one call at a time. */
const ALWAYS_PARALLEL: ReadonlySet<FormatName> = new Set(['google-gemini', 'bedrock-converse'])

/** The place of the stop sequences in each format. */
const STOP_SETTINGS: Readonly<Record<FormatName, SettingName>> = {
  'openai-chat': ['stop'],
  'openai-responses': ['stop'],
  'anthropic-messages': ['stop_sequences'],
  'google-gemini': ['generationConfig', 'stopSequences'],
  'bedrock-converse': ['inferenceConfig', 'stopSequences'],
}
/** All sequences of a request that the gateway looks for have at most this many characters. */
const STOP_CHARS_MAX = 65_536

/** The stop sequences of the request that the body does not have. */
export function unsentStops(format: FormatName, { stop }: ResponsesRequest, body: Json): readonly string[] {
  const [outer, inner] = STOP_SETTINGS[format]
  const sentValue = inner === undefined ? body[outer] : (body[outer] as Json | undefined)?.[inner]
  const sentSequences: ReadonlySet<unknown> = new Set(Array.isArray(sentValue) ? sentValue : [sentValue])
  let chars = 0
  return strings(typeof stop === 'string' ? [stop] : stop).filter(sequence => {
    if (sequence === '' || sentSequences.has(sequence)) return false
    chars += sequence.length
    return chars <= STOP_CHARS_MAX
  })
}

/** The settings that the body lacks, or has with another value. */
export function changedSettings(
  format: FormatName,
  request: ResponsesRequest,
  body: Json,
): readonly Change[] {
  const changes: Change[] = []
  const names = SETTING_PLACES[format]
  for (const name of TUNING) {
    const value = request[name]
    if (value != null) note(changes, name, value, names[name] ?? [], body)
  }
  const settings = WORD_SETTINGS[format]
  const verbosity = request.text?.verbosity
  if (verbosity != null) note(changes, 'text.verbosity', verbosity, settings.verbosity, body)
  const stop = fieldThatStops(request.reasoning)
  const effort = request.reasoning?.effort
  if (stop !== null) {
    if (settings.hasNone === true) note(changes, `reasoning.${stop}`, 'none', settings.effort, body)
  } else if (effort != null) note(changes, 'reasoning.effort', effort, settings.effort, body)
  else if (request.reasoning?.max_tokens) note(changes, 'reasoning.max_tokens', null, settings.effort, body)
  else if (request.reasoning?.enabled === true)
    note(changes, 'reasoning.enabled', null, settings.effort, body)
  if (request.parallel_tool_calls === false && ALWAYS_PARALLEL.has(format) && request.tools?.length)
    changes.push({ field: 'parallel_tool_calls', action: 'dropped', reason: NO_SUCH_FIELD })
  if (request.text?.format?.type === 'json_object' && !hasAbility(format, 'json_object'))
    changes.push({
      field: 'text.format',
      action: 'changed',
      reason: 'the provider has no JSON mode: the prompt asks for JSON',
    })
  return changes
}

/** `value`: null if only its absence counts. */
function note(
  changes: Change[],
  field: string,
  value: unknown,
  names: readonly SettingName[],
  body: Json,
): void {
  for (const [outer, inner] of names) {
    const sentValue = inner === undefined ? body[outer] : (body[outer] as Json | undefined)?.[inner]
    if (sentValue == null) continue
    // Budgets and levels of other APIs are the documented form of an effort.
    if (value === null || typeof sentValue === 'object' || sentValue === value) return
    changes.push({ field, action: 'changed', reason: `the provider takes ${shownValue(sentValue)} here` })
    return
  }
  changes.push({ field, action: 'dropped', reason: names.length === 0 ? NO_SUCH_FIELD : NOT_TAKEN })
}

export const NO_SUCH_FIELD = 'the provider has no such field'
const NOT_TAKEN = 'the model does not accept it, or not together with the other settings'

function shownValue(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : 'another value'
}
