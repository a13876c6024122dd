/**
 * Guardrails: stored rule sets for the requests of a workspace, a member or an API key. Their records and bodies, and
 * the rules across fields. Pure. features/guardrails/custom.ts checks if a pattern can be run.
 */
import { type Static, type TSchema, Type } from '@sinclair/typebox'
import { refuseField } from '../../base/errors.ts'
import { AMOUNT_MAX_USD, type MicroUsd, microToUsd, toMicroUsd } from '../../base/money.ts'
import { REGIONS } from '../data-regions.ts'
import { bodyCheck } from '../json/body.ts'
import { instant, maybe, nullable, oneOf, text, usd } from '../json/schema.ts'
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
import { type ChangeOf, Declaration, inBodies, type ReadingContext, type RecordOf } from './record.ts'

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

/** `mask`: for requests only; the answer contains the original values again. */
export type FilterAction = 'redact' | 'mask' | 'block' | 'flag'
export type ScanScope = 'user_only' | 'all_messages'
/** Days begin at midnight UTC, weeks on Monday. */
export type ResetInterval = 'daily' | 'weekly' | 'monthly'
export type FailMode = 'open' | 'closed'

const builtinSlugs = Object.keys(BUILTIN_LABELS) as BuiltinSlug[]
const action = oneOf('redact', 'mask', 'block', 'flag')
const outputAction = oneOf('redact', 'block', 'flag')
/** Read only: accepted, so that clients can send back what they have read, and ignored. */
const ignoredLabel = Type.Optional(Type.Unknown())

const BuiltinEntry = Type.Object(
  {
    slug: oneOf(...builtinSlugs),
    action,
    scan_scope: maybe(oneOf('user_only', 'all_messages')),
    label: ignoredLabel,
  },
  { additionalProperties: false },
)
type BuiltinEntry = Static<typeof BuiltinEntry>

/** Without `scan_scope`: no caller is the author of output. */
const OutputBuiltinEntry = Type.Object(
  { slug: oneOf(...builtinSlugs), action: outputAction, label: ignoredLabel },
  { additionalProperties: false },
)

const filterFields = {
  pattern: text({ min: 1, max: FILTER_PATTERN_MAX_CHARS, storable: true }),
  label: maybe(text({ min: 1, max: FILTER_LABEL_MAX_CHARS, storable: true, singleLine: true })),
}
const FilterEntry = Type.Object({ ...filterFields, action }, { additionalProperties: false })
type FilterEntry = Static<typeof FilterEntry>
const OutputFilterEntry = Type.Object(
  { ...filterFields, action: outputAction },
  { additionalProperties: false },
)

/** Each slug once. */
const builtins = <Entry extends typeof BuiltinEntry | typeof OutputBuiltinEntry>(entry: Entry) =>
  maybe(Type.Array(entry, { maxItems: builtinSlugs.length }))
const filters = maybe(Type.Array(FilterEntry, { maxItems: FILTERS_MAX_ITEMS }))
const outputFilters = maybe(Type.Array(OutputFilterEntry, { maxItems: FILTERS_MAX_ITEMS }))

const OutputEntry = Type.Object(
  {
    content_filter_builtins: builtins(OutputBuiltinEntry),
    content_filters: outputFilters,
    window_bytes: maybe(Type.Integer({ minimum: OUTPUT_WINDOW_MIN_BYTES, maximum: OUTPUT_WINDOW_MAX_BYTES })),
    overlap_bytes: maybe(Type.Integer({ minimum: 0, maximum: OUTPUT_WINDOW_MAX_BYTES - 1 })),
  },
  { additionalProperties: false },
)
export type OutputEntry = Static<typeof OutputEntry>

/** A built-in detector with its action. */
export interface BuiltinFilter {
  readonly slug: BuiltinSlug
  readonly action: FilterAction
  readonly scanScope: ScanScope
}

/** A pattern that the user wrote. */
export interface CustomFilter {
  readonly pattern: string
  readonly action: FilterAction
  /** Replaces redacted text and names the pattern in records; null: the general label. */
  readonly label: string | null
}

