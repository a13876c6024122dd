/**
 * Schemas of the bodies of guardrail operations, and the rules across their fields. Pure. features/guardrails/custom.ts checks
 * whether a pattern can be run.
 */
import { type Static, Type } from '@sinclair/typebox'
import { AMOUNT_MAX_USD } from '../../base/money.ts'
import { bodyCheck } from '../json/body.ts'
import { maybe, oneOf, text } from '../json/schema.ts'
import {
  ASSIGNEES_MAX_ITEMS,
  FILTER_LABEL_MAX_CHARS,
  FILTER_PATTERN_MAX_CHARS,
  FILTER_PATTERNS_TOTAL_MAX_CHARS,
  FILTERS_MAX_ITEMS,
  GUARDRAIL_CHECK_MAX_CHARS,
  GUARDRAIL_DESCRIPTION_MAX_CHARS,
  GUARDRAIL_LIST_MAX_ITEMS,
  GUARDRAIL_NAME_MAX_CHARS,
  IDENTIFIER_MAX_CHARS,
  OUTPUT_OVERLAP_DEFAULT_BYTES,
  OUTPUT_WINDOW_DEFAULT_BYTES,
  OUTPUT_WINDOW_MAX_BYTES,
  OUTPUT_WINDOW_MIN_BYTES,
} from '../limits.ts'
import { KeyHash, ModelSlug } from './byok.ts'

/** The built-in detectors, each with its replacement in redacted text. */
export const BUILTIN_LABELS = {
  email: '[EMAIL]',
  phone: '[PHONE]',
  ssn: '[SSN]',
  'credit-card': '[CREDIT_CARD]',
  'ip-address': '[IP_ADDRESS]',
  secrets: '[SECRET]',
  'person-name': '[PERSON_NAME]',
  address: '[ADDRESS]',
  'regex-prompt-injection': '[PROMPT_INJECTION]',
} as const
export type BuiltinSlug = keyof typeof BUILTIN_LABELS
/** The only detector with a `scan_scope`. */
export const INJECTION_SLUG = 'regex-prompt-injection' satisfies BuiltinSlug

export type FilterAction = 'redact' | 'block' | 'flag'
export type ScanScope = 'user_only' | 'all_messages'
/** Days begin at midnight UTC, weeks on Monday. */
export type ResetInterval = 'daily' | 'weekly' | 'monthly'
/** A region in which data can be required to stay. */
export type DataRegion = 'europe' | 'us'
/** A region that a guardrail can allow; `global` stands for hosts that promise none. */
export type AllowedRegion = 'global' | DataRegion
export type FailMode = 'open' | 'closed'

const slugs = Object.keys(BUILTIN_LABELS) as BuiltinSlug[]
const action = oneOf('redact', 'block', 'flag')
/** Read only: accepted, so that clients can send back what they have read, and ignored. */
const ignoredLabel = Type.Optional(Type.Unknown())

const BuiltinEntry = Type.Object(
  {
    slug: oneOf(...slugs),
    action,
    scan_scope: maybe(oneOf('user_only', 'all_messages')),
    label: ignoredLabel,
  },
  { additionalProperties: false },
)
export type BuiltinEntry = Static<typeof BuiltinEntry>

/** Without `scan_scope`: output has no author among the callers. */
const OutputBuiltinEntry = Type.Object(
  { slug: oneOf(...slugs), action, label: ignoredLabel },
  { additionalProperties: false },
)

const FilterEntry = Type.Object(
  {
    pattern: text({ min: 1, max: FILTER_PATTERN_MAX_CHARS, storable: true }),
    action,
    label: maybe(text({ min: 1, max: FILTER_LABEL_MAX_CHARS, storable: true, singleLine: true })),
  },
  { additionalProperties: false },
)
export type FilterEntry = Static<typeof FilterEntry>

/** Each slug once. */
const builtins = <Entry extends typeof BuiltinEntry | typeof OutputBuiltinEntry>(entry: Entry) =>
  maybe(Type.Array(entry, { maxItems: slugs.length }))
const filters = maybe(Type.Array(FilterEntry, { maxItems: FILTERS_MAX_ITEMS }))

const OutputEntry = Type.Object(
  {
    content_filter_builtins: builtins(OutputBuiltinEntry),
    content_filters: filters,
    window_bytes: maybe(Type.Integer({ minimum: OUTPUT_WINDOW_MIN_BYTES, maximum: OUTPUT_WINDOW_MAX_BYTES })),
    overlap_bytes: maybe(Type.Integer({ minimum: 0, maximum: OUTPUT_WINDOW_MAX_BYTES - 1 })),
  },
  { additionalProperties: false },
)
export type OutputEntry = Static<typeof OutputEntry>

/** Null: no restriction. An empty list is refused, since readers could take it for nothing or for everything. */
const restriction = <Item extends typeof ModelSlug | ReturnType<typeof text>>(item: Item) =>
  maybe(Type.Array(item, { minItems: 1, maxItems: GUARDRAIL_LIST_MAX_ITEMS }))
const provider = text({ min: 1, max: IDENTIFIER_MAX_CHARS })
const flag = maybe(Type.Boolean())

