/**
 * Acceptance of batches in one process: real tasks without workers, and a real Store that fails when a test says so.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type GatewayError, toGatewayError } from '../../src/base/errors.ts'
import {
  type AcceptDeps,
  BatchAcceptances,
  type BatchBounds,
  type IncomingBatch,
} from '../../src/batches/accept.ts'
import { Uploads } from '../../src/batches/uploads.ts'
import type { ClientRequest } from '../../src/exchange/exchange.ts'
import { checkBatch } from '../../src/features/tasks/check-batch.ts'
import { hashFile } from '../../src/features/tasks/hash-file.ts'
import { createBatchStoring } from '../../src/features/tasks/store-batch.ts'
import { fromPlain, TaskError, type TaskOutcome, toPlain } from '../../src/features/tasks/task.ts'
import type { BatchRecord } from '../../src/storage/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import type { Store } from '../../src/storage/store.ts'
import { type Fails, failingStore } from './failing-store.ts'
import { scriptedContext } from './scripted-attempt.ts'
import { TestClock } from './test-clock.ts'

const ORGANIZATION = 'org'
const WORKSPACE = 'ws'
const KEY_HASH = 'a'.repeat(64)

interface InlineAcceptance {
  readonly acceptances: BatchAcceptances
  readonly uploads: Uploads
  readonly clock: TestClock
  /** Never fails. */
  readonly store: Store
  /** Names of jobs, with the verb where there is one. */
  readonly jobs: readonly string[]
  /** Requests whose admission was asked for. */
  readonly asked: readonly ClientRequest[]
  /** Verbs of the Store that jobs called. */
  readonly calls: () => readonly string[]
  accept(body: string, fields?: Partial<IncomingBatch>): Promise<{ batch: BatchRecord; isReplayed: boolean }>
  /** The error; null: it was accepted. */
  refused(body: string, fields?: Partial<IncomingBatch>): Promise<GatewayError | null>
  /** Ids of the batches that the workspace sees. */
  visible(): Promise<readonly string[]>
}

interface InlineOptions {
  readonly fails?: Fails
  readonly admit?: AcceptDeps['admit']
  readonly bounds?: Partial<BatchBounds>
  /** Called before each job with its name; an outcome ends it so. */
  readonly onJob?: (name: string) => Exclude<TaskOutcome, 'ok'> | null
}

export async function startInlineAcceptance(t: Test, options: InlineOptions = {}): Promise<InlineAcceptance> {
  const { fails = () => null, onJob = () => null } = options
  const clock = new TestClock()
  const store = await openStore('sqlite::memory:')
  const folder = mkdtempSync(join(tmpdir(), 'sluice-accept-'))
  t.teardown(async () => {
    await store.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const failing = failingStore(store, fails)
  const functions: Readonly<Record<string, (input: never) => unknown>> = {
    'hash-file': hashFile,
    'check-batch': checkBatch,
    'store-batch': createBatchStoring(async () => ({ ...failing.store, close: async () => undefined })),
  }
  const jobs: string[] = []
  const asked: ClientRequest[] = []
  const uploads = new Uploads({ folder, maxBytes: 100_000_000 })
  const acceptances = new BatchAcceptances({
    uploads,
    tasks: {
      async run(name, input) {
        const { verb } = input as { verb?: string }
        const job = verb === undefined ? name : `${name} ${verb}`
        jobs.push(job)
        const outcome = onJob(job)
        if (outcome !== null) throw new TaskError(outcome, outcome === 'failed' ? toPlain(new Error()) : null)
        try {
          // As between threads.
          return structuredClone(await functions[name]?.(structuredClone(input) as never)) as never
        } catch (error) {
          throw fromPlain(toPlain(error))
        }
      },
    },
    async admit(request) {
      asked.push(request)
      return (await options.admit?.(request)) ?? null
    },
    probe: async () => undefined,
    storageUrl: '',
    bounds: {
      maxStored: 10_000,
      maxStoredRequests: 2_000_000,
      maxStoredBytes: 10_737_418_240,
      ...options.bounds,
    },
    clock,
  })
  const accept: InlineAcceptance['accept'] = (body, fields = {}) =>
    acceptances.accept({
      context: scriptedContext(),
      caller: {
        keyHash: KEY_HASH,
        organizationId: ORGANIZATION,
        workspaceId: WORKSPACE,
        memberId: null,
        limit: null,
      },
      workspaceId: WORKSPACE,
      idempotencyKey: null,
      withMetadata: false,
      dataRegion: null,
      openFile: () => Promise.reject(new Error('no file is asked for')),
      read: reader => reader.write(Buffer.from(body), 0),
      announcedBytes: body.length,
      ...fields,
    })
  return {
    acceptances,
    uploads,
    clock,
    store,
    jobs,
    asked,
    calls: () => failing.calls,
    accept,
    async refused(body, fields) {
      try {
        await accept(body, fields)
        return null
      } catch (thrown) {
        return toGatewayError(thrown)
      }
    },
    async visible() {
      const page = await store.batches.list({ organizationId: ORGANIZATION, workspaceId: WORKSPACE }, 100)
      return page?.items.map(({ id }) => id) ?? []
    },
  }
}
