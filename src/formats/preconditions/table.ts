/**
 * The requirements of a receiver, beyond the grammar of its format: one row for each format, and the changes to it by
 * the quirks of a provider, the name of a model, and settings of the provider and the endpoint. `prepare.ts` applies
 * the result to each prompt. Data.
 */
import type { EffortName } from '../../protocol/efforts.ts'
import {
  type Endpoint,
  type FormatName,
  JSON_FORMATS,
  type JsonFormat,
  type Quirk,
  type RefusableName,
  type SupportedSettings,
} from '../../protocol/provider.ts'
import type { Change } from '../format.ts'

/** The texts that are allowed as a name or an id. */
interface Alphabet {
  /** Matches an allowed text. */
  readonly fits: RegExp
  /** Matches each character that is not allowed. */
  readonly forbidden: RegExp
  readonly maxChars: number
}

export interface NameRule extends Alphabet {
  /** Names that functions of a caller cannot have. Absent: none. */
  readonly reserved?: ReadonlySet<string>
  /** Names of the provider's own tools, by type; functions beside them need others. Absent: they have none. */
  readonly hosted?: ReadonlyMap<string, string>
}

export interface CallIdRule extends Alphabet {
  /** The scope in which an id may be used for only one call. */
  readonly unique: 'request' | 'turn'
  /** True: an id in another form becomes a hash of the maximum length, without a readable beginning. */
  readonly hashed?: true
}

export interface Preconditions {
  /** `calls`: items of tools that the provider cannot express are sent as function calls and their outputs. */
  readonly items: 'own' | 'calls'
  readonly names: NameRule
  readonly callIds: CallIdRule
  /** `after-calls`: the outputs of a turn's calls directly follow them. */
  readonly outputs: 'anywhere' | 'after-calls'
  /** `object`: arguments are the text of a JSON object. */
  readonly arguments: 'text' | 'object'
  /**
   * `field`: the format has a field that marks failed results; `text-field`: the field exists only for results that are
   * text. `words`: the text of the result says it.
   */
  readonly failures: 'field' | 'text-field' | 'words'
  /** `text`: a result is only text; its other parts follow in a message. */
  readonly results: 'parts' | 'text'
  /**
   * `joined`: system messages at the beginning are joined into one, unless the caller uses the provider's API. `first`:
   * there is only one, at the beginning, for all callers.
   */
  readonly system: 'anywhere' | 'joined' | 'first'
  /** `closed`: schemas of answers have closed objects and few keywords. */
  readonly schemas: 'any' | 'closed'
  /** The same for strict functions. */
  readonly toolSchemas: 'any' | 'closed'
  /** `object`: a function's schema has an object with properties at its root. `no-union`: anything but a union. */
  readonly toolRoots: 'any' | 'no-union' | 'object'
  /** True: a request for a JSON object must also say "JSON" in its messages. */
  readonly jsonWord: boolean
  /** The most stop sequences; null: any number. */
  readonly maxStops: number | null
  /** The smallest limit for output tokens. */
  readonly minOutput: number
  /** `user`: a conversation does not end with the model's turn. A caller of the provider's API decides that alone. */
  readonly lastTurn: 'any' | 'user'
  /** `alone`: tools that the provider runs only in requests without functions. */
  readonly hosted: 'beside-functions' | 'alone'
  /** The efforts of reasoning; null: all. */
  readonly efforts: readonly EffortName[] | null
  /** The formats of answers that are enforced. Words ask for others. */
  readonly jsonFormats: readonly JsonFormat[]
  /** False: not in a request with tools. */
  readonly jsonBesideTools: boolean
  /** Settings that are left out, always and where an effort other than `none` is sent. */
  readonly refuses: readonly RefusableName[]
  readonly refusesThinking: readonly RefusableName[]
  /** The text that replaces a missing thought in a turn with calls; null: none. */
  readonly thought: string | null
}

const WORD_NAMES = { fits: /^[a-zA-Z0-9_-]{1,64}$/, forbidden: /[^a-zA-Z0-9_-]/g, maxChars: 64 }
const LONG_WORD_NAMES = { fits: /^[a-zA-Z0-9_-]{1,128}$/, forbidden: WORD_NAMES.forbidden, maxChars: 128 }
/** The first character is a letter or an underscore. */
const GOOGLE_NAMES = {
  fits: /^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$/,
  forbidden: /^[^a-zA-Z_]|[^a-zA-Z0-9_.:-]/g,
  maxChars: 128,
}
/** Names of Anthropic's own tools; see anthropic-messages/tools.ts. */
const CLAUDE_TOOLS: ReadonlyMap<string, string> = new Map([
  ['web_search', 'web_search'],
  ['web_search_2025_08_26', 'web_search'],
  ['web_search_preview', 'web_search'],
  ['web_search_preview_2025_03_11', 'web_search'],
  ['web_fetch', 'web_fetch'],
  ['code_interpreter', 'code_execution'],
  ['tool_search', 'tool_search_tool_regex'],
  ['computer', 'computer'],
  ['computer_use_preview', 'computer'],
])
/** OpenAI answers 400: "The function name 'python' is reserved for use by this model". */
const RESERVED_BY_OPENAI: ReadonlySet<string> = new Set(['python', 'tool_search'])
/** xAI answers 400: `custom function name "web_search" is reserved`. */
const RESERVED_BY_XAI: ReadonlySet<string> = new Set(['web_search'])

