/** Calls management operations over real HTTP, with a second organization to detect leaks. */
import { randomBytes, randomUUID } from 'node:crypto'
import { systemClock } from '../../src/base/clock.ts'
import { createKey, hashKey, keyRecord } from '../../src/callers/api-key.ts'
import type { KeyRecord } from '../../src/protocol/management/keys.ts'
import { openStore } from '../../src/storage/open.ts'

export interface Answered {
  readonly status: number
  readonly text: string
  /** The whole document. */
  readonly document: Record<string, unknown>
  /** Its `data`, where that is one record. */
  readonly data: Record<string, unknown>
  /** Its `data`, where that is a list. */
  readonly list: readonly Record<string, unknown>[]
  /** `error.message` of an envelope; empty otherwise. */
  readonly message: string
}

export type Caller = (method: string, path: string, body?: unknown) => Promise<Answered>

/** Calls operations under a base URL with a key; null: with none. A body that is a string goes out as it is. */
export function caller(url: string, key: string | null): Caller {
  return async (method, path, body) => {
    const reply = await fetch(url + path, {
      method,
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    const text = await reply.text()
    const document = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>
    const { data } = document
    const error = document['error'] as { message?: string } | undefined
    return {
      status: reply.status,
      text,
      document,
      data: (Array.isArray(data) ? {} : (data ?? {})) as Answered['data'],
      list: Array.isArray(data) ? data : [],
      message: error?.message ?? '',
    }
  }
}

export interface Organization {
  readonly id: string
  readonly managementKey: string
  readonly apiKey: string
  readonly apiKeyHash: string
  /** A workspace of its own; it has no default one. */
  readonly workspaceId: string
}

/** A key, written straight into the database: of the default organization and workspace unless told otherwise. */
export async function addKey(
  storageUrl: string,
  { kind = 'inference', ...fields }: Partial<KeyRecord> = {},
): Promise<string> {
  const { key, record } = createKey({ kind, name: 'added', clock: systemClock })
  const store = await openStore(storageUrl)
  await store.keys.add({ ...record, ...fields })
  await store.close()
  return key
}

/** An organization beside the default one, written straight into the database. */
export async function addOrganization(storageUrl: string, id: string): Promise<Organization> {
  const store = await openStore(storageUrl)
  const clock = systemClock
  const now = new Date(clock.nowMs()).toISOString()
  const workspaceId = randomUUID()
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  try {
    await store.workspaces.add({
      id: workspaceId,
      organizationId: id,
      name: id,
      slug: 'main',
      description: null,
      disabledTools: null,
      rateLimit: null,
      loops: null,
      cache: null,
      createdAt: now,
      updatedAt: now,
    })
    for (const [key, kind] of [
      [managementKey, 'management'],
      [apiKey, 'inference'],
    ] as const) {
      const record = keyRecord(key, kind, { name: `${id} ${kind}`, clock, workspaceId })
      await store.keys.add({ ...record, organizationId: id })
    }
  } finally {
    await store.close()
  }
  return { id, managementKey, apiKey, apiKeyHash: hashKey(apiKey), workspaceId }
}
