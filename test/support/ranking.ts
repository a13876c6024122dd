/** Lists and ranks the candidates of a request without an exchange. By default, nothing is known of any endpoint. */
import { Exclusions, type RouteCandidate, SharedCandidates } from '../../src/pipeline/routing/candidate.ts'
import { type Listing, listCandidates } from '../../src/pipeline/routing/rank.ts'
import { NO_PREFERENCES, type RankFacts, type RankInput } from '../../src/pipeline/routing/rank-input.ts'
import { rankGroups } from '../../src/pipeline/routing/rankers.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import type { Catalog } from '../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../src/providers/credentials/catalog.ts'

export type RouteScope = Partial<
  Pick<RankInput, 'dataRegion' | 'dialect' | 'isLimited' | 'ownKeys' | 'plugins' | 'restrictions'> &
    Pick<RankFacts, 'inputTokens' | 'leastTokens' | 'isInputBelow'>
> & { readonly keyHash?: string }

export type RouteTerms = Omit<RankFacts, 'clock'> & { readonly nowMs: number }

export function rankInputOf(
  request: ResponsesRequest,
  catalog: Catalog,
  { keyHash = '', inputTokens, leastTokens, isInputBelow, ...scope }: RouteScope = {},
  terms: Partial<RouteTerms> = {},
): RankInput {
  const { nowMs = 0, ...facts } = terms
  return {
    routed: null,
    routing: {
      clock: { nowMs: () => 0, monotonicMs: () => nowMs },
      shared: new SharedCandidates(),
      health: null,
      random: () => 0,
      balances: false,
      inputTokens,
      leastTokens,
      isInputBelow,
      ...facts,
    },
    request,
    preferences: request.provider ?? NO_PREFERENCES,
    caller: { keyHash, organizationId: 'o', workspaceId: null, memberId: null, limit: null },
    nowMs,
    catalog,
    dialect: 'responses',
    dataRegion: null,
    restrictions: null,
    plugins: null,
    ownKeys: NO_CREDENTIALS,
    isLimited: false,
    exclusions: new Exclusions(),
    ...scope,
  }
}

export function route(
  ...asked: Parameters<typeof rankInputOf>
): Listing & { readonly candidates: readonly RouteCandidate[] } {
  const input = rankInputOf(...asked)
  const listing = listCandidates(input)
  return { ...listing, candidates: rankGroups(listing.groups, input) }
}