/** All names that some receiver may refuse for a function. */
export const SPECIAL_NAMES: ReadonlySet<string> = new Set([
  ...CLAUDE_TOOLS.values(),
  ...RESERVED_BY_OPENAI,
  ...RESERVED_BY_XAI,
])

/** Keywords that the schema of a function may not have at its root, where `toolRoots` forbids unions. */
export const ROOT_UNIONS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf', 'not', 'enum'])

/** The largest minimum that any receiver has for the limit of output tokens. */
export const MIN_OUTPUT_MAX = 16

/** Any text up to this length. */
const anyText = (maxChars: number) => ({
  fits: new RegExp(`^[^]{1,${maxChars}}$`),
  forbidden: /[^\x21-\x7e]/g,
  maxChars,
})

const CHAT_RULES: Preconditions = {
  items: 'calls',
  names: WORD_NAMES,
  // Servers use ids in their own forms and accept them back.
  callIds: { ...anyText(1_024), unique: 'turn' },
  outputs: 'after-calls',
  arguments: 'text',
  failures: 'words',
  results: 'text',
  system: 'joined',
  schemas: 'any',
  toolSchemas: 'any',
  toolRoots: 'any',
  jsonWord: false,
  maxStops: null,
  minOutput: 1,
  lastTurn: 'any',
  hosted: 'beside-functions',
  efforts: ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'],
  jsonFormats: JSON_FORMATS,
  jsonBesideTools: true,
  refuses: [],
  refusesThinking: [],
  thought: null,
}

const CLAUDE_RULES: Preconditions = {
  ...CHAT_RULES,
  names: { ...LONG_WORD_NAMES, hosted: CLAUDE_TOOLS },
  callIds: { ...LONG_WORD_NAMES, unique: 'request' },
  arguments: 'object',
  failures: 'text-field',
  results: 'parts',
  // The format has a separate field for system messages.
  system: 'anywhere',
  schemas: 'closed',
  toolSchemas: 'closed',
  toolRoots: 'no-union',
  efforts: ['low', 'medium', 'high', 'xhigh', 'max'],
}

const RULES_BY_FORMAT: Readonly<Record<FormatName, Preconditions>> = {
  'openai-chat': CHAT_RULES,
  'openai-responses': {
    ...CHAT_RULES,
    items: 'own',
    callIds: { ...anyText(64), unique: 'request' },
    outputs: 'anywhere',
    results: 'parts',
    system: 'anywhere',
    toolRoots: 'object',
    jsonWord: true,
    minOutput: MIN_OUTPUT_MAX,
    efforts: null,
  },
  'anthropic-messages': CLAUDE_RULES,
  'google-gemini': {
    ...CHAT_RULES,
    names: GOOGLE_NAMES,
    callIds: { ...anyText(1_024), unique: 'turn' },
    outputs: 'after-calls',
    arguments: 'object',
    failures: 'field',
    results: 'text',
    system: 'anywhere',
    maxStops: 5,
  },
  'bedrock-converse': {
    ...CLAUDE_RULES,
    names: WORD_NAMES,
    callIds: {
      fits: /^[a-zA-Z0-9_.:-]{1,64}$/,
      forbidden: /[^a-zA-Z0-9_.:-]/g,
      maxChars: 64,
      unique: 'request',
    },
  },
}

/** For each quirk: the changes to the row of a format. */
const RULES_BY_QUIRK: Readonly<
  Partial<Record<Quirk, { readonly [name in FormatName]?: Partial<Preconditions> }>>
