/** /guardrails: rule sets of an organization. Whom they are assigned to is guardrail-assignments.ts. */
import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { type Clock, isoInstant } from '../clock.ts'
import { GatewayError } from '../errors.ts'
import type { InvalidationBus } from '../invalidation/bus.ts'
import { microToUsd } from '../money.ts'
import {
  BUILTIN_LABELS,
  checkGuardrailCreation,
  checkGuardrailUpdate,
  INJECTION_SLUG,
} from '../protocol/guardrails.ts'
import { IDENTIFIER_MAX_CHARS } from '../protocol/limits.ts'
import type {
  BuiltinFilter,
  CustomFilter,
  GuardrailRecord,
  OutputRules,
  ZdrRules,
} from '../storage/guardrails.ts'
import { ConflictError, type Store } from '../storage/store.ts'
import {
  checkPatterns,
  type GuardrailSettingsDeps,
  newSettings,
  type PatternProblem,
  settingsAfter,
} from './guardrail-settings.ts'
import type { ApiRequest, Handler } from './operation.ts'
import { pageOf, refused, textParameter } from './paging.ts'
import { workspaceOf } from './workspaces.ts'

export interface GuardrailDeps extends GuardrailSettingsDeps {
  readonly store: Pick<Store, 'guardrails' | 'workspaces' | 'keys'>
  readonly changes: InvalidationBus
  readonly clock: Clock
  readonly patternProblem: PatternProblem
}

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Of the whole organization when no workspace is named. */
export function createGuardrail(deps: GuardrailDeps): Handler {
  const { store } = deps
  return async (request, reply) => {
    const body = checkGuardrailCreation(request.body)
    await checkPatterns(deps.patternProblem, body)
    const { organizationId } = request.key
    const workspaceId = body.workspace_id ?? null
    if (workspaceId !== null) await workspaceOf(store, organizationId, workspaceId)
    const createdAt = isoNow(deps)
    const record: GuardrailRecord = {
      ...newSettings(deps, body),
      id: randomUUID(),
      organizationId,
      workspaceId,
      isWorkspaceDefault: false,
      revision: 1,
      createdAt,
      updatedAt: createdAt,
    }
    // The workspace may have been deleted meanwhile.
    if (!(await store.guardrails.add(record))) throw refused('workspace_id', 'must be the id of a workspace')
    publish(deps, organizationId)
    reply.json(201, { data: shown(record) })
  }
}

export function listGuardrails({ store }: GuardrailDeps): Handler {
  return async ({ query, key }, reply) => {
    const page = pageOf(query)
    const workspaceId = textParameter(query, 'workspace_id', IDENTIFIER_MAX_CHARS)
    const filter = {
      organizationId: key.organizationId,
      ...(workspaceId === undefined ? {} : { workspaceId }),
    }
    const { items, total } = await store.guardrails.page(filter, page)
    reply.json(200, { data: items.map(shown), total_count: total })
  }
}

export function findGuardrail(deps: GuardrailDeps): Handler {
  return async (request, reply) => reply.json(200, { data: shown(await namedGuardrail(deps.store, request)) })
}

export function changeGuardrail(deps: GuardrailDeps): Handler {
  return async (request, reply) => {
    const body = checkGuardrailUpdate(request.body)
    await checkPatterns(deps.patternProblem, body)
    const current = await namedGuardrail(deps.store, request)
    if (current.isWorkspaceDefault && body.name !== undefined && body.name !== current.name) {
      throw refused('name', 'must stay as it is for the default guardrail of a workspace')
    }
    const settings = settingsAfter(deps, current, body)
    if (isDeepStrictEqual({ ...current, ...settings }, current)) {
      reply.json(200, { data: shown(current) })
      return
    }
    const changed = await unchangedSince(deps.store.guardrails.change(current, settings, isoNow(deps)))
    // Somebody else may have deleted it meanwhile.
    if (changed === null) throw unknown()
    publish(deps, changed.organizationId)
    reply.json(200, { data: shown(changed) })
  }
}

