/**
 * Word of changed records between instances: by Redis, or by PostgreSQL where there is no Redis. Main thread. While the
 * way is cut nothing waits; when it is back, everybody reads anew what they remember, since word may have been missed.
 * A change that could not be told is owed, and made up for by a change of everything as soon as something gets out.
 */
import { randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { Log } from '../log/log.ts'
import type { Change, Changes } from './bus.ts'
import type { Wire, WireOptions } from './carrier.ts'
import { openPostgresWire } from './postgres.ts'
import { openRedisWire } from './redis.ts'

export interface ChangeFeedOptions {
  readonly config: Pick<Config, 'redis' | 'storage'>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** See WireOptions. */
  readonly silenceMs?: number
  /** Called with each change that another instance made. */
  readonly onChange: (change: Change) => void
}

export interface ChangeFeed extends Changes {
  close(): Promise<void>
}

const EVERYTHING: Change = { kind: 'all' }
/** What PostgreSQL takes, in bytes, is 7,999; what is longer is told as a change of everything. */
const MESSAGE_MAX_CHARS = 2_000
/** A server that takes connections but refuses words is not asked at each of them. */
const OWED_INTERVAL_MS = 1_000

/** Null when there is nobody to tell: one instance with a database of its own. */
export function startChangeFeed(options: ChangeFeedOptions): ChangeFeed | null {
  const { redis, storage } = options.config
  const redisUrl = redis.url
  if (redisUrl !== null) {
    return new WiredFeed(options, wire =>
      openRedisWire({ ...wire, url: redisUrl, channel: `${redis.prefix}changes` }),
    )
  }
  if (/^postgres(?:ql)?:/i.test(storage.url)) {
    return new WiredFeed(options, wire =>
      openPostgresWire({ ...wire, url: storage.url, channel: 'sluice_changes' }),
    )
  }
  return null
}

class WiredFeed implements ChangeFeed {
  readonly #wire: Wire
  readonly #onChange: (change: Change) => void
  readonly #self = randomBytes(8).toString('hex')
  readonly #clock: Clock
  /** How many changes were said so far, heard or not. */
  #said = 0
  /** The number of the last one that failed, until everything is told anew; 0: nothing is owed. */
  #owed = 0
  /** Monotonic: when the way was back and what is owed was told for that reason. */
  #triedMs = Number.NEGATIVE_INFINITY
  #again: Timer | null = null
  #closed = false

  constructor(
    { clock, log, silenceMs, onChange }: ChangeFeedOptions,
    open: (options: Omit<WireOptions, 'url' | 'channel'>) => Wire,
  ) {
    this.#onChange = onChange
    this.#clock = clock
    this.#wire = open({
      clock,
      log,
      ...(silenceMs === undefined ? {} : { silenceMs }),
      onMessage: text => this.#hear(text),
      onReady: () => onChange(EVERYTHING),
      onSayable: () => this.#sayable(),
    })
  }

  publish(change: Change): void {
    const one = this.#owed === 0 ? this.#text(change) : ''
    const tellsAll = one === '' || one.length > MESSAGE_MAX_CHARS
    const number = ++this.#said
    this.#wire.say(tellsAll ? this.#text(EVERYTHING) : one).then(
      () => {
        // What failed after this was said is not in it.
        if (tellsAll && number > this.#owed) this.#owed = 0
      },
      () => this.#owe(number),
    )
  }

  close(): Promise<void> {
    this.#closed = true
    this.#again?.cancel()
    return this.#wire.close()
  }

  /** It is tried again with the next change, when the way is back, or after a while. */
  #owe(number: number): void {
    this.#owed = Math.max(this.#owed, number)
    if (this.#closed) return
    this.#again ??= this.#clock.after(OWED_INTERVAL_MS, () => {
      this.#again = null
      this.#pay()
    })
  }

  #sayable(): void {
    const nowMs = this.#clock.monotonicMs()
    if (this.#owed === 0 || nowMs - this.#triedMs < OWED_INTERVAL_MS) return
    this.#triedMs = nowMs
    this.#pay()
  }

  #pay(): void {
    if (this.#owed !== 0) this.publish(EVERYTHING)
  }

  #text(change: Change): string {
    return JSON.stringify({ from: this.#self, change })
  }

  #hear(text: string): void {
    const heard = parse(text)
    // What cannot be read was said by a later version, about something.
    if (heard?.from !== this.#self) this.#onChange(heard?.change ?? EVERYTHING)
  }
}

function parse(text: string): { readonly from: string; readonly change: Change | null } | null {
  let said: unknown
  try {
    said = JSON.parse(text)
  } catch {
    return null
  }
  if (!isRecord(said) || typeof said['from'] !== 'string') return null
  return { from: said['from'], change: changeOf(said['change']) }
}

function changeOf(said: unknown): Change | null {
  if (!isRecord(said)) return null
  const { kind, hash, organizationId, workspaceId, ids } = said
  if (kind === 'all') return EVERYTHING
  if (kind === 'key') return typeof hash === 'string' ? { kind, hash } : null
  if (typeof organizationId !== 'string') return null
  if (kind === 'guardrails') return { kind, organizationId }
  if (kind !== 'credentials' || typeof workspaceId !== 'string') return null
  if (!Array.isArray(ids) || !ids.every(id => typeof id === 'string')) return null
  return { kind, organizationId, workspaceId, ids }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
