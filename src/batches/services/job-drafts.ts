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
import { nameOf } from '../leases.ts'
import { batchServiceOf } from './table.ts'

/** One line of a draft. */
interface DraftLine {
  readonly line: Pick<ClaimedLine, 'batchId' | 'number' | 'fence' | 'tries'>
  /** As the service takes it. */
  readonly text: string
  readonly reservation: Reservation | null
  readonly reserved: PicoUsd
}

/** A job in the making. */
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
  /** Counts memory; negative when it is free again. */
  readonly hold: (bytes: number) => void
}

/** No more lines of the batch come at present: the rest makes a job. */
const QUIET_MS = 3_000
/** Lines that come one by one, because of limits by the minute, do not wait longer for others. */
const AGE_MS = 60_000
/** All drafts together; the largest makes a job before they exceed it. */
const BYTES_MAX = 64 * 1024 * 1024
/** Bytes of a character in memory. */
const CHAR_BYTES = 2
/** Nobody else on an account uses the same name by accident. */
const MARK_CHARS = 8
const BATCH_PREFIX = 'batch_'

export class JobDrafts {
  readonly #options: JobDraftsOptions
  readonly #drafts = new Map<string, JobDraft>()
  readonly #full: JobDraft[] = []
  #bytes = 0

  constructor(options: JobDraftsOptions) {
    this.#options = options
  }

  /** Lines that wait for their job. */
  get lines(): readonly HeldLine[] {
    return this.#all().flatMap(({ lines }) => lines.map(({ line }) => line))
  }

  /** True while something of the batch waits. */
  has(batchId: string): boolean {
    return this.#all().some(({ batch }) => batch.id === batchId)
  }

  /** True while no more should come. */
  get isFull(): boolean {
    return this.#bytes > BYTES_MAX
  }

  /**
   * Takes the model call of a line, with its reservation. False: the batch service cannot run it, or the line may go
   * to other providers too.
   */
  take(batch: BatchRecord, line: ClaimedLine, call: DeferredCall): boolean {
    const { exchange, attempt, wire } = call
    const { endpoint, credential } = attempt
    const { slug, batch: terms } = endpoint.provider
    const service = batchServiceOf(endpoint.format)
    if (service === null || terms === undefined || slug !== batch.service?.provider) return false
    const isElsewhere = exchange.candidates.some(({ endpoint: other }) => other.provider.slug !== slug)
    if (isElsewhere || endpoint.modelId !== batch.model || !service.takes(wire)) return false
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

  /** Drafts that are ready to be submitted: full ones, and those to which nothing more comes. */
  ready(): readonly JobDraft[] {
    const nowMs = this.#options.clock.monotonicMs()
    for (const [key, draft] of this.#drafts) {
      if (nowMs - draft.lastMs >= QUIET_MS || nowMs - draft.firstMs >= AGE_MS) this.#fill(key, draft)
    }
    if (this.isFull) {
      const [largest] = [...this.#drafts].sort(([, one], [, other]) => other.bytes - one.bytes)
      if (largest !== undefined) this.#fill(...largest)
    }
    return this.#full
  }

  /** The draft is a job now, or nothing at all. */
  remove(draft: JobDraft): void {
    const at = this.#full.indexOf(draft)
    if (at !== -1) this.#full.splice(at, 1)
    this.#count(-draft.bytes)
  }

  /** Drops the drafts that match; their reservations are released. Returns their lines. */
  drop(matches: (draft: JobDraft) => boolean): readonly DraftLine['line'][] {
    const dropped = this.#all().filter(matches)
    for (const [key, draft] of this.#drafts) if (dropped.includes(draft)) this.#drafts.delete(key)
    for (const draft of dropped) {
      this.remove(draft)
      release(draft)
    }
    return dropped.flatMap(({ lines }) => lines.map(({ line }) => line))
  }

  /** Others have these lines now. */
  lost(lines: readonly HeldLine[]): void {
    const names = new Set(lines.map(nameOf))
    for (const draft of this.#all()) {
      const rest = draft.lines.filter(({ line }) => !names.has(nameOf(line)))
      if (rest.length === draft.lines.length) continue
      for (const { line, reservation } of draft.lines) {
        if (names.has(nameOf(line))) reservation?.settle(NOTHING)
      }
      draft.lines.splice(0, draft.lines.length, ...rest)
    }
  }

  #all(): readonly JobDraft[] {
    return [...this.#drafts.values(), ...this.#full]
  }

  #add(draft: JobDraft, line: ClaimedLine, { exchange, reserved }: DeferredCall, text: string): void {
    const { reservation } = exchange
    // It is the draft's from here on.
    exchange.reservation = null
    const { batchId, number, fence, tries } = line
    draft.lines.push({ line: { batchId, number, fence, tries }, text, reservation, reserved })
    const bytes = Buffer.byteLength(text) + 1
    draft.bytes += bytes
    draft.lastMs = this.#options.clock.monotonicMs()
    this.#count(bytes)
  }

  #fill(key: string, draft: JobDraft): void {
    this.#drafts.delete(key)
    this.#full.push(draft)
  }

  #count(bytes: number): void {
    this.#bytes += bytes
    this.#options.hold(CHAR_BYTES * bytes)
  }
}

const NOTHING = { cost: 0, isByok: false, tokens: 0 } as const

/** Gives back what the lines of a draft have reserved. */
export function release({ lines }: Pick<JobDraft, 'lines'>): void {
  for (const { reservation } of lines) reservation?.settle(NOTHING)
}

function newDraft(batch: BatchRecord, facts: JobDraft['facts'], nowMs: number): JobDraft {
  const mark = `${batch.id.replace(BATCH_PREFIX, '')}-${randomText(MARK_CHARS)}`
  return { batch, facts, mark, lines: [], bytes: 0, firstMs: nowMs, lastMs: nowMs }
}

/** How the service names a line; of one length for each mark, so a line that moves to another draft keeps its bytes. */
function lineId({ mark }: JobDraft, { number }: ClaimedLine): string {
  return `${mark}-${number}`
}

/** The number of a line by that name; null: it is none of the job. */
export function lineNumber(mark: string, id: string): number | null {
  const text = id.startsWith(`${mark}-`) ? id.slice(mark.length + 1) : ''
  return /^\d{1,9}$/.test(text) ? Number(text) : null
}
