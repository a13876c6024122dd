/** GET /activity?dimensions=: usage over any range of days, summed by the dimensions that the caller names. */

import { GatewayError, refuseField } from '../../base/errors.ts'
import { sumToUsd } from '../../base/money.ts'
import { periodStart } from '../../callers/limits/periods.ts'
import { chargeOf } from '../../callers/limits/spending.ts'
import { IDENTIFIER_MAX_CHARS, MODEL_MAX_CHARS } from '../../protocol/limits.ts'
import { parseDay } from '../../protocol/management/management.ts'
import {
  type DimensionFilter,
  type DimensionRow,
  USAGE_DIMENSIONS,
  type UsageDimension,
} from '../../storage/usage.ts'
import type { ApiRequest, Reply } from '../operation.ts'
import { hashParameter, parameter, textParameter } from './paging.ts'
import type { ManagementParts } from './parts.ts'

const DAY_MS = 86_400_000
/** The parts that sums of usage need. */
export type ActivityParts = Pick<ManagementParts, 'store' | 'clock' | 'byokFeePercent' | 'providerName'>

/** Days before today if there is no `start_date`, as in GET /activity without dimensions. */
const DEFAULT_DAYS = 30
/** Only together with `dimensions`. */
const RANGE_PARAMETERS = ['start_date', 'end_date'] as const

/** The fields of a row that contain its values. */
const DIMENSION_FIELDS = {
  day: 'date',
  model: 'model',
  provider: 'provider',
  workspace: 'workspace_id',
  key: 'api_key_hash',
  user: 'user_id',
  session: 'session_id',
  agent: 'agent_id',
} as const satisfies Record<UsageDimension, string>

/** The dimensions that the query names; null: it names none. @throws GatewayError `invalid_request` */
export function dimensionsOf(query: URLSearchParams): readonly UsageDimension[] | null {
  const value = parameter(query, 'dimensions')
  if (value === undefined) {
    const range = RANGE_PARAMETERS.find(name => query.has(name))
    if (range !== undefined)
      throw refuseField(range, 'works only with dimensions, such as dimensions=day,model')
    return null
  }
  const candidates = value.split(',').map(text => USAGE_DIMENSIONS.find(dimension => dimension === text))
  const dimensions = candidates.filter(dimension => dimension !== undefined)
  if (dimensions.length < candidates.length || new Set(dimensions).size < candidates.length) {
    throw refuseField(
      'dimensions',
      `must be one or more of ${USAGE_DIMENSIONS.join(', ')}, each at most once`,
    )
  }
  for (const name of ['group_by', 'date']) {
    if (query.has(name)) throw refuseField(name, 'must not be given together with dimensions')
  }
  return dimensions
}

export async function listDimensions(
  { store, clock, byokFeePercent, providerName }: ActivityParts,
  request: ApiRequest,
  dimensions: readonly UsageDimension[],
  reply: Reply,
): Promise<void> {
  const rows = await store.ledger.byDimensions(filterOf(request, dimensions, clock.nowMs()))
  if (rows === null) {
    throw new GatewayError(
      'invalid_request',
      'dimensions: the result has too many rows for one answer: name fewer dimensions, a shorter range, a key or a workspace',
    )
  }
  reply.json(200, { data: rows.map(row => toDocument(row, byokFeePercent, providerName)) })
}

function filterOf(
  { query, key }: ApiRequest,
  dimensions: readonly UsageDimension[],
  nowMs: number,
): DimensionFilter {
  const today = Date.parse(periodStart('daily', nowMs))
  const last = dayOf(query, 'end_date') ?? today
  const first = dayOf(query, 'start_date') ?? Math.min(today, last) - DEFAULT_DAYS * DAY_MS
  if (first > last) throw refuseField('start_date', 'must not be later than end_date')
  const filterValues = {
    workspaceId: textParameter(query, 'workspace_id', IDENTIFIER_MAX_CHARS),
    keyHash: hashParameter(query),
    endUser: textParameter(query, 'user_id', IDENTIFIER_MAX_CHARS),
    model: textParameter(query, 'model', MODEL_MAX_CHARS),
    provider: textParameter(query, 'provider', IDENTIFIER_MAX_CHARS),
  }
  const filters = Object.entries(filterValues).filter(([, value]) => value !== undefined)
  return {
    organizationId: key.organizationId,
    dimensions,
    since: new Date(first).toISOString(),
    until: new Date(last + DAY_MS).toISOString(),
    ...(Object.fromEntries(filters) as Partial<DimensionFilter>),
  }
}

function dayOf(query: URLSearchParams, name: (typeof RANGE_PARAMETERS)[number]): number | undefined {
  const text = parameter(query, name)
  if (text === undefined) return undefined
  const day = parseDay(text)
  if (day === null) throw refuseField(name, 'must be a day (UTC) as YYYY-MM-DD')
  return day
}

function toDocument(
  row: DimensionRow,
  byokFeePercent: number,
  providerName: ManagementParts['providerName'],
) {
  const { values } = row
  const document: Record<string, string | number | null> = {}
  for (const dimension of USAGE_DIMENSIONS) {
    if (!(dimension in values)) continue
    const value = values[dimension] ?? null
    document[DIMENSION_FIELDS[dimension]] = value
    if (dimension === 'provider') {
      document['provider_name'] = value === null ? null : (providerName(value) ?? value)
    }
  }
  return { ...document, ...toUsageDocument(row, byokFeePercent) }
}

/** The sums of a row, in the form of every usage list. */
export function toUsageDocument(row: Omit<DimensionRow, 'values'>, byokFeePercent: number) {
  return {
    usage: sumToUsd(chargeOf(row, byokFeePercent)),
    byok_usage_inference: sumToUsd(row.byokCost),
    requests: row.requests,
    prompt_tokens: Number(row.inputTokens),
    completion_tokens: Number(row.outputTokens),
    reasoning_tokens: Number(row.reasoningTokens),
  }
}
