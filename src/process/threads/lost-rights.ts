/**
 * Ends what runs by an API key soon after it has lost a right: the key itself, a model, a provider, a server tool, or
 * the money. This needs no extra state: when a record changes, the open requests of this thread are searched; limits
 * that are overspent without a change are looked for twice a second. Serve and batch threads.
 */

import type { Clock, Timer } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { type ApiKeys, callerOf, type KeyLoss } from '../../callers/keys.ts'
import { hasReserved, isPaidByCaller, type RunningRights } from '../../pipeline/rights.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { KeyedRequests, RunningRequest } from '../../server/admission/admission-control.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'

const SWEEP_INTERVAL_MS = 500

const MESSAGES: Readonly<Record<KeyLoss, string>> = {
  key_deleted: 'was deleted',
  key_disabled: 'was disabled',
  key_expired: 'has expired',
}

interface LostRightsDeps {
  readonly keys: Pick<ApiKeys, 'find' | 'lostBy'>
  readonly rights: RunningRights
  readonly clock: Clock
  /** Requests and sockets that use API keys. */
  readonly sources: readonly KeyedRequests[]
}

export class LostRights {
  readonly #deps: LostRightsDeps
  #timer: Timer | null = null

  constructor(deps: LostRightsDeps) {
    this.#deps = deps
  }

  /**
   * Ends what the change forbids. Call it when the caches have dropped the record. Requests whose rights cannot be read
   * continue. Never rejects.
   */
  async endForbidden(change: Invalidation): Promise<void> {
    const { sources, rights } = this.#deps
    if (change.kind === 'all' || change.kind === 'key') await this.#endKeys(change)
    for (const request of sources.flatMap(source => source.runningRequests())) {
      const exchange = request.running
      if (exchange === undefined || !concerns(change, request)) continue
      const record = await this.#recordOf(request)
      const reason = record === null ? null : await rights.lostBy(exchange, callerOf(record))
      if (reason !== null) request.revoke(reason)
    }
  }

  /** Begins to look for limits that are overspent. */
  start(): void {
    this.#timer = this.#deps.clock.after(SWEEP_INTERVAL_MS, () => void this.sweep().then(() => this.start()))
  }

  stop(): void {
    this.#timer?.cancel()
  }

  /**
   * Ends what overspent limits pay for. Counters are asked once for all requests of a key that spend the same money: a
   * key may have thousands of them. Never rejects.
   */
  async sweep(): Promise<void> {
    const payers = Map.groupBy(
      this.#deps.sources
        .flatMap(source => source.runningRequests())
        .filter(({ running }) => running !== undefined && hasReserved(running)),
      ({ keyHash, running }) => `${keyHash} ${running !== undefined && isPaidByCaller(running)}`,
    )
    for (const requests of payers.values()) {
      const [first] = requests
      if (first?.running === undefined) continue
      const record = await this.#recordOf(first)
      if (record === null) continue
      const reason = await this.#deps.rights.overspentBy(first.running, callerOf(record))
      if (reason !== null) for (const request of requests) request.revoke(reason)
    }
  }

  /** Ends requests and sockets of keys that are no longer valid. */
  async #endKeys(change: Invalidation): Promise<void> {
    const { keys, sources } = this.#deps
    const hashes = new Set<string>()
    for (const source of sources) source.openKeys(hashes)
    for (const hash of hashes) {
      if (change.kind === 'key' && hash !== change.hash) continue
      const lossCode = await keys.lostBy(hash)
      if (lossCode === null) continue
      const reason = new GatewayError(
        lossCode,
        `The request was ended because its API key ${MESSAGES[lossCode]}`,
      )
      for (const source of sources) source.endKey(hash, reason)
    }
  }

  /** Null if the key is no longer valid, or cannot be read now. */
  async #recordOf({ keyHash }: RunningRequest): Promise<KeyRecord | null> {
    try {
      return await this.#deps.keys.find(keyHash ?? '')
    } catch {
      return null
    }
  }
}

/** True if the change may take a right from the request. */
function concerns(change: Invalidation, { keyHash, running }: RunningRequest): boolean {
  switch (change.kind) {
    case 'all':
      return true
    case 'key':
      return change.hash === keyHash
    case 'guardrails':
    case 'workspaces':
      return change.organizationId === running?.caller.organizationId
    default:
      return false
  }
}
