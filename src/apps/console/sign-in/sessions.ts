/**
 * Console sessions of signed-in users. Each has a management key of its own that lives as long as the session, so the
 * roles, audit and revocation of keys apply. The key exists only in the memory of this process: neither the browser nor
 * the log contains it. Main thread.
 */
import { randomBytes } from 'node:crypto'
import { audited } from '../../../api/management/audit.ts'
import { toObject } from '../../../api/management/keys.ts'
import { type Clock, isoInstant } from '../../../base/clock.ts'
import { GatewayError } from '../../../base/errors.ts'
import { createKey, hashKey } from '../../../callers/api-key.ts'
import { RECORD_NAME_MAX_CHARS } from '../../../protocol/limits.ts'
import type { KeyRecord } from '../../../protocol/management/keys.ts'
import type { InvalidationBus } from '../../../storage/invalidation/bus.ts'
import type { Store } from '../../../storage/store.ts'
import type { SignedInIdentity } from './oidc-client.ts'

interface SessionsDeps {
  readonly store: Pick<Store, 'keys' | 'audited'>
  readonly clock: Clock
  readonly changes: InvalidationBus
}

interface ConsoleSession {
  /** For requests to the public port: `Bearer …`. */
  readonly authorization: string
  readonly record: KeyRecord
  readonly endsAtMs: number
}

/**
 * A working day. A user who loses the account at the provider keeps access until then, or until the key is disabled.
 */
const SESSION_MS = 8 * 3_600_000
/** A few kilobytes each. No single user can fill the limit. */
const MAX_SESSIONS = 256
/** Limit for one user with several browsers. A new session ends the oldest. */
const MAX_SESSIONS_PER_USER = 8

export class ConsoleSessions {
  readonly #deps: SessionsDeps
  /** Keyed by the hash of the cookie, oldest first. */
  readonly #sessions = new Map<string, ConsoleSession>()

  constructor(deps: SessionsDeps) {
    this.#deps = deps
  }

  /**
   * Opens a session with a management key of its own, and returns its secret for the cookie. Ends the oldest session of
   * a person who has too many.
   * @throws GatewayError `rate_limit_exceeded` if there are too many sessions in total; or the error of the store
   */
  async open({ issuer, subject, role }: SignedInIdentity, address: string): Promise<string> {
    const { store, clock } = this.#deps
    const nowMs = clock.nowMs()
    for (const [id, { endsAtMs }] of this.#sessions) if (endsAtMs <= nowMs) this.#sessions.delete(id)
    const identity = `${issuer} ${subject}`
    const ownSessions = [...this.#sessions].filter(([, { record }]) => record.identity === identity)
    const [oldest] = ownSessions.length < MAX_SESSIONS_PER_USER ? [] : ownSessions
    if (oldest === undefined && this.#sessions.size >= MAX_SESSIONS)
      throw new GatewayError('rate_limit_exceeded', 'Too many people are signed in; try again later')
    const endsAtMs = nowMs + SESSION_MS
    const { key, record } = createKey({
      kind: 'management',
      name: `console: ${subject}`.slice(0, RECORD_NAME_MAX_CHARS),
      clock,
      expiresAt: isoInstant(endsAtMs),
      role,
      identity,
    })
    const secret = randomBytes(32).toString('base64url')
    const id = hashKey(secret)
    // Before the first await, so that concurrent sign-ins are counted.
    this.#sessions.set(id, { authorization: `Bearer ${key}`, record, endsAtMs })
    if (oldest !== undefined) this.#sessions.delete(oldest[0])
    try {
      await store.keys.removeSessions(isoInstant(nowMs))
      if (oldest !== undefined) await this.#removeKey(oldest[1].record, address)
      await audited(
        this.#deps,
        { key: record, context: { address } },
        'key.create',
        ({ keys }) => keys.add(record),
        isNew => (isNew ? toObject(record) : null),
      )
    } catch (error) {
      this.#sessions.delete(id)
      throw error
    }
    return secret
  }

  /** Null: there is no such session, or it has ended. Its key may have been disabled since. */
  authorizationOf(secret: string): string | null {
    const session = this.#sessions.get(hashKey(secret))
    return session === undefined || session.endsAtMs <= this.#deps.clock.nowMs()
      ? null
      : session.authorization
  }

  /** Ends a session and its key. Rejects if the store fails; the session has ended anyway. */
  async end(secret: string, address: string): Promise<void> {
    const id = hashKey(secret)
    const session = this.#sessions.get(id)
    if (session === undefined) return
    this.#sessions.delete(id)
    await this.#removeKey(session.record, address)
  }

  async #removeKey(record: KeyRecord, address: string): Promise<void> {
    const { organizationId, hash } = record
    await audited(
      this.#deps,
      { key: record, context: { address } },
      'key.delete',
      ({ keys }) => keys.remove(organizationId, hash),
      isRemoved => (isRemoved ? toObject(record) : null),
    )
    this.#deps.changes.publish({ kind: 'key', hash })
  }
}
