/**
 * Checks the rights of a caller again when an answer exists or runs already: models, providers, server
 * tools and money that were there when its request began may be gone now. For new requests, routing, the tools and
 * admission check them.
 */
import { GatewayError } from '../base/errors.ts'
import type { HoldingQuota } from '../callers/limits/quota.ts'
import type { ToolPermissions } from '../callers/tool-permissions.ts'
import type { ClientRequest, Exchange } from '../exchange/exchange.ts'
import type { Caller } from '../protocol/records.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Guard } from './guard/guard.ts'
import type { RouteCandidate } from './routing/candidate.ts'
import { resolveModel } from './routing/names.ts'
import { hostPhrase, isOfLists, isOfModels, type Restrictions } from './routing/restrictions.ts'
import { type ToolWaysDeps, toolWays } from './tool-calls/tool-ways.ts'

interface RightsDeps extends Pick<ToolWaysDeps, 'tools'> {
  readonly catalog: Catalog
  readonly guard: Pick<Guard, 'restrictions'>
  readonly toolPermissions: Pick<ToolPermissions, 'disabledFor'>
}

/**
 * Checks a request that will be answered without being run.
 * @throws (as a rejection) GatewayError `permission_denied`, or `service_unavailable` if a rule cannot be read
 */
export async function checkRights(
  deps: RightsDeps,
  { caller, request, dataRegion }: ClientRequest,
): Promise<void> {
  const restrictions = await deps.guard.restrictions(caller)
  if (restrictions !== null) {
    if (!restrictions.allowsRegion(dataRegion)) throw forbidden(hostPhrase(dataRegion))
    const model = forbiddenModel(deps.catalog, restrictions, request)
    if (model !== null) throw forbidden(`any endpoint of ${model}`)
  }
  const ways = toolWays(request, deps.tools)
  if (ways.length === 0) return
  const disabled = await deps.toolPermissions.disabledFor(caller)
  const way = ways.find(({ name }) => disabled.has(name))
  if (way === undefined) return
  throw new GatewayError(
    'permission_denied',
    `${way.path}: the ${way.name} server tool is disabled in this workspace`,
  )
}

function forbidden(subject: string): GatewayError {
  return new GatewayError(
    'permission_denied',
    `A guardrail on this API key does not allow ${subject} any more`,
  )
}

/**
 * The first model of the request, if none of its models has an allowed endpoint; null: one may serve, or is unknown.
 */
function forbiddenModel(
  catalog: Catalog,
  restrictions: Restrictions,
  { model, models, reasoning }: ResponsesRequest,
): string | null {
  let first: string | null = null
  for (const name of [...(model === undefined ? [] : [model]), ...(models ?? [])]) {
    const namedModel = resolveModel(name, catalog, reasoning?.mode)
    // A router or an unknown model: routing decides about it.
    if (namedModel === null) return null
    const isAllowed = namedModel.model.endpoints.some(endpoint => {
      const restriction = restrictions.excludedBy({ endpoint, credential: null })
      return restriction === null || !isOfLists(restriction)
    })
    if (isAllowed) return null
    first ??= namedModel.model.id
  }
  return first
}

export interface RunningRights {
  /**
   * The reason to end a running exchange whose caller lost a right when a record changed; null: no right was lost.
   * `caller`: as the records are now. Never rejects: a record that cannot be read forbids nothing.
   */
  lostBy(exchange: Exchange, caller: Caller): Promise<GatewayError | null>
  /** The reason to end an exchange that has overspent a limit; null: it has not. Never rejects. */
  overspentBy(exchange: Exchange, caller: Caller): Promise<GatewayError | null>
}

export function createRunningRights(
  deps: RightsDeps & { readonly quota: Pick<HoldingQuota, 'overrun'> },
): RunningRights {
  return {
    async lostBy(exchange, caller) {
      try {
        return (
          (await lostEndpoint(deps, exchange, caller)) ??
          (await lostTool(deps, exchange, caller)) ??
          (await deps.quota.overrun(caller, isPaidByCaller(exchange), true))
        )
      } catch {
        return null
      }
    },
    async overspentBy(exchange, caller) {
      try {
        return await deps.quota.overrun(caller, isPaidByCaller(exchange), false)
      } catch {
        return null
      }
    },
  }
}

/** True if a credential of the caller pays for the exchange. */
export function isPaidByCaller({ attempts }: Exchange): boolean {
  return attempts.at(-1)?.isByok === true
}

/** True if the exchange spends money that a limit of its caller counts. */
export function hasReserved({ reservation }: Exchange): boolean {
  return reservation !== null && reservation.allowance !== null
}

async function lostEndpoint(
  { guard }: RightsDeps,
  { attempts, repeated }: Exchange,
  caller: Caller,
): Promise<GatewayError | null> {
  const current = attempts.at(-1) ?? repeated?.attempt
  if (current === undefined) return null
  const { endpoint } = current
  const credential = current.credential as RouteCandidate['credential']
  const restriction = (await guard.restrictions(caller))?.excludedBy({ endpoint, credential }) ?? null
  if (restriction === null) return null
  return isOfModels(restriction)
    ? new GatewayError('model_forbidden', `A guardrail on this API key no longer allows ${endpoint.modelId}`)
    : new GatewayError(
        'provider_forbidden',
        `A guardrail on this API key no longer allows ${endpoint.provider.name} (${restriction})`,
      )
}

async function lostTool(
  { tools, toolPermissions }: RightsDeps,
  { request }: Exchange,
  caller: Caller,
): Promise<GatewayError | null> {
  const ways = toolWays(request, tools)
  if (ways.length === 0) return null
  const disabled = await toolPermissions.disabledFor(caller)
  const way = ways.find(({ name }) => disabled.has(name))
  if (way === undefined) return null
  return new GatewayError(
    'tool_forbidden',
    `${way.path}: the ${way.name} server tool was disabled in this workspace while the request ran`,
  )
}
