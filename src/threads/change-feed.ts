/**
 * Word of changed records between instances: by Redis, or by PostgreSQL where there is no Redis. Main thread. While the
 * way is cut nothing waits; when it is back, everybody reads anew what they remember, since word may have been missed.
 */
import { randomBytes } from 'node:crypto'
import type { Change, Changes } from '../access/changes.ts'
import type { Clock } from '../clock.ts'
import type { Config } from '../config.ts'
import type { Log } from '../log.ts'
import type { Wire, WireOptions } from './change-wire.ts'
import { openPostgresWire } from './postgres-wire.ts'
import { openRedisWire } from './redis-wire.ts'

export interface ChangeFeedOptions {
  readonly config: Pick<Config, 'redisUrl' | 'redisPrefix' | 'storageUrl'>
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** Called with each change that another instance made. */
  readonly onChange: (change: Change) => void
}

export interface ChangeFeed extends Changes {
  close(): Promise<void>
}

const EVERYTHING: Change = { kind: 'all' }
/** What PostgreSQL takes, in bytes, is 7,999; what is longer is told as a change of everything. */
const MESSAGE_MAX_CHARS = 2_000

/** Null when there is nobody to tell: one instance with a database of its own. */
export function startChangeFeed(options: ChangeFeedOptions): ChangeFeed | null {
  const { redisUrl, redisPrefix, storageUrl } = options.config
  if (redisUrl !== null) {
    return new WiredFeed(options, wire =>
      openRedisWire({ ...wire, url: redisUrl, channel: `${redisPrefix}changes` }),
    )
  }
  if (/^postgres(?:ql)?:/i.test(storageUrl)) {
    return new WiredFeed(options, wire =>
      openPostgresWire({ ...wire, url: storageUrl, channel: 'sluice_changes' }),
    )
  }
  return null
}

class WiredFeed implements ChangeFeed {
  readonly #wire: Wire
  readonly #onChange: (change: Change) => void
  readonly #self = randomBytes(8).toString('hex')
  /** Something could not be said. */
  #owing = false

  constructor(
    { clock, log, onChange }: ChangeFeedOptions,
    open: (options: Omit<WireOptions, 'url' | 'channel'>) => Wire,
  ) {
    this.#onChange = onChange
    this.#wire = open({
      clock,
      log,
      onMessage: text => this.#hear(text),
      onReady: () => {
        onChange(EVERYTHING)
        if (this.#owing) this.publish(EVERYTHING)
      },
    })
  }

  publish(change: Change): void {
    const whole = JSON.stringify({ from: this.#self, change })
    const text =
      whole.length > MESSAGE_MAX_CHARS ? JSON.stringify({ from: this.#self, change: EVERYTHING }) : whole
    this.#owing = false
    this.#wire.say(text).catch(() => {
      this.#owing = true
    })
  }

  close(): Promise<void> {
    return this.#wire.close()
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