/** Rules for the output of models, which is scanned in overlapping windows. */
export interface OutputRules {
  /** Each slug once. */
  readonly contentFilterBuiltins: readonly BuiltinFilter[]
  readonly contentFilters: readonly CustomFilter[]
  readonly windowBytes: number
  readonly overlapBytes: number
}

/** Requirement of zero data retention (ZDR), by the vendor of the model. */
export interface ZdrRules {
  readonly anthropic: boolean | null
  readonly openai: boolean | null
  readonly google: boolean | null
  readonly xai: boolean | null
  readonly other: boolean | null
}

const builtinAnswer = { slug: oneOf(...builtinSlugs), action, label: Type.String() }
const filtersAnswer = nullable(
  Type.Array(Type.Object({ pattern: Type.String(), action, label: nullable(Type.String()) })),
)

/** Null: no restriction. An empty list is refused, because it could mean nothing or everything. */
const restriction = <Item extends typeof ModelSlug | ReturnType<typeof text>>(item: Item) => ({
  schema: nullable(Type.Array(Type.String())),
  ...rule(maybe(Type.Array(item, { minItems: 1, maxItems: GUARDRAIL_LIST_MAX_ITEMS }))),
  read: withoutRepetitions,
})
const provider = text({ min: 1, max: IDENTIFIER_MAX_CHARS })
const flag = maybe(Type.Boolean())
const name = text({ min: 1, max: GUARDRAIL_NAME_MAX_CHARS, storable: true, singleLine: true })
const region = oneOf(...REGIONS)
/** A requirement of zero data retention, as bodies and answers have it. Records have all of these in `enforceZdr`. */
const zdr = { schema: nullable(Type.Boolean()), only: 'answer', ...inBodies(flag) } as const

/** A rule; null restricts nothing. */
function rule<Schema extends TSchema>(schema: Schema) {
  return { inside: 'rules', initial: null, ...inBodies(schema) } as const
}

const ruleFields = {
  allowedModels: restriction(ModelSlug),
  ignoredModels: restriction(ModelSlug),
  allowedProviders: restriction(provider),
  ignoredProviders: restriction(provider),
  enforceZdr: {
    schema: Type.Unsafe<ZdrRules>(Type.Object({})),
    only: 'stored',
    inside: 'rules',
    initial: { anthropic: null, openai: null, google: null, xai: null, other: null },
  },
  enforceZdrOfAll: { ...zdr, wire: 'enforce_zdr' },
  enforceZdrAnthropic: zdr,
  enforceZdrOpenai: zdr,
  enforceZdrGoogle: zdr,
  enforceZdrXai: zdr,
  enforceZdrOther: zdr,
  enableFreeModelTraining: { schema: nullable(Type.Boolean()), ...rule(flag) },
  enableFreeModelPublication: { schema: nullable(Type.Boolean()), ...rule(flag) },
  enablePaidModelTraining: { schema: nullable(Type.Boolean()), ...rule(flag) },
  /** Regions whose hosts may receive the requests. */
  allowedDataRegions: {
    schema: nullable(Type.Array(region)),
    ...rule(maybe(Type.Array(region, { minItems: 1, maxItems: 3 }))),
    read: withoutRepetitions,
  },
  /** For the input, as `contentFilters`; each slug once. */
  contentFilterBuiltins: {
    schema: nullable(
      Type.Array(
        Type.Object({ ...builtinAnswer, scan_scope: Type.Optional(oneOf('user_only', 'all_messages')) }),
      ),
    ),
    type: Type.Unsafe<readonly BuiltinFilter[]>(Type.Array(Type.Unknown())),
    ...rule(builtins(BuiltinEntry)),
    initial: [],
    read: readBuiltins,
    write: (filters: readonly BuiltinFilter[]) => nullIfEmpty(filters.map(toInputBuiltin)),
  },
  contentFilters: {
    schema: filtersAnswer,
    type: Type.Unsafe<readonly CustomFilter[]>(Type.Array(Type.Unknown())),
    ...rule(filters),
    initial: [],
    read: readFilters,
    write: writeFilters,
  },
  output: {
    schema: nullable(
      Type.Object({
        content_filter_builtins: nullable(Type.Array(Type.Object(builtinAnswer))),
        content_filters: filtersAnswer,
        window_bytes: Type.Integer({ minimum: 0 }),
        overlap_bytes: Type.Integer({ minimum: 0 }),
      }),
    ),
    type: Type.Unsafe<OutputRules | null>(Type.Unknown()),
    ...rule(maybe(OutputEntry)),
    read: readOutput,
    write: writeOutput,
  },
  /** Decides whether a request continues if its content could not be scanned. */
  failMode: {
    schema: oneOf('open', 'closed'),
    ...rule(maybe(oneOf('open', 'closed'))),
    initial: 'closed',
  },
} as const

