/** API keys: their format (`sk-gw-v1-…`), their creation, and the stored record. Pure except for randomness. */
import { hash, randomBytes } from 'node:crypto'
import { type Clock, isoInstant } from '../base/clock.ts'
import { KEY, type KeyKind, type KeyRecord, type KeyRole } from '../protocol/management/keys.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, type KeySecret } from '../storage/store.ts'

const PREFIXES: Readonly<Record<KeyKind, string>> = { inference: 'sk-gw-v1-', management: 'sk-gw-mgmt-' }
const SECRET_BYTES = 32
const SECRET = /^[0-9a-f]{64}$/
/** Characters of the secret at either end of the label: enough to tell keys apart, while 232 bits stay hidden. */
const LABEL_CHARS = 3

/** Describes the form of a key, for use in messages. */
export function keyForm(kind: KeyKind): string {
  return `${PREFIXES[kind]} and 64 lowercase hexadecimal characters`
}

/** Reads the kind from the form of the text; null when it is not a key. */
export function keyKind(text: string): KeyKind | null {
  for (const kind of ['inference', 'management'] as const) {
    const prefix = PREFIXES[kind]
    if (text.startsWith(prefix)) return SECRET.test(text.slice(prefix.length)) ? kind : null
  }
  return null
}

/** Among 64 random hexadecimal characters, fewer different ones than this occur in less than one of 10^18 keys. */
const MIN_DIFFERENT_CHARS = 8

/** True if a key of valid form is easy to guess: it repeats a few characters, or one part of itself. */
export function isGuessable(key: string): boolean {
  const secret = key.slice(key.lastIndexOf('-') + 1)
  return new Set(secret).size < MIN_DIFFERENT_CHARS || (secret + secret).indexOf(secret, 1) < secret.length
}

/** SHA-256 of the key, 64 lowercase hexadecimal characters: the only form that is stored. */
export function hashKey(key: string): string {
  return hash('sha256', key, 'hex')
}

/** Generates a random key. */
export function generateKey(kind: KeyKind): string {
  return PREFIXES[kind] + randomBytes(SECRET_BYTES).toString('hex')
}

interface ApiKeyOptions {
  readonly name: string
  readonly clock: Clock
  readonly workspaceId?: string | null
  /** ISO 8601 UTC. */
  readonly expiresAt?: string | null
  /** Only for management keys. */
  readonly role?: KeyRole | null
  /** Only for keys of console sessions; see KeyRecord. */
  readonly identity?: string | null
}

/** Creates the record of a key that has a valid form. */
export function keyRecord(key: string, kind: KeyKind, settings: ApiKeyOptions): KeyRecord {
  const now = isoInstant(settings.clock.nowMs())
  return {
    ...KEY.initial,
    loopPolicy: null,
    caching: null,
    hash: hashKey(key),
    kind,
    name: settings.name,
    label: labelOf(key, kind),
    organizationId: DEFAULT_ORGANIZATION_ID,
    workspaceId: settings.workspaceId ?? DEFAULT_WORKSPACE_ID,
    expiresAt: settings.expiresAt ?? null,
    secretExpiresAt: null,
    rates: null,
    role: settings.role ?? null,
    identity: settings.identity ?? null,
    createdAt: now,
    updatedAt: now,
  }
}

function labelOf(key: string, kind: KeyKind): string {
  const secret = key.slice(PREFIXES[kind].length)
  return `${PREFIXES[kind]}${secret.slice(0, LABEL_CHARS)}...${secret.slice(-LABEL_CHARS)}`
}

/** Creates one more secret for a key. `key` itself is not stored anywhere: show it once. */
export function createSecret(
  kind: KeyKind,
  clock: Clock,
): { key: string; secret: Omit<KeySecret, 'expiresAt'> } {
  const key = generateKey(kind)
  const secret = { hash: hashKey(key), label: labelOf(key, kind), createdAt: isoInstant(clock.nowMs()) }
  return { key, secret }
}

/** Creates a key with its record. The key itself is not stored anywhere: show it once. */
export function createKey(settings: ApiKeyOptions & { readonly kind: KeyKind }): {
  key: string
  record: KeyRecord
} {
  const key = generateKey(settings.kind)
  return { key, record: keyRecord(key, settings.kind, settings) }
}
