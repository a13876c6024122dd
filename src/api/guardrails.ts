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
import { GUARDRAIL_BODY_MAX_BYTES, IDENTIFIER_MAX_CHARS } from '../protocol/limits.ts'
import type {
  BuiltinFilter,
  CustomFilter,
  GuardrailRecord,
  OutputRules,
  ZdrRules,
} from '../storage/guardrails.ts'
import { ConflictError, type Store } from '../storage/store.ts'
import { assignmentRoutes } from './guardrail-assignments.ts'
import { checkPatterns, type PatternProblem } from './guardrail-patterns.ts'
import { type GuardrailSettingsTools, newSettings, settingsAfter } from './guardrail-settings.ts'
import type { Handler, HttpRequest, Route } from './handler.ts'
import { pageOf, refused, textParameter } from './paging.ts'
import { workspaceOf } from './workspace-of.ts'

export interface GuardrailTools extends GuardrailSettingsTools {
  readonly store: Pick<Store, 'guardrails' | 'workspaces' | 'keys'>
  readonly changes: InvalidationBus
  readonly clock: Clock
  readonly patternProblem: PatternProblem
}

const ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export function guardrailRoutes(tools: GuardrailTools): readonly Route[] {
  const collection = { path: '/guardrails', key: 'management' } as const
  const single = { path: '/guardrails/{id}', key: 'management' } as const
  return [
    {
      ...collection,
      method: 'POST',
      bodyLimitBytes: GUARDRAIL_BODY_MAX_BYTES,
      handler: createGuardrail(tools),
    },
    { ...collection, method: 'GET', bodyLimitBytes: 0, handler: listGuardrails(tools) },
    { ...single, method: 'GET', bodyLimitBytes: 0, handler: findGuardrail(tools) },
    { ...single, method: 'PATCH', bodyLimitBytes: GUARDRAIL_BODY_MAX_BYTES, handler: changeGuardrail(tools) },
    { ...single, method: 'DELETE', bodyLimitBytes: 0, handler: deleteGuardrail(tools) },
    ...assignmentRoutes(tools, request => named(tools, request)),
  ]
}

/** Of the whole organization when no workspace is named. */
function createGuardrail(tools: GuardrailTools): Handler {
  const { store } = tools
  return async (request, reply) => {
    const body = checkGuardrailCreation(request.body)
    await checkPatterns(tools.patternProblem, body)
    const { organizationId } = request.key
    const workspaceId = body.workspace_id ?? null
    if (workspaceId !== null) await workspaceOf(store, organizationId, workspaceId)
    const createdAt = isoNow(tools)
    const record: GuardrailRecord = {
      ...newSettings(tools, body),
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
    publish(tools, organizationId)
    reply.json(201, { data: shown(record) })
  }
}

function listGuardrails({ store }: GuardrailTools): Handler {
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

function findGuardrail(tools: GuardrailTools): Handler {
  return async (request, reply) => reply.json(200, { data: shown(await named(tools, request)) })
}

function changeGuardrail(tools: GuardrailTools): Handler {
  return async (request, reply) => {
    const body = checkGuardrailUpdate(request.body)
    await checkPatterns(tools.patternProblem, body)
    const current = await named(tools, request)
    if (current.isWorkspaceDefault && body.name !== undefined && body.name !== current.name) {
      throw refused('name', 'must stay as it is for the default guardrail of a workspace')
    }
    const settings = settingsAfter(tools, current, body)
    if (isDeepStrictEqual({ ...current, ...settings }, current)) {
      reply.json(200, { data: shown(current) })
      return
    }
    const changed = await unchangedSince(tools.store.guardrails.change(current, settings, isoNow(tools)))
    // Somebody else may have deleted it meanwhile.
    if (changed === null) throw unknown()
    publish(tools, changed.organizationId)
    reply.json(200, { data: shown(changed) })
  }
}

function deleteGuardrail(tools: GuardrailTools): Handler {
  return async (request, reply) => {
    const { organizationId, id, isWorkspaceDefault } = await named(tools, request)
    if (isWorkspaceDefault) throw refused('id', 'must not be the default guardrail of a workspace')
    if (!(await tools.store.guardrails.remove(organizationId, id))) throw unknown()
    publish(tools, organizationId)
    reply.json(200, { deleted: true })
  }
}

/** The guardrail that the path names. @throws GatewayError `not_found` */
async function named({ store }: GuardrailTools, { params, key }: HttpRequest): Promise<GuardrailRecord> {
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

function publish({ changes }: GuardrailTools, organizationId: string): void {
  changes.publish({ kind: 'guardrails', organizationId })
}

function isoNow({ clock }: GuardrailTools): string {
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
