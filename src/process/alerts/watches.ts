/**
 * The checks that raise alerts, run at fixed intervals: key budgets, credits, expiry dates, providers, failures, the
 * spool and overload. Main thread; only if receivers are configured.
 */
import { type Clock, isoInstant, type Timer } from '../../base/clock.ts'
import { limitUsageOf, PICOS_PER_MICRO } from '../../callers/limits/spending.ts'
import type { Store } from '../../storage/store.ts'
import type { AlertEvent, AlertObject } from './alert.ts'
import { BudgetWatch, type UsedKey } from './budgets.ts'
import { within } from './deadline.ts'

/** Counts of requests since the start of the process. */
export interface RequestCounts {
  readonly all: number
  readonly failed: number
  /** Refused for want of room, those of one key at its own limit left out. */
  readonly shed: number
}

interface WatchesOptions {
  readonly store: Pick<Store, 'keys' | 'ledger' | 'credits' | 'alerts'>
  /** True: it is new, and will be told. */
  readonly raise: (event: AlertEvent) => boolean
  /** Name of this instance. */
  readonly node: string
  readonly byokFeePercent: number
  /** USD below which the credits of an organization are low; null: never. */
  readonly creditsLowUsd: number | null
  /** Slugs of providers none of whose endpoints may be asked, for all keys. */
  readonly downProviders: () => readonly string[]
  readonly counts: () => Promise<RequestCounts>
  readonly spoolBytes: () => number
  /** Unix milliseconds; null without a certificate. */
  readonly certificateExpiresMs: () => number | null
  readonly clock: Clock
}

const LOOK_MS = 10_000
/** A watch that takes longer is not waited for: the others go on. */
const WATCH_MS = 30_000
/** A watch that has not ended by then never will, and is begun again. */
const GIVEN_UP_MS = 600_000
const EXPIRY_LOOKS = 60
const DAY_MS = 86_400_000
/** Of keys that expire: whoever makes thousands of them leaves room for those of others. */
const EXPIRING_PER_ORGANIZATION = 50
const EXPIRING_MAX = 1_000
const CERTIFICATE_MS = 14 * DAY_MS
const KEY_WARNINGS_DAYS = [7, 1] as const
const BEHIND_BYTES = 64 * 1024 * 1024
/** Fourteen and four tenths of the budget of one in a thousand, as in the alert rule. */
const BURNING = 0.0144
const MINUTE_LOOKS = 6
const HOUR_MINUTES = 60
const SHORT_MINUTES = 5
/** Fewer requests in an hour say nothing. */
const BURNING_MIN = 20
const PROVIDER_TYPES = ['provider.down', 'provider.up'] as const

export class AlertWatches {
  readonly #options: WatchesOptions
  readonly #budgets: BudgetWatch
  /** Watches that run, and when they began, in monotonic milliseconds. */
  readonly #begun = new Map<string, number>()
  readonly #organizations = new Set<string>()
  readonly #down = new Set<string>()
  /** One a minute, newest first. */
  #minutes: RequestCounts[] = []
  #looks = 0
  #timer: Timer | null = null
  #running: Promise<void> = Promise.resolve()
  #closed = false

  constructor(options: WatchesOptions) {
    this.#options = options
    this.#budgets = new BudgetWatch(options)
    this.#schedule()
  }

  /** Keys that have spent since the last look. */
  noteUsed(keys: readonly UsedKey[]): void {
    this.#budgets.noteUsed(keys)
    for (const { organizationId } of keys) this.#organizations.add(organizationId)
  }

