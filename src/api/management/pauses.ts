/** GET /pauses and POST /providers/{provider}/pause and resume: providers out of service for a time. */
import { isoInstant } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { checkPauseCreation, type PauseAnswer } from '../../protocol/management/pauses.ts'
import type { AuditObject } from '../../storage/audit.ts'
import type { PauseRecord } from '../../storage/pauses.ts'
import type { ApiRequest, Handler } from '../operation.ts'
import { audited } from './audit.ts'
import type { ManagementParts } from './parts.ts'

const MINUTE_MS = 60_000

export function listPauses({ store, clock }: Pick<ManagementParts, 'store' | 'clock'>): Handler {
  return async (_, reply) => {
    const nowMs = clock.nowMs()
    const data = (await store.pauses.list()).filter(({ untilMs }) => untilMs > nowMs).map(toDocument)
    reply.json(200, { data, total_count: data.length })
  }
}

/** A second pause replaces the first one. */
export function pauseProvider(parts: ManagementParts): Handler {
  const { clock, changes } = parts
  return async (request, reply) => {
    const { minutes, reason } = checkPauseCreation(request.body)
    const provider = slugOf(request)
    if (parts.providerName(provider) === null)
      throw new GatewayError(
        'not_found',
        'The gateway has no provider with this slug: GET /v1/providers lists them',
      )
    const sinceMs = clock.nowMs()
    const untilMs = sinceMs + minutes * MINUTE_MS
    const actor = request.key.identity ?? request.key.label
    const record = { provider, sinceMs, untilMs, reason: reason ?? null, actor }
    await audited(
      parts,
      request,
      'provider.pause',
      verbs => verbs.pauses.put(record),
      () => toObject(parts, provider),
    )
    changes.publish({ kind: 'pauses' })
    reply.json(200, { data: toDocument(record) })
  }
}

export function resumeProvider(parts: ManagementParts): Handler {
  const { changes, clock, store } = parts
  return async (request, reply) => {
    const provider = slugOf(request)
    const record = (await store.pauses.list()).find(pause => pause.provider === provider)
    const hasEnded = record === undefined || record.untilMs <= clock.nowMs()
    const isResumed =
      !hasEnded &&
      (await audited(
        parts,
        request,
        'provider.resume',
        verbs => verbs.pauses.end(provider),
        isEnded => (isEnded ? toObject(parts, provider) : null),
      ))
    if (!isResumed)
      throw new GatewayError(
        'not_found',
        'This provider is not paused: GET /v1/pauses lists the paused providers',
      )
    changes.publish({ kind: 'pauses' })
    reply.json(200, { data: toDocument({ ...record, untilMs: clock.nowMs() }) })
  }
}

function slugOf({ params }: ApiRequest): string {
  return params.get('provider') ?? ''
}

function toObject({ providerName }: ManagementParts, slug: string): AuditObject {
  return { kind: 'provider', id: slug, name: providerName(slug) }
}

function toDocument({ provider, sinceMs, untilMs, reason, actor }: PauseRecord): PauseAnswer {
  return {
    provider,
    since: isoInstant(sinceMs),
    until: isoInstant(untilMs),
    reason,
    actor_label: actor,
  }
}
