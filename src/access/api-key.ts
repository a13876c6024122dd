/** API keys: how they look, how they are made, what is kept of them. Pure but for randomness. */
import { hash, randomBytes } from 'node:crypto'
import { type Clock, isoInstant } from '../clock.ts'
import {
  DEFAULT_ORGANIZATION_ID,
  DEFAULT_WORKSPACE_ID,
  type KeyKind,
  type KeyRecord,
} from '../storage/store.ts'

const PREFIXES: Readonly<Record<KeyKind, string>> = { inference: 'sk-gw-v1-', management: 'sk-gw-mgmt-' }
const SECRET_BYTES = 32
const SECRET = /^[0-9a-f]{64}$/
/** Characters of the secret that the label shows at either end: enough to tell keys apart, 232 bits stay hidden. */
const LABEL_CHARACTERS = 3

/** How a key of a kind is written, for messages. */
export function keyForm(kind: KeyKind): string {
  return `${PREFIXES[kind]} and 64 lowercase hexadecimal characters`
}

/** The kind that the form of the text says, or null when it is no key at all. */
export function keyKind(text: string): KeyKind | null {
  for (const kind of ['inference', 'management'] as const) {
    const prefix = PREFIXES[kind]
    if (text.startsWith(prefix)) return SECRET.test(text.slice(prefix.length)) ? kind : null
  }
  return null
}

/** SHA-256 of the key, 64 lowercase hexadecimal characters: the only form in which it is kept. */
export function hashKey(key: string): string {
  return hash('sha256', key, 'hex')
}

/** A new random key. */
export function generateKey(kind: KeyKind): string {
  return PREFIXES[kind] + randomBytes(SECRET_BYTES).toString('hex')
}

export interface KeySettings {
  readonly name: string
  readonly clock: Clock
  readonly workspaceId?: string | null
  /** ISO 8601 UTC. */
  readonly expiresAt?: string | null
}

/** The record of a key of valid form. */
export function keyRecord(key: string, kind: KeyKind, settings: KeySettings): KeyRecord {
  const now = isoInstant(settings.clock.nowMs())
  const secret = key.slice(PREFIXES[kind].length)
  return {
    hash: hashKey(key),
    kind,
    name: settings.name,
    label: `${PREFIXES[kind]}${secret.slice(0, LABEL_CHARACTERS)}...${secret.slice(-LABEL_CHARACTERS)}`,
    organizationId: DEFAULT_ORGANIZATION_ID,
    workspaceId: settings.workspaceId ?? DEFAULT_WORKSPACE_ID,
    disabled: false,
    expiresAt: settings.expiresAt ?? null,
    limit: null,
    limitReset: null,
    includeByokInLimit: false,
    creatorUserId: null,
    createdAt: now,
    updatedAt: now,
  }
}

/** A new key with its record. The key itself exists nowhere else: show it, then forget it. */
export function createKey(settings: KeySettings & { readonly kind: KeyKind }): {
  key: string
  record: KeyRecord
} {
  const key = generateKey(settings.kind)
  return { key, record: keyRecord(key, settings.kind, settings) }
}
