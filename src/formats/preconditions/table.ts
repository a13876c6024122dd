/**
 * What a receiver demands of a request, beyond the grammar of its format: one row for each format, and what quirks of a
 * provider's row change in it. `prepare.ts` applies it to each prompt. Data.
 */
import type { FormatName, Provider, Quirk } from '../../protocol/provider.ts'

/** Texts of which a name or an id must be one. */
interface Alphabet {
  /** Matches a text that may go out. */
  readonly fits: RegExp
  /** Matches each character that may not. */
  readonly foreign: RegExp
  readonly maxChars: number
}

export interface NameRule extends Alphabet {}

export interface CallIdRule extends Alphabet {
  /** Where an id may stand for one call only. */
  readonly unique: 'request' | 'turn'
  /** True: an id of another form becomes a hash of the longest length, without a readable beginning. */
  readonly hashed?: true
}

export interface Preconditions {
  /** `calls`: items of tools that the provider has no form for go as calls of functions and their outputs. */
  readonly items: 'own' | 'calls'
  readonly names: NameRule
  readonly callIds: CallIdRule
  /** `after-calls`: the outputs of a turn's calls stand directly after them. */
  readonly outputs: 'anywhere' | 'after-calls'
  /** `object`: arguments are the text of a JSON object. */
  readonly arguments: 'text' | 'object'
  /** `field`: the format has a mark for failed results; `text-field`: which are text. `words`: the result says it. */
  readonly failures: 'field' | 'text-field' | 'words'
  /** `text`: a result is text, and what else it holds follows in a message. */
  readonly results: 'parts' | 'text'
  /**
   * `joined`: system messages at the beginning are one, unless the caller speaks the provider's API. `first`: there is
   * only one, at the beginning, whatever the caller speaks.
   */
  readonly system: 'anywhere' | 'joined' | 'first'
  /** `closed`: schemas of answers have closed objects and few keywords. */
  readonly schemas: 'any' | 'closed'
  /** The same, of strict functions. */
  readonly toolSchemas: 'any' | 'closed'
  /** `object`: the schema of a function is an object with properties at its root. `no-union`: or anything but a union. */
  readonly toolRoots: 'any' | 'no-union' | 'object'
  /** True: a request for a JSON object says "JSON" in its messages too. */
  readonly jsonWord: boolean
  /** Most stop sequences; null: any number. */
  readonly stops: number | null
  /** The smallest limit for output tokens. */
  readonly minOutput: number
  /** What stands in the place of a thought that a turn with calls lacks; null: nothing. */
  readonly thought: string | null
}

const WORDS = { fits: /^[a-zA-Z0-9_-]{1,64}$/, foreign: /[^a-zA-Z0-9_-]/g, maxChars: 64 }
const LONG_WORDS = { fits: /^[a-zA-Z0-9_-]{1,128}$/, foreign: WORDS.foreign, maxChars: 128 }
/** The first character is a letter or an underscore. */
const GOOGLE_NAMES = {
  fits: /^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$/,
  foreign: /^[^a-zA-Z_]|[^a-zA-Z0-9_.:-]/g,
  maxChars: 128,
}
/** No receiver demands more than this as the smallest limit for output tokens. */
export const MIN_OUTPUT_MAX = 16

/** Any text of so many characters. */
const upTo = (maxChars: number) => ({
  fits: new RegExp(`^[^]{1,${maxChars}}$`),
  foreign: /[^\x21-\x7e]/g,
  maxChars,
})

const CHAT: Preconditions = {
  items: 'calls',
  names: WORDS,
  // Servers have ids of their own forms, and take them back.
  callIds: { ...upTo(1_024), unique: 'turn' },
  outputs: 'after-calls',
  arguments: 'text',
  failures: 'words',
  results: 'text',
  system: 'joined',
  schemas: 'any',
  toolSchemas: 'any',
  toolRoots: 'any',
  jsonWord: false,
  stops: null,
  minOutput: 1,
  thought: null,
}

const OF_FORMAT: Readonly<Record<FormatName, Preconditions>> = {
  'openai-chat': CHAT,
  'openai-responses': {
    ...CHAT,
    items: 'own',
    callIds: { ...upTo(64), unique: 'request' },
    outputs: 'anywhere',
    results: 'parts',
    system: 'anywhere',
    toolRoots: 'object',
    jsonWord: true,
    minOutput: MIN_OUTPUT_MAX,
  },
  'anthropic-messages': {
    ...CHAT,
    names: LONG_WORDS,
    callIds: { ...LONG_WORDS, unique: 'request' },
    outputs: 'after-calls',
    arguments: 'object',
    failures: 'text-field',
    results: 'parts',
    // The format has a place of its own for them.
    system: 'anywhere',
    schemas: 'closed',
    toolSchemas: 'closed',
    toolRoots: 'no-union',
  },
  'google-gemini': {
    ...CHAT,
    names: GOOGLE_NAMES,
    callIds: { ...upTo(1_024), unique: 'turn' },
    outputs: 'after-calls',
    arguments: 'object',
    failures: 'field',
    results: 'text',
    system: 'anywhere',
    stops: 5,
  },
  'bedrock-converse': {
    ...CHAT,
    names: WORDS,
    callIds: {
      fits: /^[a-zA-Z0-9_.:-]{1,64}$/,
      foreign: /[^a-zA-Z0-9_.:-]/g,
      maxChars: 64,
      unique: 'request',
    },
    outputs: 'after-calls',
    arguments: 'object',
    failures: 'text-field',
    results: 'parts',
    system: 'anywhere',
    schemas: 'closed',
    toolSchemas: 'closed',
    toolRoots: 'no-union',
  },
}

/** By quirk: what it changes in the row of which format. */
const OF_QUIRK: Readonly<Partial<Record<Quirk, { readonly [name in FormatName]?: Partial<Preconditions> }>>> =
  {
    'openai-limits': {
      'openai-chat': {
        callIds: { ...upTo(40), unique: 'turn' },
        toolRoots: 'object',
        jsonWord: true,
        stops: 4,
      },
    },
    'nine-letter-call-ids': {
      'openai-chat': {
        callIds: {
          fits: /^[a-zA-Z0-9]{9}$/,
          foreign: /[^a-zA-Z0-9]/g,
          maxChars: 9,
          unique: 'request',
          hashed: true,
        },
      },
    },
    'strict-template': { 'openai-chat': { system: 'first', arguments: 'object' } },
    'replay-reasoning': { 'openai-chat': { thought: '' } },
    'blank-reasoning': { 'openai-chat': { thought: ' ' } },
    'no-strict-tools': { 'anthropic-messages': { toolSchemas: 'any' } },
  }

/** By provider: what it demands in each format. */
const known = new WeakMap<Provider, Map<FormatName, Preconditions>>()

export function preconditionsOf(format: FormatName, provider: Provider): Preconditions {
  const found = known.get(provider)?.get(format)
  return found ?? remember(format, provider)
}

function remember(format: FormatName, provider: Provider): Preconditions {
  const changes = provider.quirks.map(quirk => OF_QUIRK[quirk]?.[format])
  const preconditions: Preconditions = Object.assign({}, OF_FORMAT[format], ...changes)
  const formats = known.get(provider) ?? new Map<FormatName, Preconditions>()
  known.set(provider, formats.set(format, preconditions))
  return preconditions
}
