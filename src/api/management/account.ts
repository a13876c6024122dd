/** GET, POST /credits and GET /activity: the organization's credits, and its usage by day. */

import { randomUUID } from 'node:crypto'
import { type Clock, isoInstant } from '../../base/clock.ts'
import { GatewayError, refuseField } from '../../base/errors.ts'
import { microToUsd, sumToUsd, toMicroUsd } from '../../base/money.ts'
import { periodStart } from '../../callers/limits/periods.ts'
import { chargeOf } from '../../callers/limits/spending.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { IDENTIFIER_MAX_CHARS } from '../../protocol/limits.ts'
import { CreditCreation, parseDay } from '../../protocol/management/management.ts'
import type { CreditEntry } from '../../storage/store.ts'
import type { ActivityFilter, ActivityRow, ClientName } from '../../storage/usage.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { type ActivityParts, dimensionsOf, listDimensions, toUsageDocument } from './activity-dimensions.ts'
import { audited } from './audit.ts'
import { expiryOf } from './key-authority.ts'
import { hashParameter, parameter, textParameter } from './paging.ts'
import type { ManagementParts } from './parts.ts'

const DAY_MS = 86_400_000
/** Completed days in GET /activity, in addition to today. */
const ACTIVITY_DAYS = 30

/** Groupings by names from clients, with the name's field. */
const CLIENT_GROUPS: ReadonlyMap<string, { readonly name: ClientName; readonly field: string }> = new Map([
  ['session', { name: 'sessionId', field: 'session_id' }],
  ['agent', { name: 'agent', field: 'agent_id' }],
])

const checkCreation = bodyCheck(CreditCreation)

export function showCredits({
  store: { credits, ledger },
  byokFeePercent,
}: Pick<ManagementParts, 'store' | 'byokFeePercent'>): Handler {
  return async (request, reply) => {
    const { organizationId } = request.key
    const [total, used] = await Promise.all([
      credits.total(organizationId),
      ledger.usageSince({ organizationId, since: '' }),
    ])
    const usage = sumToUsd(chargeOf(used, byokFeePercent))
    reply.json(200, { data: { total_credits: microToUsd(total), total_usage: usage } })
  }
}

export function addCredits(deps: ManagementParts): Handler {
  const { credits } = deps.store
  return async (request, reply) => {
    // Credits remain after the key expires, so only a key without an expiry may add them.
    if (expiryOf(request.key) !== null) {
      throw new GatewayError('permission_denied', 'A management key that expires cannot change credits')
    }
    const entry = newEntry(request, deps.clock)
    const isNew = await audited(
      deps,
      request,
      'credit.create',
      verbs => verbs.credits.add(entry),
      isNew => (isNew ? { kind: 'credit', id: entry.id, name: entry.note } : null),
    )
    if (isNew) return reply.json(201, { data: toEntryDocument(entry) })
    const earlier = await credits.find(entry.organizationId, entry.id)
    if (earlier === null) throw new Error('a credit entry is neither new nor known')
    if (earlier.amount !== entry.amount) {
      throw new GatewayError('conflict', 'id: already used for an entry with a different amount')
    }
    reply.json(200, { data: toEntryDocument(earlier) })
  }
}

export function listActivity(deps: ActivityParts): Handler {
  const { clock, store } = deps
  return async (request, reply) => {
    const dimensions = dimensionsOf(request.query)
    if (dimensions !== null) return await listDimensions(deps, request, dimensions, reply)
    const filter = activityFilter(request, clock.nowMs())
    const clientGroup = CLIENT_GROUPS.get(request.query.get('group_by') ?? '')
    if (clientGroup === undefined) {
      const rows = await store.ledger.activity(filter)
      reply.json(200, { data: rows.map(row => toActivityDocument(deps, row, filter.byWorkspace)) })
      return
    }
    const { byWorkspace: _, ...restOfFilter } = filter
    const rows = await store.ledger.clientActivity({ ...restOfFilter, by: clientGroup.name })
    if (rows === null)
      throw refuseField(
        'group_by',
        'covers too many requests: narrow it down to a date, a key or a workspace',
      )
    reply.json(200, {
      data: rows.map(row => ({
        ...toActivityDocument(deps, { ...row, workspaceId: null }, false),
        [clientGroup.field]: row.name,
        cache_read_tokens: Number(row.cacheReadTokens),
        cache_write_tokens: Number(row.cacheWriteTokens),
      })),
    })
  }
}

/** @throws GatewayError `invalid_request` */
function newEntry(request: ApiRequest, clock: Clock): CreditEntry {
  const body = checkCreation(request.body)
  const amount = toMicroUsd(body.amount)
  if (amount === null) throw refuseField('amount', 'must have at most 6 decimals')
  if (amount === 0) throw refuseField('amount', 'must not be 0')
  return {
    id: body.id ?? randomUUID(),
    organizationId: request.key.organizationId,
    amount,
    note: body.note ?? null,
    createdAt: isoInstant(clock.nowMs()),
  }
}

/** @throws GatewayError `invalid_request` that names the invalid query parameter. */
function activityFilter({ query, key }: ApiRequest, nowMs: number): ActivityFilter {
  const today = Date.parse(periodStart('daily', nowMs))
  const earliest = today - ACTIVITY_DAYS * DAY_MS
  const date = parameter(query, 'date')
  const day = date === undefined ? null : parseDay(date)
  if (date !== undefined && (day === null || day < earliest || day > today)) {
    throw refuseField('date', `must be today or one of the last ${ACTIVITY_DAYS} days (UTC) as YYYY-MM-DD`)
  }
  const keyHash = hashParameter(query)
  const groupBy = parameter(query, 'group_by')
  if (groupBy !== undefined && groupBy !== 'workspace' && !CLIENT_GROUPS.has(groupBy)) {
    throw refuseField('group_by', 'must be workspace, session or agent')
  }
  const endUser = textParameter(query, 'user_id', IDENTIFIER_MAX_CHARS)
  const workspaceId = textParameter(query, 'workspace_id', IDENTIFIER_MAX_CHARS)
  return {
    organizationId: key.organizationId,
    since: new Date(day ?? earliest).toISOString(),
    until: new Date((day ?? today) + DAY_MS).toISOString(),
    byWorkspace: groupBy === 'workspace',
    ...(keyHash === undefined ? {} : { keyHash }),
    ...(endUser === undefined ? {} : { endUser }),
    ...(workspaceId === undefined ? {} : { workspaceId }),
  }
}

function toEntryDocument(entry: CreditEntry) {
  return { id: entry.id, amount: microToUsd(entry.amount), note: entry.note, created_at: entry.createdAt }
}

function toActivityDocument(
  { providerName, byokFeePercent }: ActivityParts,
  row: ActivityRow,
  byWorkspace: boolean,
) {
  return {
    date: row.date,
    // Texts even if the value is unknown, because clients require them.
    model: row.model ?? '',
    model_permaslug: row.model ?? '',
    endpoint_id: row.model === null || row.provider === null ? '' : `${row.provider}/${row.model}`,
    provider_name: row.provider === null ? '' : (providerName(row.provider) ?? row.provider),
    ...toUsageDocument(row, byokFeePercent),
    ...(byWorkspace ? { workspace_id: row.workspaceId } : {}),
  }
}