  /** Looks at everything once. Never rejects: what cannot be asked now is asked again. */
  async look(): Promise<void> {
    const looks = this.#looks++
    const watches: Readonly<Record<string, () => Promise<void>>> = {
      budgets: () => this.#budgets.look(),
      credits: () => this.#credits(),
      providers: () => this.#providers(),
      load: () => this.#load(),
      ...(looks % MINUTE_LOOKS === 0 ? { failures: () => this.#failures() } : {}),
      ...(looks % EXPIRY_LOOKS === 0 ? { expiries: () => this.#expiries() } : {}),
    }
    await Promise.all(Object.entries(watches).map(([name, watch]) => this.#run(name, watch)))
  }

  /** Runs a watch, unless it runs already. One that asks a database that hangs holds up no other. */
  async #run(name: string, watch: () => Promise<void>): Promise<void> {
    const { clock } = this.#options
    const nowMs = clock.monotonicMs()
    if (nowMs - (this.#begun.get(name) ?? Number.NEGATIVE_INFINITY) < GIVEN_UP_MS) return
    this.#begun.set(name, nowMs)
    const ended = () => {
      if (this.#begun.get(name) === nowMs) this.#begun.delete(name)
    }
    await within(clock, WATCH_MS, watch().then(ended, ended)).catch(() => undefined)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#running
  }

  async #credits(): Promise<void> {
    const { store, raise, creditsLowUsd, byokFeePercent } = this.#options
    if (creditsLowUsd === null) return this.#organizations.clear()
    for (const organizationId of this.#organizations) {
      const total = await store.credits.total(organizationId)
      const sums = total === 0 ? null : await store.ledger.usageSince({ organizationId, since: '' })
      // One that could not be asked about is asked about again.
      this.#organizations.delete(organizationId)
      if (sums === null) continue
      const spent = limitUsageOf({ includeByokInLimit: false }, sums, byokFeePercent)
      const leftUsd = (total - Number(spent / PICOS_PER_MICRO)) / 1e6
      if (leftUsd >= creditsLowUsd) continue
      raise({
        type: 'credits.low',
        object: { kind: 'organization', id: organizationId, name: organizationId, workspaceId: null },
        window: `${total}`,
        data: { left_usd: leftUsd, low_usd: creditsLowUsd },
      })
    }
  }

  /** The Store knows the last state, so that instances and restarts tell each change once. */
  async #providers(): Promise<void> {
    const { store, raise, downProviders } = this.#options
    const down = new Set(downProviders())
    for (const slug of new Set([...down, ...this.#down])) {
      const isDown = down.has(slug)
      if (isDown === this.#down.has(slug)) continue
      const object: AlertObject = { kind: 'provider', id: slug, name: slug, workspaceId: null }
      const last = await store.alerts.latest(PROVIDER_TYPES, `provider ${slug}`)
      const wasDown = last?.type === 'provider.down'
      if (isDown !== wasDown)
        raise({
          type: isDown ? 'provider.down' : 'provider.up',
          object,
          window: last?.id ?? '',
          data: {},
        })
      if (isDown) this.#down.add(slug)
      else this.#down.delete(slug)
    }
  }

  async #load(): Promise<void> {
    const { raise, spoolBytes } = this.#options
    const bytes = spoolBytes()
    if (bytes > BEHIND_BYTES)
      raise({
        type: 'ledger.behind',
        object: this.#node(),
        window: this.#hour(),
        data: { waiting_bytes: bytes },
      })
  }

  async #failures(): Promise<void> {
    const { raise, counts } = this.#options
    const now = await counts()
    const before = this.#minutes[0]
    this.#minutes = [now, ...this.#minutes].slice(0, HOUR_MINUTES + 1)
    if (before === undefined) return
    if (now.shed > before.shed)
      raise({
        type: 'gateway.overloaded',
        object: this.#node(),
        window: this.#hour(),
        data: { refused_last_minute: now.shed - before.shed },
      })
    const [long, short] = [HOUR_MINUTES, SHORT_MINUTES].map(minutes => this.#since(now, minutes))
    if (long === undefined || short === undefined || long.all < BURNING_MIN) return
    if (long.ratio > BURNING && short.ratio > BURNING)
      raise({
        type: 'errors.burning',
        object: { kind: 'gateway', id: 'gateway', name: 'gateway', workspaceId: null },
        window: this.#hour(),
        data: { failed_share: Math.round(long.ratio * 1e4) / 1e4, requests: long.all },
      })
  }

  #since(now: RequestCounts, minutes: number): { readonly all: number; readonly ratio: number } {
    const then = this.#minutes[Math.min(minutes, this.#minutes.length - 1)] ?? now
    const all = now.all - then.all
    return { all, ratio: all === 0 ? 0 : (now.failed - then.failed) / all }
  }

  async #expiries(): Promise<void> {
    const { store, raise, clock, certificateExpiresMs } = this.#options
    const nowMs = clock.nowMs()
    const certificate = certificateExpiresMs()
    if (certificate !== null && certificate - nowMs < CERTIFICATE_MS)
      raise({
        type: 'certificate.expiring',
        object: { kind: 'certificate', id: 'listen.tls', name: 'listen.tls', workspaceId: null },
        window: `${certificate}`,
        data: { expires_at: isoInstant(certificate) },
      })
    for (const days of KEY_WARNINGS_DAYS) {
      const until = isoInstant(nowMs + days * DAY_MS)
      for (const { hash, name, workspaceId, expiresAt } of await store.alerts.expiringKeys(
        isoInstant(nowMs),
        until,
        EXPIRING_PER_ORGANIZATION,
        EXPIRING_MAX,
      ))
        raise({
          type: 'key.expiring',
          object: { kind: 'key', id: hash, name, workspaceId },
          window: `${expiresAt} ${days}`,
          data: { expires_at: expiresAt, within_days: days },
        })
    }
  }

  #node(): AlertObject {
    const { node } = this.#options
    return { kind: 'gateway', id: node, name: node, workspaceId: null }
  }

  #hour(): string {
    return isoInstant(this.#options.clock.nowMs()).slice(0, 13)
  }

  #schedule(): void {
    this.#timer = this.#options.clock.after(LOOK_MS, () => {
      this.#running = this.look().then(() => {
        if (!this.#closed) this.#schedule()
      })
    })
  }
}
