/**
 * Workspaces and end users, the bodies of credits, and the dates and times in bodies. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { refuseField } from '../../base/errors.ts'
import { AMOUNT_MAX_USD } from '../../base/money.ts'
import { SERVER_TOOL_PATTERN } from '../gateway-tools.ts'
import { bodyCheck } from '../json/body.ts'
import { compile, instant, maybe, nullable, text } from '../json/schema.ts'
import {
  CREDIT_NOTE_MAX_CHARS,
  END_USER_WEIGHT_DEFAULT,
  END_USER_WEIGHT_MAX,
  IDENTIFIER_MAX_CHARS,
  WORKSPACE_DESCRIPTION_MAX_CHARS,
  WORKSPACE_NAME_MAX_CHARS,
  WORKSPACE_SLUG_PATTERN,
} from '../limits.ts'
import { loopsField } from './loops.ts'
import { rateLimitField } from './rate-limit.ts'
import {
  type ChangeOf,
  computedFields,
  Declaration,
  fixedFields,
  inBodies,
  type ReadingContext,
  type RecordOf,
} from './record.ts'
import { cacheField } from './response-cache.ts'

// Workspaces

const workspaceName = text({ min: 1, max: WORKSPACE_NAME_MAX_CHARS, storable: true, singleLine: true })
const slug = Type.String({
  pattern: WORKSPACE_SLUG_PATTERN,
  description: '1 to 50 lowercase letters and digits, with single hyphens between them',
})
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

const workspaceFields = {
  /** `ws_default` or a random UUID. */
  id: { schema: Type.String() },
  name: { schema: Type.String(), ...inBodies(workspaceName) },
  /** Unique within the organization. */
  slug: {
    schema: Type.String(),
    ...inBodies(slug),
    // A slug in the form of an id could name two workspaces.
    read(slug: string, { field }: ReadingContext): string {
      if (UUID.test(slug)) throw refuseField(field, 'must not look like an id')
      return slug
    },
  },
  description: {
    schema: nullable(Type.String()),
    initial: null,
    ...inBodies(maybe(text({ max: WORKSPACE_DESCRIPTION_MAX_CHARS, storable: true }))),
  },
  ...computedFields(Type.Boolean(), 'isDefault'),
  ...fixedFields(Type.Null(), null, 'createdBy'),
  ...computedFields(Type.String(), 'defaultGuardrailId'),
  // Settings that this version does not have are shown as unset, because clients of the interface expect the fields.
  ...fixedFields(Type.Null(), null, 'defaultTextModel', 'defaultImageModel', 'defaultProviderSort'),
  /** Names of server tools, without a prefix, that its requests cannot use; null: none. */
  disabledTools: {
    schema: nullable(Type.Array(Type.String())),
    column: 'json',
    wire: 'disabled_server_tools',
    initial: null,
    ...inBodies(
      maybe(
        Type.Array(
          Type.String({
            pattern: SERVER_TOOL_PATTERN,
            description: 'the name of a server tool, such as gateway:web_search',
          }),
          { maxItems: 100 },
        ),
      ),
    ),
    /** Accepts `gateway:<name>`, `openrouter:<name>` and the bare name. */
    read: (tools: readonly string[]): readonly string[] | null =>
      tools.length === 0
        ? null
        : [...new Set(tools.map(name => name.replace(/^(?:gateway|openrouter):/, '')))],
    write: (tools: readonly string[] | null) => tools?.map(name => `gateway:${name}`) ?? null,
  },
  /** For the sum of its keys. */
  rateLimit: rateLimitField,
  /** For keys without a policy of their own. */
  loops: loopsField,
  /** For keys without a policy of their own. */
  cache: cacheField,
  ...fixedFields(Type.Boolean(), false, 'includeByokInBudgets'),
  ...fixedFields(Type.Null(), null, 'ioLoggingApiKeyIds'),
  ...fixedFields(Type.Number(), 0, 'ioLoggingSamplingRate'),
  ...fixedFields(Type.Boolean(), false, 'isDataDiscountLoggingEnabled', 'isObservabilityBroadcastEnabled'),
  ...fixedFields(Type.Boolean(), false, 'isObservabilityIoLoggingEnabled'),
  createdAt: { schema: instant },
  updatedAt: { schema: instant },
  organizationId: { schema: Type.String(), only: 'stored' },
} as const

export const WORKSPACE = new Declaration(workspaceFields)
export type WorkspaceRecord = RecordOf<typeof workspaceFields>
/** Absent fields keep their value. */
export type WorkspaceChange = ChangeOf<typeof workspaceFields>

// End users

/** The same string that inference requests carry as `user`. Nothing is trimmed, folded or normalized. */
export const EndUserName = text({ min: 1, max: IDENTIFIER_MAX_CHARS, noControls: true })
const weight = Type.Integer({ minimum: END_USER_WEIGHT_DEFAULT, maximum: END_USER_WEIGHT_MAX })

const endUserFields = {
  user: { schema: Type.String(), as: 'endUser', create: EndUserName },
  isActive: { schema: Type.Boolean(), column: 'flag', initial: true, change: Type.Boolean() },
  /** Its share of an API key at its limit. */
  weight: {
    schema: Type.Integer(),
    initial: END_USER_WEIGHT_DEFAULT,
    create: maybe(weight),
    change: weight,
  },
  rateLimit: rateLimitField,
  createdAt: { schema: instant },
  updatedAt: { schema: instant },
  organizationId: { schema: Type.String(), only: 'stored' },
} as const

export const END_USER = new Declaration(endUserFields)
export type EndUserRecord = RecordOf<typeof endUserFields>
/** Absent fields keep their value. */
export type EndUserChange = ChangeOf<typeof endUserFields>

/** Each throws GatewayError `invalid_request` that names the field. */
export const checkEndUserCreation = bodyCheck(END_USER.creation)
export const checkEndUserUpdate = bodyCheck(END_USER.update)

/** True if a tracking string may be registered as an end user. */
export const isEndUserName = compile(EndUserName)

// Credits

export const CreditCreation = Type.Object(
  {
    /** US dollars; negative to withdraw. */
    amount: Type.Number({ minimum: -AMOUNT_MAX_USD, maximum: AMOUNT_MAX_USD }),
    note: maybe(text({ max: CREDIT_NOTE_MAX_CHARS, storable: true })),
    /** The client's own name for the entry. A second entry with the same name adds nothing. */
    id: maybe(text({ min: 1, max: IDENTIFIER_MAX_CHARS, storable: true, singleLine: true })),
  },
  { additionalProperties: false },
)
export type CreditCreation = Static<typeof CreditCreation>

// Times

const INSTANT = /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/
const DAY = /^\d{4}-\d{2}-\d{2}$/

/** Unix milliseconds of an ISO 8601 time with seconds and `Z` or an offset; null: another format. */
export function parseInstant(text: string): number | null {
  const [, local] = INSTANT.exec(text) ?? []
  // The runtime reads 30 February as 2 March, and 24:00 as the next day.
  if (local === undefined || !isExistingTime(`${local}.000Z`)) return null
  const ms = Date.parse(text)
  return Number.isNaN(ms) ? null : ms
}

/** Unix milliseconds of the midnight (UTC) at which a day `YYYY-MM-DD` begins; null: there is no such day. */
export function parseDay(text: string): number | null {
  const midnight = `${text}T00:00:00.000Z`
  return DAY.test(text) && isExistingTime(midnight) ? Date.parse(midnight) : null
}

function isExistingTime(iso: string): boolean {
  const ms = Date.parse(iso)
  return !Number.isNaN(ms) && new Date(ms).toISOString() === iso
}
