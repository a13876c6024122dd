/** A gateway for management tests, on a stopped clock, that keeps the answers it gave. */
import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { keyRecord } from '../../src/callers/api-key.ts'
import type { KeyKind, KeyRecord } from '../../src/protocol/management/keys.ts'
import type { WorkspaceRecord } from '../../src/protocol/management/management.ts'
import { openStore } from '../../src/storage/open.ts'
import type { Store } from '../../src/storage/store.ts'
import { startGateway, type TestGateway, type TestGatewayOptions } from './gateway.ts'
import { type Answered, caller } from './management.ts'
import { TestClock } from './test-clock.ts'

export const OTHER_ORGANIZATION = 'org_other'
export const FOREIGN_WORKSPACE: WorkspaceRecord = {
  id: '11111111-1111-4111-8111-111111111111',
  organizationId: OTHER_ORGANIZATION,
  name: 'Foreign',
  slug: 'foreign',
  description: null,
  disabledTools: null,
  createdAt: '2026-01-01T00:00:00.000Z',
  updatedAt: '2026-01-01T00:00:00.000Z',
}
/** A Thursday: the week began on Monday the 13th. */
export const NOON = Date.UTC(2026, 6, 16, 12)

interface ManagedGateway {
  readonly gateway: TestGateway
  readonly clock: TestClock
  readonly store: Store
  /** Texts of all answers so far. */
  readonly answers: readonly string[]
  /** With the management key unless another one is given. */
  call(method: string, path: string, body?: unknown, key?: string): Promise<Answered>
  /** A key that is put into the store directly. */
  addKey(kind: KeyKind, fields?: Partial<KeyRecord>): Promise<{ key: string; record: KeyRecord }>
}

export async function startManagedGateway(
  t: Pick<Test, 'teardown'>,
  options: Omit<TestGatewayOptions, 'clock'> = {},
): Promise<ManagedGateway> {
  const clock = new TestClock(NOON)
  const gateway = await startGateway({ ...options, clock })
  const store = await openStore(gateway.storageUrl)
  t.teardown(async () => {
    await store.close()
    await gateway.close()
  })
  const answers: string[] = []
  return {
    gateway,
    clock,
    store,
    answers,
    async call(method, path, body, key = gateway.managementKey) {
      const answer = await caller(gateway.url, key)(method, path, body)
      answers.push(answer.text)
      return answer
    },
    async addKey(kind, fields = {}) {
      const prefix = kind === 'inference' ? 'sk-gw-v1-' : 'sk-gw-mgmt-'
      const key = prefix + randomBytes(32).toString('hex')
      const record = { ...keyRecord(key, kind, { name: 'added', clock }), ...fields }
      await store.keys.add(record)
      return { key, record }
    },
  }
}