export function deleteGuardrail(deps: GuardrailDeps): Handler {
  return async (request, reply) => {
    const { organizationId, id, isWorkspaceDefault } = await namedGuardrail(deps.store, request)
    if (isWorkspaceDefault) throw refused('id', 'must not be the default guardrail of a workspace')
    if (!(await deps.store.guardrails.remove(organizationId, id))) throw unknown()
    publish(deps, organizationId)
    reply.json(200, { deleted: true })
  }
}

/** The guardrail that the path names. @throws GatewayError `not_found` */
export async function namedGuardrail(
  store: Pick<Store, 'guardrails'>,
  { params, key }: ApiRequest,
): Promise<GuardrailRecord> {
  const id = params.get('id') ?? ''
  const record = ID.test(id) ? await store.guardrails.find(key.organizationId, id) : null
  if (record === null) throw unknown()
  return record
}

/** @throws GatewayError `conflict`: what was checked is not what would be stored. */
async function unchangedSince<T>(writing: Promise<T>): Promise<T> {
  try {
    return await writing
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error
    throw new GatewayError('conflict', 'The guardrail was changed by another request meanwhile', {
      cause: error,
    })
  }
}

function unknown(): GatewayError {
  return new GatewayError('not_found', 'Guardrail not found')
}

function publish({ changes }: GuardrailDeps, organizationId: string): void {
  changes.publish({ kind: 'guardrails', organizationId })
}

function isoNow({ clock }: GuardrailDeps): string {
  return isoInstant(clock.nowMs())
}

function shown(guardrail: GuardrailRecord) {
  const { enforceZdr: zdr } = guardrail
  return {
    id: guardrail.id,
    name: guardrail.name,
    description: guardrail.description,
    workspace_id: guardrail.workspaceId,
    is_workspace_default: guardrail.isWorkspaceDefault,
    limit_usd: guardrail.limit === null ? null : microToUsd(guardrail.limit),
    reset_interval: guardrail.resetInterval,
    include_byok_in_budgets: guardrail.includeByokInBudgets,
    allowed_models: guardrail.allowedModels,
    ignored_models: guardrail.ignoredModels,
    allowed_providers: guardrail.allowedProviders,
    ignored_providers: guardrail.ignoredProviders,
    enforce_zdr: agreed(zdr),
    enforce_zdr_anthropic: zdr.anthropic,
    enforce_zdr_openai: zdr.openai,
    enforce_zdr_google: zdr.google,
    enforce_zdr_xai: zdr.xai,
    enforce_zdr_other: zdr.other,
    enable_free_model_training: guardrail.enableFreeModelTraining,
    enable_free_model_publication: guardrail.enableFreeModelPublication,
    enable_paid_model_training: guardrail.enablePaidModelTraining,
    allowed_data_regions: guardrail.allowedDataRegions,
    content_filter_builtins: orNull(guardrail.contentFilterBuiltins.map(shownInputBuiltin)),
    content_filters: orNull(guardrail.contentFilters.map(shownFilter)),
    output: guardrail.output === null ? null : shownOutput(guardrail.output),
    fail_mode: guardrail.failMode,
    created_at: guardrail.createdAt,
    updated_at: guardrail.updatedAt,
  }
}

/** The older field without a vendor: what all vendors have, or null. */
function agreed({ anthropic, openai, google, xai, other }: ZdrRules): boolean | null {
  return [openai, google, xai, other].every(each => each === anthropic) ? anthropic : null
}

function orNull<T>(list: readonly T[]): readonly T[] | null {
  return list.length === 0 ? null : list
}

function shownBuiltin({ slug, action }: BuiltinFilter) {
  return { slug, action, label: BUILTIN_LABELS[slug] }
}

function shownInputBuiltin(filter: BuiltinFilter) {
  const same = shownBuiltin(filter)
  return filter.slug === INJECTION_SLUG ? { ...same, scan_scope: filter.scanScope } : same
}

function shownFilter({ pattern, action, label }: CustomFilter) {
  return { pattern, action, label }
}

function shownOutput(output: OutputRules) {
  return {
    content_filter_builtins: orNull(output.contentFilterBuiltins.map(shownBuiltin)),
    content_filters: orNull(output.contentFilters.map(shownFilter)),
    window_bytes: output.windowBytes,
    overlap_bytes: output.overlapBytes,
  }
}
