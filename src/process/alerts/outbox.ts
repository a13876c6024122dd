/**
 * The outbox of alerts: stores each alert once for all instances, and delivers it at least once to every receiver that
 * wants it, with a longer pause after each failed try. Main thread.
 */
import { type Clock, isoInstant, type Timer, within } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { AlertDelivery, AlertStore, ClaimedDelivery } from '../../storage/alerts.ts'
import { type AlertEvent, alertBody, alertId } from './alert-body.ts'
import type { Receiver } from './receiver.ts'

interface OutboxOptions {
  readonly store: { readonly alerts: AlertStore }
  readonly receivers: readonly Receiver[]
  /** The gateway's own name and address in bodies. */
  readonly gateway: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

const CHECK_INTERVAL_MS = 1_000
/** Longer than a delivery takes. After this time other instances deliver for one that died. */
const LEASE_MS = 60_000
const FIRST_PAUSE_MS = 1_000
const PAUSE_MAX_MS = 300_000
/** Maximum difference between the clocks of instances. */
const MAX_CLOCK_DIFFERENCE_MS = 60_000
/** Time limit for an answer of the Store. */
const STORE_TIMEOUT_MS = 10_000
/** Maximum of deliveries that one round claims for a receiver. */
const MAX_CLAIMS = 20
/** Alerts that wait in memory while the Store is away. */
const MAX_WAITING_DELIVERIES = 1_000

export class Outbox {
  readonly #options: OutboxOptions
  /** Not in the Store yet, oldest first. */
  #waiting: AlertDelivery[] = []
  readonly #knownIds = new Set<string>()
  #timer: Timer | null = null
  #storing: Promise<void> | null = null
  /** Rounds that run, by receiver. */
  readonly #rounds = new Map<string, Promise<void>>()
  #closed = false

  constructor(options: OutboxOptions) {
    this.#options = options
    this.#schedule()
  }

  /** Adds an event, unless its alert is known. Returns true if it is new and will be delivered. */
  raise(event: AlertEvent): boolean {
    const { receivers, gateway, clock } = this.#options
    const id = alertId(event)
    // An alert that does not fit counts as unknown, so that the next check can raise it.
    if (this.#closed || this.#knownIds.has(id) || this.#waiting.length >= MAX_WAITING_DELIVERIES) return false
    this.#knownIds.add(id)
    if (this.#knownIds.size > 10 * MAX_WAITING_DELIVERIES) this.#knownIds.clear()
    const createdAt = isoInstant(clock.nowMs())
    const body = alertBody(event, gateway, createdAt)
    const object = `${event.object.kind} ${event.object.id}`
    const recipients = receivers.filter(({ wants }) => wants(event.type))
    for (const { id: receiver } of recipients)
      this.#waiting.push({ alertId: id, receiver, type: event.type, object, body, createdAt })
    return recipients.length > 0
  }

  /**
   * Stores waiting alerts, and delivers those that are due. For a receiver with running deliveries, it awaits those.
   */
  async run(): Promise<void> {
    await this.#storeWaiting()
    await Promise.all(this.#begin())
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#storing
    await Promise.all(this.#rounds.values())
  }

  /** Stores waiting alerts. Concurrent calls share one run. */
  #storeWaiting(): Promise<void> {
    this.#storing ??= this.#storeAll().finally(() => {
      this.#storing = null
    })
    return this.#storing
  }

  async #storeAll(): Promise<void> {
    const { store, clock } = this.#options
    try {
      for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
        await within(clock, STORE_TIMEOUT_MS, store.alerts.add(next, clock.nowMs()))
        this.#waiting.shift()
      }
    } catch {
      // The Store is unavailable, which its own watch logs. Waiting alerts are tried again.
    }
  }

  /** Each receiver is served separately, so that a slow or unreachable one does not delay the others. */
  #begin(): readonly Promise<void>[] {
    return this.#options.receivers.map(receiver => {
      const currentRound = this.#rounds.get(receiver.id)
      if (currentRound !== undefined) return currentRound
      const round = this.#round(receiver).finally(() => this.#rounds.delete(receiver.id))
      this.#rounds.set(receiver.id, round)
      return round
    })
  }

  async #round(receiver: Receiver): Promise<void> {
    const { store, clock } = this.#options
    try {
      const nowMs = clock.nowMs()
      const latestMs = nowMs + PAUSE_MAX_MS + MAX_CLOCK_DIFFERENCE_MS
      const terms = { nowMs, latestMs, leaseMs: LEASE_MS, limit: MAX_CLAIMS }
      const claims = store.alerts.claim([receiver.id], terms)
      const deliveries = await within(clock, STORE_TIMEOUT_MS, claims)
      await Promise.all(deliveries.map(delivery => this.#deliver(receiver, delivery)))
    } catch {
      // The Store is unavailable, which its own watch logs. The next round tries again.
    }
  }

  async #deliver(target: Receiver, { alertId, receiver, body, tries }: ClaimedDelivery): Promise<void> {
    const { store, clock, log } = this.#options
    const finish = (dueMs: number | null) =>
      within(clock, STORE_TIMEOUT_MS, store.alerts.settle(alertId, receiver, dueMs))
    const result = await target.deliver(body)
    if (result.ok) {
      if (tries > 0)
        log.notice('alerts', 'alert delivered after retries', {
          host: target.host,
          alert: alertId,
          tries,
        })
      return await finish(null)
    }
    if (tries === 0)
      log.notice('alerts', 'cannot deliver an alert; trying again later', {
        host: target.host,
        alert: alertId,
        why: result.reason,
      })
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(tries, 20), PAUSE_MAX_MS)
    await finish(clock.nowMs() + pauseMs)
  }

  #schedule(): void {
    this.#timer = this.#options.clock.after(CHECK_INTERVAL_MS, () => {
      void this.#storeWaiting().then(() => {
        if (this.#closed) return
        this.#begin()
        this.#schedule()
      })
    })
  }
}