const fields = {
  /** UUID. */
  id: { schema: Type.String() },
  name: { schema: Type.String(), ...inBodies(name) },
  description: {
    schema: nullable(Type.String()),
    initial: null,
    ...inBodies(maybe(text({ max: GUARDRAIL_DESCRIPTION_MAX_CHARS, storable: true }))),
  },
  /** Null: the whole organization. */
  workspaceId: {
    schema: nullable(Type.String()),
    initial: null,
    create: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true })),
  },
  /** True if it applies to its whole workspace, without assignment, as long as the workspace exists. */
  isWorkspaceDefault: { schema: Type.Boolean(), column: 'flag', initial: false },
  /** Keys and members that it is assigned to. With 0 it applies to nobody, unless it is the default of a workspace. */
  assigned: { schema: Type.Integer({ minimum: 0 }), only: 'answer' },
  /** Spending limit of each assignee per `resetInterval`; both or neither is null. */
  limit: {
    schema: nullable(usd),
    column: 'big',
    as: 'spendLimit',
    wire: 'limit_usd',
    initial: null,
    ...inBodies(maybe(Type.Number({ minimum: 0, maximum: AMOUNT_MAX_USD }))),
    read: readAmount,
    write: (limit: MicroUsd | null) => (limit === null ? null : microToUsd(limit)),
  },
  resetInterval: {
    schema: nullable(oneOf('daily', 'weekly', 'monthly')),
    initial: null,
    ...inBodies(maybe(oneOf('daily', 'weekly', 'monthly'))),
  },
  includeByokInBudgets: { schema: Type.Boolean(), column: 'flag', initial: false, ...inBodies(flag) },
  ...ruleFields,
  createdAt: { schema: instant },
  updatedAt: { schema: instant },
  organizationId: { schema: Type.String(), only: 'stored' },
  /** Starts at 1 and grows with each change. Id and revision identify the compiled rules. */
  revision: { schema: Type.Integer(), only: 'stored', initial: 1 },
} as const

export const GUARDRAIL = new Declaration(fields, ['name', 'workspace_id'])
export type GuardrailRecord = RecordOf<typeof fields>
/** The rules of a guardrail. A null field sets no rule. */
export type GuardrailRules = RecordOf<typeof ruleFields>
/** Rules that restrict nothing. */
export const NO_RULES: GuardrailRules = new Declaration(ruleFields).initial
/** Changes to a guardrail; absent fields keep their value. */
export type GuardrailChange = ChangeOf<typeof fields> & Partial<Pick<GuardrailRules, 'enforceZdr'>>

export const GuardrailCreation = GUARDRAIL.creation
export type GuardrailCreation = Static<typeof GuardrailCreation>
/** Absent fields keep their value; null clears one. The workspace of a guardrail never changes. */
export const GuardrailUpdate = GUARDRAIL.update
export type GuardrailUpdate = Static<typeof GuardrailUpdate>

function readAmount(limit: number, { field }: ReadingContext): MicroUsd {
  const micros = toMicroUsd(limit)
  if (micros === null) throw refuseField(field, 'must have at most 6 decimals')
  return micros
}

function withoutRepetitions<Item>(list: readonly Item[]): readonly Item[] {
  return [...new Set(list)]
}

