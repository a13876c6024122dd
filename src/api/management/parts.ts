/** The parts that handlers of management operations use. Each handler gets all of them. Types only. */
import type { Clock } from '../../base/clock.ts'
import type { RunningCaptures } from '../../features/captures/running.ts'
import type { CheckText } from '../../pipeline/guard/guard.ts'
import type { KeyCheck } from '../../pipeline/key-check.ts'
import type { RateLimit } from '../../protocol/management/rate-limit.ts'
import type { RouteRollout } from '../../protocol/route.ts'
import type { KeyDescription } from '../../providers/credentials/parse/provider-key.ts'
import type { Vault } from '../../providers/credentials/vault.ts'
import type { InvalidationBus } from '../../storage/invalidation/bus.ts'
import type { Store } from '../../storage/store.ts'
import type { KeyUsage } from './key-usage.ts'

export interface CaptureSettings {
  /** Null: captures are off. */
  readonly running: Pick<RunningCaptures, 'capturesFor'> | null
  readonly maxBytes: number
  /** See features/captures/folder.ts. */
  readonly folder: string
}

/**
 * Checks a pattern. Returns the problem in words that follow the name of its field, or null. `total` sums the sizes of
 * the patterns of one list; each call adds to it.
 */
export type PatternProblem = (pattern: string, total: { positions: number }) => string | null

export interface ManagementParts {
  readonly store: Store
  readonly clock: Clock
  readonly changes: InvalidationBus
  readonly usage: KeyUsage
  readonly vault: Pick<Vault, 'seal'>
  readonly captures: CaptureSettings
  /** The charge for a request on a BYOK credential, in per cent of its catalogue price. */
  readonly byokFeePercent: number
  /** Display name of a provider; null if the catalogue does not contain this slug. */
  readonly providerName: (slug: string) => string | null
  /** Parses a key; throws GatewayError `invalid_request` for one that can never be used. */
  readonly describeKey: (provider: string, key: string) => KeyDescription
  readonly patternProblem: PatternProblem
  readonly checkText: CheckText
  /** The limits of keys without limits of their own. */
  readonly rateLimitDefault: RateLimit
  /** The rollouts of the configuration by route, in its order. */
  readonly rollouts: () => ReadonlyMap<string, RouteRollout>
  readonly keyCheck: Pick<KeyCheck, 'enter' | 'prepare' | 'run'>
}
