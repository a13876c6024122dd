/**
 * A batch runner with a real database, a real provider and the test's clock. Batches are inserted into the database as
 * acceptance would insert them, and the clock advances as fast as the test waits.
 */
import { createSecretKey, randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import { createLog } from '../../src/base/log/log.ts'
import { wholeResult } from '../../src/batches/result-line.ts'
import { hashKey, keyRecord } from '../../src/callers/api-key.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { startShipper } from '../../src/process/services/ledger-shipper.ts'
import { type Batching, buildBatching } from '../../src/process/wiring/batch.ts'
import type { BatchStatus } from '../../src/protocol/management/batches.ts'
import type { KeyRecord } from '../../src/protocol/management/keys.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import type { BatchRecord, StoredResult } from '../../src/storage/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, type Store } from '../../src/storage/store.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { accept, allResults, type BatchFields, someLine } from '../storage/batches.ts'
import { newDatabase } from './new-database.ts'
import { type LineAnswer, LineProvider } from './provider.ts'
import { TestClock } from './test-clock.ts'

const MODEL = 'acme/model'
/** While the task pool looks at a batch: its deadline of a minute is six real seconds then. */
const CHECKED_STEP_MS = 10
/** USD per token. */
export const PRICES = { prompt: '0.000001', completion: '0.000002' }

export interface BatchWorldOptions {
  readonly answer?: LineAnswer
  readonly config?: Partial<Config>
  readonly models?: Config['models']
  readonly providers?: Config['providers']
  /** Fields of the key that the batches belong to. */
  readonly key?: Partial<KeyRecord>
  /** Default: a new database. */
  readonly storageUrl?: string
  readonly clock?: TestClock
  /** Puts something between the runners and their database. */
  readonly between?: (store: Store) => Store
}

interface WorldBatch extends Omit<BatchFields, 'lines'> {
  /** One request for each: a text for the model, or a whole body. */
  readonly lines: readonly (string | Readonly<Record<string, unknown>>)[]
}

/** A result as a client reads it, but for its `custom_id`. */
export interface ResultDocument {
  readonly id: string
  readonly response: {
    readonly status_code: number
    readonly request_id: string
    readonly body: unknown
  } | null
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly error_type: string
  } | null
}

export type BatchWorld = Awaited<ReturnType<typeof startBatchWorld>>

