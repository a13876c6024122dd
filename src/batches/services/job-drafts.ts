/**
 * Draft jobs: collects the model calls of deferred lines until there are enough for a job. Their reservations are kept
 * in the meantime. Batch thread; no I/O.
 */
import type { Clock } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import type { PicoUsd } from '../../base/money.ts'
import type { DeferredCall } from '../../exchange/exchange.ts'
import type { Reservation } from '../../protocol/records.ts'
import type { BatchRecord, ClaimedLine, HeldLine } from '../../storage/batches.ts'
import type { NewServiceJob } from '../../storage/service-jobs.ts'
import { claimName } from '../leases.ts'
import { batchServiceOf } from './table.ts'

/** One line of a draft job. */
interface DraftLine {
  readonly line: Pick<ClaimedLine, 'batchId' | 'number' | 'fence' | 'tries'>
  /** The line in the service's form. */
  readonly text: string
  readonly reservation: Reservation | null
  readonly reserved: PicoUsd
}

/** A job that is still collecting lines. */
export interface JobDraft {
  readonly batch: BatchRecord
  readonly facts: Pick<NewServiceJob, 'provider' | 'credentialId' | 'upstreamModel' | 'format' | 'path'>
  readonly mark: string
  readonly lines: DraftLine[]
  bytes: number
  /** Monotonic. */
  readonly firstMs: number
  lastMs: number
}

interface JobDraftsOptions {
  readonly clock: Clock
  /** Counts memory; a negative number frees it. */
  readonly countMemory: (bytes: number) => void
}

/** After this time without a new line, the lines so far become a job. */
const QUIET_AFTER_MS = 3_000
/** Lines that arrive slowly, because of limits per minute, do not wait longer than this. */
const MAX_AGE_MS = 60_000
/** Limit for all drafts together. When they exceed it, the largest becomes a job, and no more lines are claimed. */
const MAX_DRAFT_BYTES = 64 * 1024 * 1024
/** Bytes of a character in memory. */
const CHAR_BYTES = 2
/** Long enough that no one else on an account uses the same name by accident. */
const MARK_CHARS = 8
const BATCH_PREFIX = 'batch_'

export class JobDrafts {
  readonly #options: JobDraftsOptions
  readonly #drafts = new Map<string, JobDraft>()
  readonly #fullDrafts: JobDraft[] = []
  #bytes = 0

  constructor(options: JobDraftsOptions) {
    this.#options = options
  }

  /** Lines that wait for their job. */
  get lines(): readonly HeldLine[] {
    return this.#allDrafts().flatMap(({ lines }) => lines.map(({ line }) => line))
  }

  /** True while lines of this batch wait. */
  has(batchId: string): boolean {
    return this.#allDrafts().some(({ batch }) => batch.id === batchId)
  }

  /** True while no more lines should come. */
  get isFull(): boolean {
    return this.#bytes > MAX_DRAFT_BYTES
  }

  /**
   * Adds the model call of a line, with its reservation. Returns false if the batch service cannot run it, or the line
   * may also use other providers.
   */
  add(batch: BatchRecord, line: ClaimedLine, call: DeferredCall): boolean {
    const { exchange, attempt, wire } = call
    const { endpoint, credential } = attempt
    const { slug, batch: terms } = endpoint.provider
    const service = batchServiceOf(endpoint.format)
    if (service === null || terms === undefined || slug !== batch.service?.provider) return false
    const isElsewhere = exchange.candidates.some(({ endpoint: other }) => other.provider.slug !== slug)
    if (isElsewhere || endpoint.modelId !== batch.model || !service.accepts(wire)) return false
    const facts = {
      provider: slug,
      credentialId: credential?.id ?? null,
      upstreamModel: endpoint.upstreamModel,
      format: endpoint.format,
      path: wire.path,
    }
    const key = [batch.id, ...Object.values(facts)].join('\n')
    const nowMs = this.#options.clock.monotonicMs()
    let draft = this.#drafts.get(key) ?? newDraft(batch, facts, nowMs)
    let text = service.line(lineId(draft, line), wire)
    const bytes = Buffer.byteLength(text) + 1
    if (bytes > service.limits.bytes) return false
    if (draft.bytes + bytes > service.limits.bytes || draft.lines.length >= service.limits.lines) {
      this.#fill(key, draft)
      draft = newDraft(batch, facts, nowMs)
      text = service.line(lineId(draft, line), wire)
    }
    this.#drafts.set(key, draft)
    this.#add(draft, line, call, text)
    return true
  }

