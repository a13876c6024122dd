/**
 * The checks that raise alerts, run at fixed intervals: key budgets, credits, expiry dates, providers, failures, the
 * spool and overload. Main thread; only if receivers are configured.
 */
import { type Clock, isoInstant, type Timer, within } from '../../base/clock.ts'
import { limitUsageOf, PICOS_PER_MICRO } from '../../callers/limits/spending.ts'
import type { Store } from '../../storage/store.ts'
import type { AlertEvent, AlertObject } from './alert-body.ts'
import { BudgetWatch, type UsedKey } from './budgets.ts'

/** Counts of requests since the start of the process. */
export interface RequestCounts {
  readonly total: number
  readonly failed: number
  /** Requests refused because of overload, not counting keys at their own limit. */
  readonly shed: number
}

interface WatchesOptions {
  readonly store: Pick<Store, 'keys' | 'ledger' | 'credits' | 'alerts'>
  /** Returns true if the event is new and will cause an alert. */
  readonly raise: (event: AlertEvent) => boolean
  /** Name of this instance. */
  readonly node: string
  readonly byokFeePercent: number
  /** The organization's credits in USD below which an alert is raised; null: never. */
  readonly creditsLowUsd: number | null
  /** Slugs of providers none of whose endpoints may be called, for all keys. */
  readonly downProviders: () => readonly string[]
  readonly counts: () => Promise<RequestCounts>
  readonly spoolBytes: () => number
  /** Unix milliseconds; null without a certificate. */
  readonly certificateExpiresMs: () => number | null
  readonly clock: Clock
}

const CHECK_INTERVAL_MS = 10_000
/** A watch that takes longer is not waited for; the others continue. */
const WATCH_TIMEOUT_MS = 30_000
/** A watch that is still running after this time hangs, so a new one is started. */
const HANGING_AFTER_MS = 600_000
const EXPIRY_INTERVAL_MS = 600_000
const DAY_MS = 86_400_000
/** Maximum expiring keys per organization, so that one with thousands does not displace others. */
const MAX_EXPIRING_PER_ORGANIZATION = 50
const MAX_EXPIRING_KEYS = 1_000
const CERTIFICATE_WARNING_MS = 14 * DAY_MS
const KEY_WARNINGS_DAYS = [7, 1] as const
const BEHIND_MIN_BYTES = 64 * 1024 * 1024
/** 14.4 times the error budget of 0.1 %, as in the alert rule. */
const BURNING_RATIO = 0.0144
const MINUTE_MS = 60_000
const HOUR_MINUTES = 60
const SHORT_MINUTES = 5
/** Fewer requests in an hour say nothing. */
const BURNING_MIN_REQUESTS = 20
const PROVIDER_TYPES = ['provider.down', 'provider.up'] as const

export class AlertWatches {
  readonly #options: WatchesOptions
  readonly #budgets: BudgetWatch
  /** Watches that run, and when they began, in monotonic milliseconds. */
  readonly #runningSince = new Map<string, number>()
  readonly #organizations = new Set<string>()
  readonly #downProviders = new Set<string>()
  /** One a minute, newest first. */
  #minutes: RequestCounts[] = []
  #checkCount = 0
  #timer: Timer | null = null
  #running: Promise<void> = Promise.resolve()
  #closed = false

  constructor(options: WatchesOptions) {
    this.#options = options
    this.#budgets = new BudgetWatch(options)
    this.#schedule()
  }

  /** Receives keys with spending since the last check. */
  noteUsed(keys: readonly UsedKey[]): void {
    this.#budgets.noteUsed(keys)
    for (const { organizationId } of keys) this.#organizations.add(organizationId)
  }

