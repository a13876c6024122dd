/**
 * The outbox of alerts: keeps each alert in the Store, one for all instances, and delivers it to every receiver at
 * least once, with longer and longer pauses between tries. Main thread.
 */
import { type Clock, isoInstant, type Timer } from '../clock.ts'
import type { Log } from '../log/log.ts'
import type { AlertDelivery, AlertStore, TakenDelivery } from '../storage/alerts.ts'
import { type AlertEvent, alertBody, alertId } from './alert.ts'
import type { Receiver } from './receiver.ts'

export interface OutboxOptions {
  readonly store: { readonly alerts: AlertStore }
  readonly receivers: readonly Receiver[]
  /** The gateway's own name and address in bodies. */
  readonly gateway: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

const LOOK_MS = 1_000
/** Longer than a delivery takes: an instance that died leaves its deliveries to others. */
const LEASE_MS = 60_000
const FIRST_PAUSE_MS = 1_000
const PAUSE_MAX_MS = 300_000
/** For each receiver. */
const TAKEN_MAX = 20
/** Alerts that wait in memory while the Store is away. */
const WAITING_MAX = 1_000

export class Outbox {
  readonly #options: OutboxOptions
  /** Not in the Store yet, oldest first. */
  #waiting: AlertDelivery[] = []
  readonly #known = new Set<string>()
  #timer: Timer | null = null
  #running: Promise<void> | null = null
  #closed = false

  constructor(options: OutboxOptions) {
    this.#options = options
    this.#schedule()
  }

  /** Alerts whose body is known to be in the Store, or on its way there. */
  raise(event: AlertEvent): void {
    const { receivers, gateway, clock } = this.#options
    const id = alertId(event)
    // An alert without room counts as unknown, so that the next look can raise it.
    if (this.#closed || this.#known.has(id) || this.#waiting.length >= WAITING_MAX) return
    this.#known.add(id)
    if (this.#known.size > 10 * WAITING_MAX) this.#known.clear()
    const createdAt = isoInstant(clock.nowMs())
    const body = alertBody(event, gateway, createdAt)
    const object = `${event.object.kind} ${event.object.id}`
    for (const { id: receiver, wants } of receivers)
      if (wants(event.type))
        this.#waiting.push({ alertId: id, receiver, type: event.type, object, body, createdAt })
  }

  /** Stores what waits, and delivers what is due. Those who ask at once share one run. */
  run(): Promise<void> {
    this.#running ??= this.#run().finally(() => {
      this.#running = null
    })
    return this.#running
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#running
  }

  async #run(): Promise<void> {
    const { store, receivers, clock } = this.#options
    try {
      for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
        await store.alerts.add(next, clock.nowMs())
        this.#waiting.shift()
      }
      // Each has a share of its own: what waits for one that is away must not hold up the others.
      const taken: TakenDelivery[] = []
      for (const { id } of receivers)
        taken.push(...(await store.alerts.take([id], clock.nowMs(), LEASE_MS, TAKEN_MAX)))
      await Promise.all(taken.map(each => this.#deliver(each)))
    } catch {
      // The Store is away, which its own watch tells: what waits is tried again.
    }
  }

  async #deliver({
    alertId,
    receiver,
    body,
    tries,
  }: {
    alertId: string
    receiver: string
    body: string
    tries: number
  }) {
    const { store, receivers, clock, log } = this.#options
    const to = receivers.find(({ id }) => id === receiver)
    if (to === undefined) return
    const result = await to.deliver(body)
    if (result.ok) {
      if (tries > 0) log.notice('alerts', 'an alert was delivered', { host: to.host, alert: alertId, tries })
      return await store.alerts.settle(alertId, receiver, null)
    }
    if (tries === 0)
      log.notice('alerts', 'an alert could not be delivered; it is tried again', {
        host: to.host,
        alert: alertId,
        why: result.why,
      })
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(tries, 20), PAUSE_MAX_MS)
    await store.alerts.settle(alertId, receiver, clock.nowMs() + pauseMs)
  }

  #schedule(): void {
    this.#timer = this.#options.clock.after(LOOK_MS, () => {
      void this.run().then(() => {
        if (!this.#closed) this.#schedule()
      })
    })
  }
}