> = {
  'openai-limits': {
    'openai-responses': { names: { ...WORD_NAMES, reserved: RESERVED_BY_OPENAI } },
    'openai-chat': {
      names: { ...WORD_NAMES, reserved: RESERVED_BY_OPENAI },
      callIds: { ...anyText(40), unique: 'turn' },
      toolRoots: 'object',
      jsonWord: true,
      maxStops: 4,
    },
  },
  'nine-letter-call-ids': {
    'openai-chat': {
      callIds: {
        fits: /^[a-zA-Z0-9]{9}$/,
        forbidden: /[^a-zA-Z0-9]/g,
        maxChars: 9,
        unique: 'request',
        hashed: true,
      },
    },
  },
  // Gateways that take a `reasoning` object know all efforts.
  'reasoning-object': { 'openai-chat': { efforts: null } },
  'xai-names': {
    'openai-chat': { names: { ...WORD_NAMES, reserved: RESERVED_BY_XAI } },
    'openai-responses': { names: { ...WORD_NAMES, reserved: RESERVED_BY_XAI } },
  },
  'json-word': { 'openai-chat': { jsonWord: true } },
  'strict-template': { 'openai-chat': { system: 'first', arguments: 'object' } },
  'replay-reasoning': { 'openai-chat': { thought: '' } },
  'blank-reasoning': { 'openai-chat': { thought: ' ' } },
  'no-strict-tools': { 'anthropic-messages': { toolSchemas: 'any' } },
}

type ModelRows = readonly (readonly [RegExp, Partial<Preconditions>])[]

/** https://platform.claude.com/docs/en/build-with-claude/effort */
const CLAUDE_MODELS: ModelRows = [
  [/claude-opus-4[-.]5(?!\d)/, { efforts: ['low', 'medium', 'high'] }],
  [/claude-[a-z]+-4[-.]6(?!\d)/, { efforts: ['low', 'medium', 'high', 'max'], lastTurn: 'user' }],
  // All others up to Claude 4.5. What follows a version may be a date.
  [/claude-(?:[a-z]+-)?[1-4](?!\d)(?![-.](?:[7-9]|\d\d)(?!\d))/, { efforts: [] }],
  [/claude-(?:[a-z]+-)?\d/, { lastTurn: 'user' }],
]

/** https://ai.google.dev/gemini-api/docs/latest-model */
const GEMINI_MODELS: ModelRows = [
  [/gemini-[12]\b/, { jsonBesideTools: false, hosted: 'alone' }],
  [/gemini-(?:3\.5-flash-lite|3\.(?:[6-9]|\d\d)|[4-9]|\d\d)/, { lastTurn: 'user' }],
  [/gemini-flash-(?:lite-)?latest/, { lastTurn: 'user' }],
]

/** The user message for a model that refuses a conversation which ends with its own turn. */
export const CONTINUE = 'Continue.'
export const CONTINUE_ADDED: readonly Change[] = [
  { field: 'input', action: 'added', reason: `the model requires a user message at the end: "${CONTINUE}"` },
]

/** Models that take less than their format, by name: the first that matches counts. */
const RULES_BY_MODEL: { readonly [name in FormatName]?: ModelRows } = {
  'anthropic-messages': CLAUDE_MODELS,
  'bedrock-converse': CLAUDE_MODELS,
  'google-gemini': GEMINI_MODELS,
}

/** For each endpoint: its requirements in each format. */
const preconditionsByEndpoint = new WeakMap<Endpoint, Map<FormatName, Preconditions>>()

export function preconditionsOf(format: FormatName, endpoint: Endpoint): Preconditions {
  const preconditions = preconditionsByEndpoint.get(endpoint)?.get(format)
  return preconditions ?? computePreconditions(format, endpoint)
}

function computePreconditions(format: FormatName, endpoint: Endpoint): Preconditions {
  const { provider, upstreamModel } = endpoint
  const preconditions: Preconditions = Object.assign(
    {},
    RULES_BY_FORMAT[format],
    ...provider.quirks.map(quirk => RULES_BY_QUIRK[quirk]?.[format]),
    RULES_BY_MODEL[format]?.find(([models]) => models.test(upstreamModel))?.[1],
    ruleOf(endpoint),
    takesOf(provider),
    takesOf(endpoint),
  )
  const formats = preconditionsByEndpoint.get(endpoint) ?? new Map<FormatName, Preconditions>()
  preconditionsByEndpoint.set(endpoint, formats.set(format, preconditions))
  return preconditions
}

/** The provider's rule for the model, by its name there or in the catalogue: a deployment may have any name. */
function ruleOf({ modelId, provider: { modelRules = [] }, upstreamModel }: Endpoint): Partial<Preconditions> {
  const findRule = (name: string) => modelRules.find(({ models }) => models.test(name))
  const rule = findRule(upstreamModel) ?? findRule(modelId)
  if (rule === undefined) return {}
  const { refuses = [], refusesThinking = [] } = rule
  return { ...takesOf(rule), refuses, refusesThinking }
}

function takesOf({ efforts, jsonFormats, jsonBesideTools }: SupportedSettings): SupportedSettings {
  return {
    ...(efforts === undefined ? {} : { efforts }),
    ...(jsonFormats === undefined ? {} : { jsonFormats }),
    ...(jsonBesideTools === undefined ? {} : { jsonBesideTools }),
  }
}