const name = text({ min: 1, max: GUARDRAIL_NAME_MAX_CHARS, storable: true, singleLine: true })
const settings = {
  description: maybe(text({ max: GUARDRAIL_DESCRIPTION_MAX_CHARS, storable: true })),
  /** US dollars. */
  limit_usd: maybe(Type.Number({ minimum: 0, maximum: AMOUNT_MAX_USD })),
  reset_interval: maybe(oneOf('daily', 'weekly', 'monthly')),
  include_byok_in_budgets: flag,
  allowed_models: restriction(ModelSlug),
  ignored_models: restriction(ModelSlug),
  allowed_providers: restriction(provider),
  ignored_providers: restriction(provider),
  enforce_zdr: flag,
  enforce_zdr_anthropic: flag,
  enforce_zdr_openai: flag,
  enforce_zdr_google: flag,
  enforce_zdr_xai: flag,
  enforce_zdr_other: flag,
  enable_free_model_training: flag,
  enable_free_model_publication: flag,
  enable_paid_model_training: flag,
  allowed_data_regions: maybe(Type.Array(oneOf('global', 'europe', 'us'), { minItems: 1, maxItems: 3 })),
  content_filter_builtins: builtins(BuiltinEntry),
  content_filters: filters,
  output: maybe(OutputEntry),
  fail_mode: maybe(oneOf('open', 'closed')),
}

export const GuardrailCreation = Type.Object(
  {
    name,
    workspace_id: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
    ...settings,
  },
  { additionalProperties: false },
)
export type GuardrailCreation = Static<typeof GuardrailCreation>

/** Absent fields keep their value; null clears one. The workspace of a guardrail never changes. */
export const GuardrailUpdate = Type.Object(
  { name: Type.Optional(name), ...settings },
  { additionalProperties: false },
)
export type GuardrailUpdate = Static<typeof GuardrailUpdate>

/** A text to look at: as a request of a user, or as a reply. */
export const GuardrailCheck = Type.Object(
  {
    text: text({ min: 1, max: GUARDRAIL_CHECK_MAX_CHARS }),
    side: Type.Optional(oneOf('input', 'output')),
  },
  { additionalProperties: false },
)
export type GuardrailCheck = Static<typeof GuardrailCheck>

export const KeyAssignees = Type.Object(
  { key_hashes: Type.Array(KeyHash, { minItems: 1, maxItems: ASSIGNEES_MAX_ITEMS }) },
  { additionalProperties: false },
)
/** A member's id, as API keys have it in `creator_user_id`. */
const MemberId = text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true, singleLine: true })
export const MemberAssignees = Type.Object(
  { member_user_ids: Type.Array(MemberId, { minItems: 1, maxItems: ASSIGNEES_MAX_ITEMS }) },
  { additionalProperties: false },
)

/** Each throws GatewayError `invalid_request` that names the field. */
export const checkGuardrailCreation = bodyCheck(GuardrailCreation)
export const checkGuardrailUpdate = bodyCheck(GuardrailUpdate)
export const checkGuardrailCheck = bodyCheck(GuardrailCheck)
export const checkKeyAssignees = bodyCheck(KeyAssignees)
export const checkMemberAssignees = bodyCheck(MemberAssignees)

/** The reason why a limit and its interval do not fit, with the field to correct; null: they fit. */
export function budgetRefusal(limit: number | null, interval: ResetInterval | null): string | null {
  if (limit !== null && interval === null) return 'reset_interval: is required together with limit_usd'
  if (limit === null && interval !== null) return 'limit_usd: is required together with reset_interval'
  return null
}

/** The reason why the filters of one body do not fit, with the field; null: they fit. */
export function filtersRefusal(body: GuardrailUpdate): string | null {
  for (const [at, { slug, scan_scope: scope }] of (body.content_filter_builtins ?? []).entries()) {
    if (slug !== INJECTION_SLUG && scope === 'user_only') {
      return `content_filter_builtins[${at}].scan_scope: must be all_messages, except for ${INJECTION_SLUG}`
    }
  }
  return (
    repetition('content_filter_builtins', body.content_filter_builtins) ??
    repetition('output.content_filter_builtins', body.output?.content_filter_builtins) ??
    windowRefusal(body.output)
  )
}

/** The reason why the patterns are too long together, with the field; null: they are not. */
export function patternsRefusal(
  input: readonly { readonly pattern: string }[],
  output: readonly { readonly pattern: string }[],
): string | null {
  let characters = 0
  for (const [path, list] of [
    ['content_filters', input],
    ['output.content_filters', output],
  ] as const) {
    for (const { pattern } of list) characters += pattern.length
    if (characters > FILTER_PATTERNS_TOTAL_MAX_CHARS) {
      return `${path}: all patterns together must have at most ${FILTER_PATTERNS_TOTAL_MAX_CHARS} characters`
    }
  }
  return null
}

/** Half of a window at most: otherwise most of the work would be done twice. */
export function defaultOverlapBytes(windowBytes: number): number {
  return Math.min(OUTPUT_OVERLAP_DEFAULT_BYTES, Math.floor(windowBytes / 2))
}

function windowRefusal(output: OutputEntry | null | undefined): string | null {
  if (output == null) return null
  const window = output.window_bytes ?? OUTPUT_WINDOW_DEFAULT_BYTES
  const overlap = output.overlap_bytes ?? defaultOverlapBytes(window)
  return overlap < window ? null : 'output.overlap_bytes: must be less than window_bytes'
}

function repetition(
  path: string,
  list: readonly { readonly slug: string }[] | null | undefined,
): string | null {
  const seen = new Set<string>()
  for (const [at, { slug }] of (list ?? []).entries()) {
    if (seen.has(slug)) return `${path}[${at}].slug: is listed already`
    seen.add(slug)
  }
  return null
}
