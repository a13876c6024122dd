/**
 * When a thread has enough to do: a new request is turned away at once, so that those that run keep their pace.
 * Three signals: requests in flight, bytes held for slow peers and uploads, and how late the event loop is.
 */
import type { Clock, Timer } from '../clock.ts'

/** Of one thread. Above one of them new requests are answered 503. */
export interface LoadLimits {
  readonly maxInFlight: number
  /** Milliseconds by which timers are late, smoothed. */
  readonly maxLagMs: number
  /** Bytes of request bodies, and of answers that their readers have not taken. */
  readonly maxBufferedBytes: number
}

/** Why a request is turned away; a closed set, for metrics. */
export type Strain = 'in_flight' | 'lag' | 'buffered'

/** Samples are this far apart when the loop is on time; often enough to see strain within a fifth of a second. */
const SAMPLE_MS = 50
/** The middle one of so many samples counts: one pause, however long, is no overload. */
const SAMPLES = 5
/** A pause this long counts as two samples, so that two of them in a row are strain: five would take seconds. */
const LONG_MS = 2 * SAMPLE_MS
/** A signal that went over its limit counts as strain until it is below this share of it: no flutter at the edge. */
const LAG_RELEASE = 0.5
const BUFFER_RELEASE = 0.8

/** Closes above its limit, and opens again only well below it. Pure. */
export class Valve {
  readonly #limit: number
  readonly #release: number
  #closed = false

  constructor(limit: number, releaseShare: number) {
    this.#limit = limit
    this.#release = limit * releaseShare
  }

  /** Whether the valve is closed at this value. */
  closedAt(value: number): boolean {
    this.#closed = this.#closed ? value > this.#release : value > this.#limit
    return this.#closed
  }
}

/** The middle of the last samples. Pure. */
export class LagMeter {
  readonly #samples: number[] = new Array(SAMPLES).fill(0)
  #next = 0
  #middle = 0

  add(lateMs: number): void {
    this.#put(lateMs)
    if (lateMs >= LONG_MS) this.#put(lateMs)
    this.#middle = this.#samples.toSorted((a, b) => a - b)[(SAMPLES - 1) / 2] ?? 0
  }

  get lagMs(): number {
    return this.#middle
  }

  #put(lateMs: number): void {
    this.#samples[this.#next] = lateMs
    this.#next = (this.#next + 1) % SAMPLES
  }
}

export class Load {
  readonly #limits: LoadLimits
  readonly #clock: Clock
  readonly #meter = new LagMeter()
  readonly #lag: Valve
  readonly #buffer: Valve
  #bufferedBytes = 0
  #timer: Timer | null = null
  #sampledMs = 0

  constructor(limits: LoadLimits, clock: Clock) {
    this.#limits = limits
    this.#clock = clock
    this.#lag = new Valve(limits.maxLagMs, LAG_RELEASE)
    this.#buffer = new Valve(limits.maxBufferedBytes, BUFFER_RELEASE)
  }

  /** By how much the event loop is late, smoothed. */
  get lagMs(): number {
    return this.#meter.lagMs
  }

  get bufferedBytes(): number {
    return this.#bufferedBytes
  }

  /**
   * Null when one more request may be taken beside so many. Requests are counted exactly and at once, so their
   * limit needs no release: one that ends makes room for one that comes.
   */
  strain(inFlight: number): Strain | null {
    // All are asked, so that each valve sees its signal.
    const late = this.#lag.closedAt(this.#meter.lagMs)
    const full = this.#buffer.closedAt(this.#bufferedBytes)
    if (inFlight >= this.#limits.maxInFlight) return 'in_flight'
    if (late) return 'lag'
    return full ? 'buffered' : null
  }

  /** So many bytes more are held; negative: fewer. */
  hold(bytes: number): void {
    this.#bufferedBytes += bytes
  }

  /** Begins to watch the event loop. */
  start(): void {
    this.stop()
    this.#sampledMs = this.#clock.monotonicMs()
    this.#timer = this.#clock.after(SAMPLE_MS, this.#sample)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  readonly #sample = (): void => {
    const nowMs = this.#clock.monotonicMs()
    this.#meter.add(Math.max(0, nowMs - this.#sampledMs - SAMPLE_MS))
    this.#sampledMs = nowMs
    this.#timer = this.#clock.after(SAMPLE_MS, this.#sample)
  }
}