  /** Drafts that should be submitted: full ones, and those that get no more lines. */
  ready(): readonly JobDraft[] {
    const nowMs = this.#options.clock.monotonicMs()
    for (const [key, draft] of this.#drafts) {
      if (nowMs - draft.lastMs >= QUIET_AFTER_MS || nowMs - draft.firstMs >= MAX_AGE_MS)
        this.#fill(key, draft)
    }
    if (this.isFull) {
      const [largest] = [...this.#drafts].sort(([, first], [, second]) => second.bytes - first.bytes)
      if (largest !== undefined) this.#fill(...largest)
    }
    return this.#fullDrafts
  }

  /** Removes a draft that became a job or is not needed. */
  remove(draft: JobDraft): void {
    const index = this.#fullDrafts.indexOf(draft)
    if (index !== -1) this.#fullDrafts.splice(index, 1)
    this.#count(-draft.bytes)
  }

  /** Drops the matching drafts and releases their reservations. Returns their lines. */
  drop(matches: (draft: JobDraft) => boolean): readonly DraftLine['line'][] {
    const dropped = this.#allDrafts().filter(matches)
    for (const [key, draft] of this.#drafts) if (dropped.includes(draft)) this.#drafts.delete(key)
    for (const draft of dropped) {
      this.remove(draft)
      release(draft)
    }
    return dropped.flatMap(({ lines }) => lines.map(({ line }) => line))
  }

  /** Other runners have these lines now. */
  dropLost(lines: readonly HeldLine[]): void {
    const names = new Set(lines.map(claimName))
    for (const draft of this.#allDrafts()) {
      const keptLines = draft.lines.filter(({ line }) => !names.has(claimName(line)))
      if (keptLines.length === draft.lines.length) continue
      for (const { line, reservation } of draft.lines) {
        if (names.has(claimName(line))) reservation?.settle(NOTHING)
      }
      draft.lines.splice(0, draft.lines.length, ...keptLines)
    }
  }

  #allDrafts(): readonly JobDraft[] {
    return [...this.#drafts.values(), ...this.#fullDrafts]
  }

  #add(draft: JobDraft, line: ClaimedLine, { exchange, reservedAmount }: DeferredCall, text: string): void {
    const { reservation } = exchange
    // The draft owns the reservation from now on.
    exchange.reservation = null
    const { batchId, number, fence, tries } = line
    draft.lines.push({ line: { batchId, number, fence, tries }, text, reservation, reserved: reservedAmount })
    const bytes = Buffer.byteLength(text) + 1
    draft.bytes += bytes
    draft.lastMs = this.#options.clock.monotonicMs()
    this.#count(bytes)
  }

  #fill(key: string, draft: JobDraft): void {
    this.#drafts.delete(key)
    this.#fullDrafts.push(draft)
  }

  #count(bytes: number): void {
    this.#bytes += bytes
    this.#options.countMemory(CHAR_BYTES * bytes)
  }
}

const NOTHING = { cost: 0, isByok: false, tokens: 0 } as const

/** Releases the reservations of the lines of a draft. */
export function release({ lines }: Pick<JobDraft, 'lines'>): void {
  for (const { reservation } of lines) reservation?.settle(NOTHING)
}

function newDraft(batch: BatchRecord, facts: JobDraft['facts'], nowMs: number): JobDraft {
  const mark = `${batch.id.replace(BATCH_PREFIX, '')}-${randomText(MARK_CHARS)}`
  return { batch, facts, mark, lines: [], bytes: 0, firstMs: nowMs, lastMs: nowMs }
}

/**
 * The id of a line at the service. All marks have the same length, so a line that moves to another draft keeps its
 * size.
 */
function lineId({ mark }: JobDraft, { number }: ClaimedLine): string {
  return `${mark}-${number}`
}

/** The number of a line from its id; null: the id is not from this job. */
export function lineNumber(mark: string, id: string): number | null {
  const text = id.startsWith(`${mark}-`) ? id.slice(mark.length + 1) : ''
  return /^\d{1,9}$/.test(text) ? Number(text) : null
}