function readBuiltins(entries: readonly Omit<BuiltinEntry, 'label'>[]): readonly BuiltinFilter[] {
  return entries.map(({ slug, action, scan_scope: scope }) => ({
    slug,
    action,
    scanScope: scope ?? 'all_messages',
  }))
}

function readFilters(entries: readonly FilterEntry[]): readonly CustomFilter[] {
  return entries.map(({ pattern, action, label }) => ({ pattern, action, label: label ?? null }))
}

function readOutput(output: OutputEntry): OutputRules {
  const windowBytes = output.window_bytes ?? OUTPUT_WINDOW_DEFAULT_BYTES
  return {
    contentFilterBuiltins: readBuiltins(output.content_filter_builtins ?? []),
    contentFilters: readFilters(output.content_filters ?? []),
    windowBytes,
    overlapBytes: output.overlap_bytes ?? defaultOverlapBytes(windowBytes),
  }
}

function nullIfEmpty<Item>(list: readonly Item[]): readonly Item[] | null {
  return list.length === 0 ? null : list
}

function toBuiltin({ slug, action }: BuiltinFilter) {
  return { slug, action, label: BUILTIN_LABELS[slug] }
}

function toInputBuiltin(filter: BuiltinFilter) {
  const builtin = toBuiltin(filter)
  return filter.slug === INJECTION_SLUG ? { ...builtin, scan_scope: filter.scanScope } : builtin
}

function writeFilters(filters: readonly CustomFilter[]) {
  return nullIfEmpty(filters.map(({ pattern, action, label }) => ({ pattern, action, label })))
}

function writeOutput(output: OutputRules | null) {
  return (
    output && {
      content_filter_builtins: nullIfEmpty(output.contentFilterBuiltins.map(toBuiltin)),
      content_filters: writeFilters(output.contentFilters),
      window_bytes: output.windowBytes,
      overlap_bytes: output.overlapBytes,
    }
  )
}

/** A text to check: as a user's request, or as a reply. */
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
/** A member's id, as in the API keys' field `creator_user_id`. */
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

/** The reason why a limit and its interval do not match, with the field to correct; null: they match. */
export function budgetRefusal(limit: number | null, interval: ResetInterval | null): string | null {
  if (limit !== null && interval === null) return 'reset_interval: is required together with limit_usd'
  if (limit === null && interval !== null) return 'limit_usd: is required together with reset_interval'
  return null
}

/** The reason why the filters of one body are invalid, with the field; null: they are valid. */
export function filtersRefusal(body: GuardrailUpdate): string | null {
  for (const [index, { slug, scan_scope: scope }] of (body.content_filter_builtins ?? []).entries()) {
    if (slug !== INJECTION_SLUG && scope === 'user_only') {
      return `content_filter_builtins[${index}].scan_scope: must be all_messages, except for ${INJECTION_SLUG}`
    }
  }
  return (
    repetitionRefusal('content_filter_builtins', body.content_filter_builtins) ??
    repetitionRefusal('output.content_filter_builtins', body.output?.content_filter_builtins) ??
    windowRefusal(body.output)
  )
}

/** The reason why the patterns together are too long, with the field; null: they are not. */
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

/** At most half of a window: otherwise most of the work would be done twice. */
export function defaultOverlapBytes(windowBytes: number): number {
  return Math.min(OUTPUT_OVERLAP_DEFAULT_BYTES, Math.floor(windowBytes / 2))
}

function windowRefusal(output: OutputEntry | null | undefined): string | null {
  if (output == null) return null
  const window = output.window_bytes ?? OUTPUT_WINDOW_DEFAULT_BYTES
  const overlap = output.overlap_bytes ?? defaultOverlapBytes(window)
  return overlap < window ? null : 'output.overlap_bytes: must be less than window_bytes'
}

function repetitionRefusal(
  path: string,
  list: readonly { readonly slug: string }[] | null | undefined,
): string | null {
  const seenSlugs = new Set<string>()
  for (const [index, { slug }] of (list ?? []).entries()) {
    if (seenSlugs.has(slug)) return `${path}[${index}].slug: is listed already`
    seenSlugs.add(slug)
  }
  return null
}