  /** Runs the checks that are due. Never rejects: failed reads are repeated next time. */
  async check(): Promise<void> {
    const checkCount = this.#checkCount++
    const watches: Readonly<Record<string, () => Promise<void>>> = {
      budgets: () => this.#budgets.check(),
      credits: () => this.#credits(),
      providers: () => this.#providers(),
      load: () => this.#load(),
      ...(checkCount % (MINUTE_MS / CHECK_INTERVAL_MS) === 0 ? { failures: () => this.#failures() } : {}),
      ...(checkCount % (EXPIRY_INTERVAL_MS / CHECK_INTERVAL_MS) === 0
        ? { expiries: () => this.#expiries() }
        : {}),
    }
    await Promise.all(Object.entries(watches).map(([name, watch]) => this.#run(name, watch)))
  }

  /** Starts a watch, unless it is still running. A watch with a hanging database does not delay the others. */
  async #run(name: string, watch: () => Promise<void>): Promise<void> {
    const { clock } = this.#options
    const nowMs = clock.monotonicMs()
    if (nowMs - (this.#runningSince.get(name) ?? Number.NEGATIVE_INFINITY) < HANGING_AFTER_MS) return
    this.#runningSince.set(name, nowMs)
    const ended = () => {
      if (this.#runningSince.get(name) === nowMs) this.#runningSince.delete(name)
    }
    await within(clock, WATCH_TIMEOUT_MS, watch().then(ended, ended)).catch(() => undefined)
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
      // If this organization could not be read, it is checked again next time.
      this.#organizations.delete(organizationId)
      if (sums === null) continue
      const usage = limitUsageOf({ includeByokInLimit: false }, sums, byokFeePercent)
      const leftUsd = (total - Number(usage / PICOS_PER_MICRO)) / 1e6
      if (leftUsd >= creditsLowUsd) continue
      raise({
        type: 'credits.low',
        object: { kind: 'organization', id: organizationId, name: organizationId, workspaceId: null },
        window: `${total}`,
        data: { left_usd: leftUsd, low_usd: creditsLowUsd },
      })
    }
  }

  /** The Store knows the last state, so that instances and restarts report each change once. */
  async #providers(): Promise<void> {
    const { store, raise, downProviders } = this.#options
    const down = new Set(downProviders())
    for (const slug of new Set([...down, ...this.#downProviders])) {
      const isDown = down.has(slug)
      if (isDown === this.#downProviders.has(slug)) continue
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
      if (isDown) this.#downProviders.add(slug)
      else this.#downProviders.delete(slug)
    }
  }

  async #load(): Promise<void> {
    const { raise, spoolBytes } = this.#options
    const bytes = spoolBytes()
    if (bytes > BEHIND_MIN_BYTES)
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
    const [hourShare, minutesShare] = [HOUR_MINUTES, SHORT_MINUTES].map(minutes => this.#since(now, minutes))
    if (hourShare === undefined || minutesShare === undefined || hourShare.all < BURNING_MIN_REQUESTS) return
    if (hourShare.ratio > BURNING_RATIO && minutesShare.ratio > BURNING_RATIO)
      raise({
        type: 'errors.burning',
        object: { kind: 'gateway', id: 'gateway', name: 'gateway', workspaceId: null },
        window: this.#hour(),
        data: { failed_share: Math.round(hourShare.ratio * 1e4) / 1e4, requests: hourShare.all },
      })
  }

  #since(now: RequestCounts, minutes: number): { readonly all: number; readonly ratio: number } {
    const earlier = this.#minutes[Math.min(minutes, this.#minutes.length - 1)] ?? now
    const total = now.total - earlier.total
    return { all: total, ratio: total === 0 ? 0 : (now.failed - earlier.failed) / total }
  }

  async #expiries(): Promise<void> {
    const { store, raise, clock, certificateExpiresMs } = this.#options
    const nowMs = clock.nowMs()
    const certificate = certificateExpiresMs()
    if (certificate !== null && certificate - nowMs < CERTIFICATE_WARNING_MS)
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
        MAX_EXPIRING_PER_ORGANIZATION,
        MAX_EXPIRING_KEYS,
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
    this.#timer = this.#options.clock.after(CHECK_INTERVAL_MS, () => {
      this.#running = this.check().then(() => {
        if (!this.#closed) this.#schedule()
      })
    })
  }
}
