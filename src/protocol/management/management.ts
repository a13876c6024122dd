/**
 * Bodies of the management operations on workspaces, end users and credits, and the dates and times in them.
 * Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { AMOUNT_MAX_USD } from '../../base/money.ts'
import { SERVER_TOOL_PATTERN } from '../gateway-tools.ts'
import { bodyCheck } from '../json/body.ts'
import { compile, maybe, nullable, text } from '../json/schema.ts'
import {
  CREDIT_NOTE_MAX_CHARS,
  END_USER_WEIGHT_DEFAULT,
  END_USER_WEIGHT_MAX,
  IDENTIFIER_MAX_CHARS,
  WORKSPACE_DESCRIPTION_MAX_CHARS,
  WORKSPACE_NAME_MAX_CHARS,
  WORKSPACE_SLUG_PATTERN,
} from '../limits.ts'

// Workspaces

const workspaceName = text({ min: 1, max: WORKSPACE_NAME_MAX_CHARS, storable: true, singleLine: true })
const slug = Type.String({
  pattern: WORKSPACE_SLUG_PATTERN,
  description: '1 to 50 lowercase letters and digits, with single hyphens between them',
})
const description = text({ max: WORKSPACE_DESCRIPTION_MAX_CHARS, storable: true })

/** Server tools by `gateway:<name>`, `openrouter:<name>` or their bare name. */
const disabledTools = maybe(
  Type.Array(
    Type.String({
      pattern: SERVER_TOOL_PATTERN,
      description: 'the name of a server tool, such as gateway:web_search',
    }),
    { maxItems: 100 },
  ),
)

export const WorkspaceCreation = Type.Object(
  { name: workspaceName, slug, description: maybe(description), disabled_server_tools: disabledTools },
  { additionalProperties: false },
)
export type WorkspaceCreation = Static<typeof WorkspaceCreation>

/** Absent fields keep their value; null clears the description. */
export const WorkspaceUpdate = Type.Object(
  {
    name: Type.Optional(workspaceName),
    slug: Type.Optional(slug),
    description: Type.Optional(nullable(description)),
    disabled_server_tools: disabledTools,
  },
  { additionalProperties: false },
)
export type WorkspaceUpdate = Static<typeof WorkspaceUpdate>

// End users

/** The same string that inference requests carry as `user`. Nothing is trimmed, folded or normalized. */
export const EndUserName = text({ min: 1, max: IDENTIFIER_MAX_CHARS, noControls: true })

/** Shares of an API key at its limit; default 1. */
const weight = Type.Integer({ minimum: END_USER_WEIGHT_DEFAULT, maximum: END_USER_WEIGHT_MAX })

export const EndUserCreation = Type.Object(
  { user: EndUserName, weight: maybe(weight) },
  { additionalProperties: false },
)
export type EndUserCreation = Static<typeof EndUserCreation>

/** Absent fields keep their value; one of them is there. */
export const EndUserUpdate = Type.Object(
  { is_active: Type.Optional(Type.Boolean()), weight: Type.Optional(weight) },
  { additionalProperties: false },
)
export type EndUserUpdate = Static<typeof EndUserUpdate>

/** Each throws GatewayError `invalid_request` that names the field. */
export const checkEndUserCreation = bodyCheck(EndUserCreation)
export const checkEndUserUpdate = bodyCheck(EndUserUpdate)

/** True if a tracking string may be registered as an end user. */
export const isEndUserName = compile(EndUserName)

// Credits

export const CreditCreation = Type.Object(
  {
    /** US dollars; negative to take back. */
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

/** Unix milliseconds of an ISO 8601 time with seconds and `Z` or an offset; null: it is no such time. */
export function parseInstant(text: string): number | null {
  const [, local] = INSTANT.exec(text) ?? []
  // The runtime takes the 30th of February for the 2nd of March, and 24:00 for the next day.
  if (local === undefined || !exists(`${local}.000Z`)) return null
  const ms = Date.parse(text)
  return Number.isNaN(ms) ? null : ms
}

/** Unix milliseconds of the midnight (UTC) at which a day `YYYY-MM-DD` begins; null: there is no such day. */
export function parseDay(text: string): number | null {
  const midnight = `${text}T00:00:00.000Z`
  return DAY.test(text) && exists(midnight) ? Date.parse(midnight) : null
}

function exists(iso: string): boolean {
  const ms = Date.parse(iso)
  return !Number.isNaN(ms) && new Date(ms).toISOString() === iso
}
