/**
 * The rollouts of routes as one thread knows them: which share of a route its candidate gets. The Store has them, and
 * they are read again when one has moved. Hot path: `of` and `part`.
 */
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { ALL_PERCENT, isShadowSpent, type RolloutPart } from '../../protocol/rollout.ts'
import type { Route, RouteRollout, RouteTarget } from '../../protocol/route.ts'
import { StoreList } from '../../storage/invalidation/store-list.ts'
import type { RolloutRecord, RolloutStore } from '../../storage/rollouts.ts'
import { type RoutedRequest, rolloutPosition } from './route-targets.ts'

interface RolloutsDeps {
  readonly store: { readonly rollouts: Pick<RolloutStore, 'list'> }
  readonly clock: Pick<Clock, 'after'>
  readonly log: Pick<Log, 'fault'>
}

/** A rollout that gives its candidate a share, or shadows. */
class Trial {
  readonly candidate: RouteTarget
  readonly #route: Route
  readonly #record: RolloutRecord
  readonly #parts: Readonly<Record<'base' | 'candidate' | 'shadowed', RolloutPart>>
  /** Requests of the base from this percentage on are shadowed, so that a growing share reaches them last. */
  readonly #shadowedFrom: number

  constructor(route: Route, { candidate, guard, shadow }: RouteRollout, record: RolloutRecord) {
    const rolloutStep = { candidate: record.candidate, step: record.step }
    this.candidate = candidate
    this.#route = route
    this.#record = record
    this.#shadowedFrom = ALL_PERCENT - (shadow === null || isShadowSpent(record, shadow) ? 0 : shadow.share)
    this.#parts = {
      base: { ...rolloutStep, arm: 'base', shadow: null },
      candidate: { ...rolloutStep, arm: 'candidate', shadow: null },
      shadowed: { ...rolloutStep, arm: 'base', shadow: guard.judged === undefined ? 'figures' : 'answers' },
    }
  }

  /** True if the trial was made from this route and this record. */
  isOf(route: Route, record: RolloutRecord): boolean {
    return this.#route === route && this.#record === record
  }

  part(routed: RoutedRequest): RolloutPart {
    const { candidate, share } = this.#record
    const percent = rolloutPosition(this.#route, candidate, routed) * ALL_PERCENT
    if (percent < share) return this.#parts.candidate
    return percent < this.#shadowedFrom ? this.#parts.base : this.#parts.shadowed
  }
}

export class Rollouts {
  #records: ReadonlyMap<string, RolloutRecord> = new Map()
  readonly #trials = new Map<string, Trial>()
  readonly #list: StoreList<RolloutRecord>

  constructor({ store, clock, log }: RolloutsDeps) {
    this.#list = new StoreList({
      read: () => store.rollouts.list(),
      onRead: records => {
        this.#records = new Map(records.map(record => [record.route, record]))
      },
      component: 'rollouts',
      failure: 'cannot read the rollouts; their shares do not change',
      clock,
      log,
    })
  }

  /** Null if no request of the route concerns a candidate. A candidate that the Store does not know yet has no share. */
  of(route: Route): Trial | null {
    const { name, rollout } = route
    if (rollout === null) return null
    const record = this.#records.get(name)
    if (record === undefined || record.candidate !== rollout.candidate.model) return null
    if (record.state === 'rolled_back') return null
    const existingTrial = this.#trials.get(name)
    if (existingTrial?.isOf(route, record) === true) return existingTrial
    const trial = new Trial(route, rollout, record)
    this.#trials.set(name, trial)
    return trial
  }

  /** Reads the shares from the Store. Never rejects: until the Store answers, the known ones stay. */
  refresh(): Promise<void> {
    return this.#list.refresh()
  }

  close(): void {
    this.#list.close()
  }
}
