/**
 * The rollouts of routes as one thread knows them: which share of a route its candidate gets. The Store has them, and
 * they are read again when one has moved. Hot path: `of` and `part`.
 */
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { ALL_PERCENT, type RolloutPart } from '../../protocol/rollout.ts'
import type { Route, RouteTarget } from '../../protocol/route.ts'
import { StoreList } from '../../storage/invalidation/store-list.ts'
import type { RolloutRecord, RolloutStore } from '../../storage/rollouts.ts'
import { type RoutedRequest, rolloutPlace } from './route-targets.ts'

interface RolloutsDeps {
  readonly store: { readonly rollouts: Pick<RolloutStore, 'list'> }
  readonly clock: Pick<Clock, 'after'>
  readonly log: Pick<Log, 'fault'>
}

/** A rollout that gives its candidate a share. */
class Trial {
  readonly candidate: RouteTarget
  readonly #route: Route
  readonly #record: RolloutRecord
  readonly #parts: Readonly<Record<RolloutPart['arm'], RolloutPart>>

  constructor(route: Route, candidate: RouteTarget, record: RolloutRecord) {
    const { step } = record
    this.candidate = candidate
    this.#route = route
    this.#record = record
    this.#parts = {
      base: { candidate: record.candidate, step, arm: 'base' },
      candidate: { candidate: record.candidate, step, arm: 'candidate' },
    }
  }

  /** True if it was made for exactly these. */
  isOf(route: Route, record: RolloutRecord): boolean {
    return this.#route === route && this.#record === record
  }

  part(routed: RoutedRequest): RolloutPart {
    const { candidate, share } = this.#record
    const isTried = rolloutPlace(this.#route, candidate, routed) * ALL_PERCENT < share
    return this.#parts[isTried ? 'candidate' : 'base']
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

  /** Null if no request of the route goes to a candidate. A candidate that the Store does not know yet has no share. */
  of(route: Route): Trial | null {
    const { name, rollout } = route
    if (rollout === null) return null
    const record = this.#records.get(name)
    if (record === undefined || record.candidate !== rollout.candidate.model || record.share === 0)
      return null
    const known = this.#trials.get(name)
    if (known?.isOf(route, record) === true) return known
    const trial = new Trial(route, rollout.candidate, record)
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
