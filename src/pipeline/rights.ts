/**
 * Checks the rights of a caller again when an answer exists or runs already: models, providers and server tools that
 * were allowed when its request began may be forbidden now. For new requests, routing and the tools check them.
 */
import { GatewayError } from '../base/errors.ts'
import type { ToolPermissions } from '../callers/tool-permissions.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Guard } from './guard/guard.ts'
import { namedModel } from './routing/names.ts'
import { isOfLists, type Restrictions } from './routing/restrictions.ts'
import { type ToolWaysDeps, toolWays } from './tool-calls/tool-ways.ts'

export interface RightsDeps extends Pick<ToolWaysDeps, 'tools'> {
  readonly catalog: Catalog
  readonly guard: Pick<Guard, 'restrictions'>
  readonly toolPermissions: Pick<ToolPermissions, 'disabledFor'>
}

/**
 * Checks a request that will be answered without being run.
 * @throws (as a rejection) GatewayError `permission_denied`
 */
export async function checkRights(
  deps: RightsDeps,
  { caller, request, dataRegion }: ClientRequest,
): Promise<void> {
  const restrictions = await deps.guard.restrictions(caller)
  if (restrictions !== null) {
    if (!restrictions.allowsRegion(dataRegion)) throw forbidden('the regional host of this request')
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

function forbidden(what: string): GatewayError {
  return new GatewayError('permission_denied', `A guardrail on this API key does not allow ${what} any more`)
}

/** The first model of the request, if none of its models has an allowed endpoint; null: one of them may serve. */
function forbiddenModel(
  catalog: Catalog,
  restrictions: Restrictions,
  { model, models, reasoning }: ResponsesRequest,
): string | null {
  let first: string | null = null
  for (const name of [...(model === undefined ? [] : [model]), ...(models ?? [])]) {
    const named = namedModel(name, catalog, reasoning?.mode)
    // A router or an unknown model: routing decides about it.
    if (named === null) return null
    const isAllowed = named.model.endpoints.some(endpoint => {
      const restriction = restrictions.excludedBy({ endpoint, credential: null })
      return restriction === null || !isOfLists(restriction)
    })
    if (isAllowed) return null
    first ??= named.model.id
  }
  return first
}
