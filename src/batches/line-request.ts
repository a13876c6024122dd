/** Builds a line's request with the defaults of its batch: the model, and provider preferences. Pure. */
import { GatewayError } from '../base/errors.ts'
import type { BatchPreferences } from '../protocol/management/batches.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

/** Adds the model of the batch to a body that names none. */
export function withModel(body: Readonly<Record<string, unknown>>, model: string): Record<string, unknown> {
  return { ...body, model: body['model'] ?? model }
}

/**
 * Adds the preferences of the batch to the request. Both apply: a provider must be allowed by the batch and by the
 * body.
 * @throws GatewayError `constraint_filtered` if no provider is allowed by both.
 */
export function withPreferences<Request extends ResponsesRequest>(
  request: Request,
  preferences: BatchPreferences | null,
): Request {
  if (preferences === null) return request
  const ownPreferences = request.provider ?? {}
  const only = common(preferences.only ?? [], ownPreferences.only ?? [])
  return {
    ...request,
    provider: {
      ...ownPreferences,
      ...(only.length === 0 ? {} : { only }),
      ...(preferences.allowFallbacks ? {} : { allow_fallbacks: false }),
    },
  }
}

/** Names that both lists allow. An empty list allows all. */
function common(first: readonly string[], second: readonly string[]): string[] {
  if (first.length === 0 || second.length === 0) return [...first, ...second]
  const both = [
    ...first.filter(name => isNamed(name, second)),
    ...second.filter(name => isNamed(name, first)),
  ]
  if (both.length > 0) return [...new Set(both)]
  throw new GatewayError(
    'constraint_filtered',
    "provider.only: must name at least one provider that the batch's provider.only allows",
  )
}

/** A base slug includes all its regions and variants. */
function isNamed(name: string, list: readonly string[]): boolean {
  const lowerName = name.toLowerCase()
  return list.some(
    allowed => lowerName === allowed.toLowerCase() || lowerName.startsWith(`${allowed.toLowerCase()}/`),
  )
}