export async function startBatchWorld(t: Pick<Test, 'teardown'>, options: BatchWorldOptions = {}) {
  const provider = new LineProvider(options.answer)
  const baseUrl = await provider.listen()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-batch-'))
  const storageUrl = options.storageUrl ?? (await newDatabase(folder))
  const clock = options.clock ?? new TestClock(Date.UTC(2026, 4, 1))
  const lines: Record<string, unknown>[] = []
  const log = createLog('trace', {
    write: line => void lines.push(JSON.parse(line) as Record<string, unknown>),
  })
  const defaults = loadConfig([], {})
  const config: Config = {
    ...defaults,
    // Time flies here, and what really takes time must not be late.
    timeouts: {
      ...defaults.timeouts,
      upstreamHeadersMs: 7_200_000,
      upstreamIdleMs: 7_200_000,
      requestMs: 7_200_000,
    },
    ...options.config,
    storage: { url: storageUrl },
    threads: { serve: 1, warmUpMs: 0, tasks: 1 },
    providers: [
      { slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'shared' },
      ...(options.providers ?? []),
    ] as Config['providers'],
    models: [
      { id: MODEL, name: 'Model', endpoints: [{ provider: 'acme', pricing: PRICES }] },
      ...(options.models ?? []),
    ] as Config['models'],
  }
  const vaultKeys = `test:${randomBytes(32).toString('base64')}`
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  const store = await openStore(storageUrl)
  await store.keys.add({ ...keyRecord(apiKey, 'inference', { name: 'test', clock }), ...options.key })
  // The spool of a gateway with PostgreSQL is in its working folder, which is none of the test's.
  const ledgerUrl = storageUrl.startsWith('sqlite:') ? storageUrl : `sqlite:${join(folder, 'ledger.db')}`
  const shipper = await startShipper({ storageUrl: ledgerUrl, clock, log })
  const ledger = await openStore(ledgerUrl)
  const endUserKey = createSecretKey(randomBytes(32))
  const runners: Batching[] = []
  const build = async (between = options.between): Promise<Batching> => {
    const batching = await buildBatching({
      config,
      simUrl: null,
      endUserKey,
      vaultKeys: parseVaultKeys(vaultKeys),
      thread: `batch-${runners.length}`,
      log,
      spoolFolder: shipper.folder,
      clock,
      store: (between ?? (same => same))(await openStore(storageUrl)),
    })
    runners.push(batching)
    return batching
  }
  const batching = await build()
  batching.runner.wake()
  t.teardown(async () => {
    for (const each of runners) {
      const drained = each.runner.drain(0)
      let over = false
      void drained.finally(() => {
        over = true
      })
      while (!over) {
        clock.advance(100)
        await delay(1)
      }
      await each.close()
    }
    await shipper.close()
    await store.close()
    await ledger.close()
    await provider.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const keyHash = hashKey(apiKey)
  /** Batches that may be with the task pool. */
  const unchecked = new Set<string>()

  async function batch(id: string): Promise<BatchRecord> {
    const record = await store.batches.find(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, id)
    if (record === null) throw new Error('no such batch')
    return record
  }

  /** Whether a batch is with the task pool, whose threads have their deadlines by this clock, and need real time. */
  async function isChecking(): Promise<boolean> {
    for (const id of unchecked) {
      const record = await store.batches.find(DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID, id)
      if (record?.status === 'validating') return true
      unchecked.delete(id)
    }
    return false
  }

  return {
    clock,
    store,
    provider,
    shipper,
    lines,
    storageUrl,
    apiKey,
    keyHash,
    vaultKeys,
    batching,
    runner: batching.runner,
    /** Another runner on the same database, as another instance would have it. */
    another: build,
    /** Puts a batch into the database and wakes the runner. */
    async put({ lines, ...fields }: WorldBatch): Promise<BatchRecord> {
      const nowMs = clock.nowMs()
      const record = await accept(store.batches, {
        keyHash: keyHash,
        organizationId: DEFAULT_ORGANIZATION_ID,
        workspaceId: DEFAULT_WORKSPACE_ID,
        endpoint: '/v1/chat/completions',
        model: MODEL,
        createdAt: new Date(nowMs).toISOString(),
        expiresAt: new Date(nowMs + 86_400_000).toISOString(),
        ...fields,
        lines: lines.map((line, number) =>
          someLine(number, {
            body: JSON.stringify(
              typeof line === 'string' ? { messages: [{ role: 'user', content: line }] } : line,
            ),
          }),
        ),
      })
      batching.runner.wake()
      unchecked.add(record.id)
      return record
    },
    batch,
    /** Moves the clock on until it is so. Slowly, so that what really takes time is not late. */
    async until(described: () => boolean | Promise<boolean>, stepMs = 10): Promise<void> {
      for (;;) {
        if (await described()) return
        clock.advance((await isChecking()) ? Math.min(stepMs, CHECKED_STEP_MS) : stepMs)
        await delay(1)
      }
    },
    /** The batch once it is in this state. */
    async reaches(id: string, ...statuses: BatchStatus[]): Promise<BatchRecord> {
      // The task pool works by the clock too.
      const step = async () => ((await batch(id)).status === 'validating' ? 1 : 20)
      for (;;) {
        const record = await batch(id)
        if (statuses.includes(record.status)) return record
        clock.advance(await step())
        await delay(1)
      }
    },
    async results(id: string): Promise<(StoredResult & { readonly document: ResultDocument })[]> {
      const all = await allResults(store.batches, id)
      return all.map(result => ({
        ...result,
        document: JSON.parse(wholeResult(id, result)) as ResultDocument,
      }))
    },
    /** All usage records, oldest first. */
    async records(): Promise<readonly UsageRecord[]> {
      await shipper.ship()
      const records = await ledger.ledger.latest({ organizationId: DEFAULT_ORGANIZATION_ID }, 10_000)
      return records.toReversed()
    },
  }
}
