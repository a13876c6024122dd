/**
 * The transcripts of one process, bounded in bytes and time. Main thread; tests and gateways without a main thread use
 * the store directly. A stream is deleted when its window has passed and it has no readers, or when its room is needed.
 * The window begins with its end, or when nobody reads the running stream any more.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { FrameLog, type LogPosition } from './frame-log.ts'
import {
  CLAIM_READERS_MAX,
  type EarlierClaim,
  READERS_MAX,
  type TranscriptClaim,
  type TranscriptNotice,
  type TranscriptPart,
  type TranscriptQuestion,
  type TranscriptReader,
  type Transcripts,
  type TranscriptWriter,
} from './transcripts.ts'

interface TranscriptLimits {
  /** How long a stream is kept after its end, and continues without a reader. */
  readonly windowMs: number
  /** Bytes of all streams of one key. */
  readonly maxBytesPerKey: number
  /** Bytes of all streams. */
  readonly maxBytes: number
}

/** A copy of the transcripts for other instances. */
export interface TranscriptMirror {
  noteOpening(transcript: Transcript): void
  noteFrames(transcript: Transcript, first: number, frames: Uint8Array): void
  noteEnd(transcript: Transcript): void
  /** There was no room for the transcript. */
  noteDrop(transcript: Transcript): void
  /** All copies of the transcript must be deleted. */
  noteForget(transcript: Transcript): void
  /** Claims the name for this instance; resolves to the claim of another instance if that was first. Never rejects. */
  claim(claim: TranscriptClaim): Promise<EarlierClaim | null>
  /** The name of the transcript is free again. */
  noteRelease(transcript: Transcript): void
  /** Reads a stream of another instance. */
  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader
}

interface TranscriptStoreOptions extends TranscriptLimits {
  readonly clock: Clock
}

/** Memory of a transcript in addition to its frames. */
const TRANSCRIPT_BYTES = 1024

/** How long an answer that is not kept stays for its current readers. */
const UNKEPT_ANSWER_MS = 10_000

type TranscriptState = 'running' | 'ended' | 'dropped'

/** How long a transcript runs on without a reader, and how long it is kept after its end. */
type TranscriptTerms = Pick<TranscriptClaim, 'unreadMs' | 'keptMs'>

/** One stream in the store. */
export class Transcript {
  readonly id: string
  readonly keyHash: string
  readonly unreadMs: number
  /** Null: it has no name. */
  readonly claim: TranscriptClaim | null
  readonly frames = new FrameLog()
  readonly readers = new Set<StoreReader>()
  keptMs: number
  state: TranscriptState = 'running'
  /** Wall clock of its end; null before. */
  endedMs: number | null = null
  /** True while the client that sent the request is connected. */
  isAttended = true
  /** The window has passed: the transcript is kept only for its readers. */
  isOver = false
  /** The timer that ends the window; null while none runs. */
  timer: Timer | null = null
  readonly #onNotice: (notice: TranscriptNotice) => void

  constructor(
    { id, keyHash }: Pick<TranscriptClaim, 'id' | 'keyHash'>,
    { unreadMs, keptMs }: TranscriptTerms,
    claim: TranscriptClaim | null,
    onNotice: (notice: TranscriptNotice) => void,
  ) {
    this.id = id
    this.keyHash = keyHash
    this.unreadMs = unreadMs
    this.keptMs = keptMs
    this.claim = claim
    this.#onNotice = onNotice
  }

  get heldBytes(): number {
    return this.frames.heldBytes + TRANSCRIPT_BYTES
  }

  /** Calls the writer in a later turn, because it may be in the middle of a write. */
  notify(notice: TranscriptNotice): void {
    setImmediate(() => this.#onNotice(notice))
  }

  /** Gives readers the new frames. */
  wake(): void {
    for (const reader of this.readers) reader.wake()
  }
}

/** The transcripts of one owner, oldest first. */
interface OwnerTranscripts {
  bytes: number
  readonly maxBytes: number
  readonly transcripts: Set<Transcript>
}

export class TranscriptStore implements Transcripts {
  /** Set once, before the first stream; null: there are no other instances. */
  mirror: TranscriptMirror | null = null
  readonly #limits: TranscriptLimits
  readonly #clock: Clock
  readonly #byId = new Map<string, Transcript>()
  readonly #byKey = new Map<string, OwnerTranscripts>()
  /** Transcripts by key and name. */
  readonly #byName = new Map<string, Transcript>()
  /** Claims that wait for an answer of the mirror, by name. */
  readonly #pendingClaims = new Map<string, Promise<EarlierClaim | null>>()
  #bytes = 0

  constructor({ clock, ...limits }: TranscriptStoreOptions) {
    this.#clock = clock
    this.#limits = limits
  }

  /** Number of streams. */
  get count(): number {
    return this.#byId.size
  }

  /** Memory of all streams. */
  get bytes(): number {
    return this.#bytes
  }

  open(id: string, keyHash: string, onNotice: (notice: TranscriptNotice) => void): StoreWriter {
    const { windowMs } = this.#limits
    const terms = { unreadMs: windowMs, keptMs: windowMs }
    return this.#begin(new Transcript({ id, keyHash }, terms, null, onNotice))
  }

  async claim(
    claim: TranscriptClaim,
    onNotice: (notice: TranscriptNotice) => void,
  ): Promise<StoreWriter | EarlierClaim> {
    const name = nameOf(claim)
    const { mirror } = this
    const own = this.#byName.get(name)
    if (own !== undefined && isReplaced(own, claim)) this.#retire(own)
    if (mirror !== null && !this.#byName.has(name)) {
      // Claims that come meanwhile wait for the same question, so that one of them begins.
      const isFirst = !this.#pendingClaims.has(name)
      const pendingClaim = this.#pendingClaims.get(name) ?? mirror.claim(claim)
      this.#pendingClaims.set(name, pendingClaim)
      const foreignClaim = await pendingClaim
      if (isFirst) this.#pendingClaims.delete(name)
      if (foreignClaim !== null) return foreignClaim
    }
    const existing = this.#byName.get(name)
    if (existing !== undefined)
      return { id: existing.id, digest: existing.claim?.digest ?? '', endedMs: existing.endedMs }
    return this.#begin(new Transcript(claim, claim, claim, onNotice))
  }

  #begin(transcript: Transcript): StoreWriter {
    const { id, keyHash, claim } = transcript
    this.#byId.set(id, transcript)
    if (claim !== null) this.#byName.set(nameOf(claim), transcript)
    const maxBytes = claim?.maxBytes ?? this.#limits.maxBytesPerKey
    const ownerState = this.#byKey.get(keyHash) ?? { bytes: 0, maxBytes, transcripts: new Set() }
    this.#byKey.set(keyHash, ownerState)
    ownerState.transcripts.add(transcript)
    this.#addBytes(ownerState, TRANSCRIPT_BYTES)
    this.mirror?.noteOpening(transcript)
    this.#makeRoom(transcript)
    return new StoreWriter(this, transcript)
  }

  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader {
    const transcript = this.#byId.get(question.id)
    if (transcript === undefined && this.mirror !== null) return this.mirror.read(question, onPart)
    if (transcript === undefined || transcript.keyHash !== question.keyHash || transcript.isOver) {
      return refuse({ kind: 'unknown' }, onPart)
    }
    if (transcript.state === 'dropped') return refuse({ kind: 'dropped' }, onPart)
    const maxReaders = transcript.claim === null ? READERS_MAX : CLAIM_READERS_MAX
    if (transcript.readers.size >= maxReaders) return refuse({ kind: 'busy' }, onPart)
    if (transcript.state === 'running') {
      transcript.timer?.cancel()
      transcript.timer = null
      transcript.notify('read')
    }
    return new StoreReader(this, transcript, question.after, onPart)
  }

  /** A client reads this stream at another instance. */
  readElsewhere(id: string): void {
    const transcript = this.#byId.get(id)
    if (transcript?.state !== 'running') return
    transcript.notify('read')
    transcript.timer?.cancel()
    transcript.timer = null
    this.watch(transcript)
  }

  /** Another instance has begun a new answer under the name of this one. */
  replacedElsewhere(id: string): void {
    const transcript = this.#byId.get(id)
    if (transcript?.state === 'ended') this.#retire(transcript)
  }

  /** All streams, for the mirror. */
  all(): Iterable<Transcript> {
    return this.#byId.values()
  }

  add(transcript: Transcript, frames: Uint8Array, count: number): void {
    if (transcript.state !== 'running' || !this.#byId.has(transcript.id)) return
    const ownerState = this.#byKey.get(transcript.keyHash)
    if (ownerState === undefined) return
    const { heldBytes } = transcript
    const first = transcript.frames.next
    transcript.frames.add(frames, count)
    this.#addBytes(ownerState, transcript.heldBytes - heldBytes)
    this.mirror?.noteFrames(transcript, first, frames)
    transcript.wake()
    this.#makeRoom(transcript)
  }

  end(transcript: Transcript, isKept: boolean): void {
    if (transcript.state === 'dropped' && transcript.claim !== null) this.forget(transcript)
    if (transcript.state !== 'running') return
    transcript.state = 'ended'
    transcript.endedMs = this.#clock.nowMs()
    if (!isKept) {
      this.#release(transcript)
      transcript.keptMs = UNKEPT_ANSWER_MS
    }
    this.mirror?.noteEnd(transcript)
    transcript.wake()
    // After its end a stream gets a new window.
    transcript.timer?.cancel()
    transcript.timer = null
    this.watch(transcript)
  }

  leave(transcript: Transcript): void {
    transcript.isAttended = false
    this.watch(transcript)
  }

  /** Removes the transcript, and cuts off its readers. */
  forget(transcript: Transcript): void {
    if (!this.#remove(transcript)) return
    this.mirror?.noteForget(transcript)
    for (const reader of [...transcript.readers]) reader.cut()
  }

  /**
   * Starts the window if it is due: nobody reads a running stream, or the stream has ended. Deletes a transcript whose
   * window has passed, if it has no readers.
   */
  watch(transcript: Transcript): void {
    const { state, readers, isAttended, isOver, timer } = transcript
    if (isOver) {
      if (readers.size === 0) this.forget(transcript)
      return
    }
    if (timer !== null || !this.#byId.has(transcript.id)) return
    if (state === 'running' && (isAttended || readers.size > 0)) return
    const ms = state === 'running' ? transcript.unreadMs : transcript.keptMs
    transcript.timer = this.#clock.after(ms, () => this.#windowOver(transcript))
  }

  close(): void {
    for (const { timer } of this.#byId.values()) timer?.cancel()
    this.#byId.clear()
    this.#byKey.clear()
    this.#byName.clear()
    this.#bytes = 0
  }

  #windowOver(transcript: Transcript): void {
    transcript.timer = null
    if (transcript.state === 'running') transcript.notify('unread')
    this.#retire(transcript)
  }

  /** Hides the transcript from new readers; current readers continue. */
  #retire(transcript: Transcript): void {
    this.#release(transcript)
    if (transcript.readers.size === 0) this.forget(transcript)
    else transcript.isOver = true
  }

  #release(transcript: Transcript): void {
    const { claim } = transcript
    if (claim === null || this.#byName.get(nameOf(claim)) !== transcript) return
    this.#byName.delete(nameOf(claim))
    this.mirror?.noteRelease(transcript)
  }

  #makeRoom(transcript: Transcript): void {
    const { maxBytes } = this.#limits
    for (;;) {
      const ownerState = this.#byKey.get(transcript.keyHash)
      const isKeyFull = ownerState !== undefined && ownerState.bytes > ownerState.maxBytes
      if (!isKeyFull && this.#bytes <= maxBytes) return
      // The key with the most bytes loses streams, so that no key can displace those of others.
      const payer = isKeyFull ? ownerState : this.#heaviest()
      if (payer === null) return
      // A dropped answer under a name still runs: without its name, the request would run beside it.
      const finished = findFirst(
        payer.transcripts,
        ({ state, claim }) => state === 'ended' || (state === 'dropped' && claim === null),
      )
      if (finished !== null) {
        this.forget(finished)
        continue
      }
      const runningTranscript =
        payer === ownerState ? transcript : findFirst(payer.transcripts, ({ state }) => state === 'running')
      if (runningTranscript === null || runningTranscript.state !== 'running') return
      // The request would run again, and be paid for again.
      const isAlone = runningTranscript.heldBytes > payer.maxBytes || this.#bytes > maxBytes
      if (runningTranscript.claim !== null && !isAlone) return
      this.#drop(runningTranscript)
      if (runningTranscript === transcript) return
    }
  }

  /** Drops the frames and cuts off the readers. The stream continues, but cannot be read again. */
  #drop(transcript: Transcript): void {
    const ownerState = this.#byKey.get(transcript.keyHash)
    if (ownerState === undefined) return
    const { heldBytes } = transcript
    transcript.state = 'dropped'
    transcript.frames.clear()
    this.#addBytes(ownerState, transcript.heldBytes - heldBytes)
    transcript.notify('dropped')
    this.mirror?.noteDrop(transcript)
    for (const reader of [...transcript.readers]) reader.cut()
    this.watch(transcript)
  }

  #heaviest(): OwnerTranscripts | null {
    let heaviest: OwnerTranscripts | null = null
    for (const candidate of this.#byKey.values()) {
      if (heaviest === null || candidate.bytes > heaviest.bytes) heaviest = candidate
    }
    return heaviest
  }

  #addBytes(ownerState: OwnerTranscripts, bytes: number): void {
    ownerState.bytes += bytes
    this.#bytes += bytes
  }

  /** Returns false if it was already removed. */
  #remove(transcript: Transcript): boolean {
    const ownerState = this.#byKey.get(transcript.keyHash)
    if (ownerState === undefined || !this.#byId.delete(transcript.id)) return false
    transcript.timer?.cancel()
    transcript.timer = null
    this.#release(transcript)
    ownerState.transcripts.delete(transcript)
    this.#addBytes(ownerState, -transcript.heldBytes)
    if (ownerState.transcripts.size === 0) this.#byKey.delete(transcript.keyHash)
    return true
  }
}

function isReplaced({ endedMs }: Transcript, { replacesBeforeMs }: TranscriptClaim): boolean {
  return endedMs !== null && replacesBeforeMs !== undefined && endedMs < replacesBeforeMs
}

/** A key hash has no spaces. */
function nameOf({ keyHash, name }: TranscriptClaim): string {
  return `${keyHash} ${name}`
}

function findFirst(
  transcripts: Iterable<Transcript>,
  matches: (transcript: Transcript) => boolean,
): Transcript | null {
  for (const transcript of transcripts) if (matches(transcript)) return transcript
  return null
}

/** Creates a reader that gets only this part, without frames. */
export function refuse(part: TranscriptPart, onPart: (part: TranscriptPart) => void): TranscriptReader {
  let isClosed = false
  setImmediate(() => {
    if (!isClosed) onPart(part)
  })
  return {
    next: () => undefined,
    close() {
      isClosed = true
    },
  }
}

/** The writer of a transcript in this thread. */
export class StoreWriter implements TranscriptWriter {
  readonly #store: TranscriptStore
  readonly #transcript: Transcript

  constructor(store: TranscriptStore, transcript: Transcript) {
    this.#store = store
    this.#transcript = transcript
  }

  add(frames: string, count: number): void {
    this.addBytes(Buffer.from(frames), count)
  }

  addBytes(frames: Uint8Array, count: number): void {
    this.#store.add(this.#transcript, frames, count)
  }

  end(isKept = true): void {
    this.#store.end(this.#transcript, isKept)
  }

  leave(): void {
    this.#store.leave(this.#transcript)
  }

  forget(): void {
    this.#store.forget(this.#transcript)
  }
}

/** A reader of a transcript of this process. */
class StoreReader implements TranscriptReader {
  readonly #store: TranscriptStore
  readonly #transcript: Transcript
  readonly #position: LogPosition
  readonly #onPart: (part: TranscriptPart) => void
  #isFirst = true
  #isAsking = true
  #isScheduled = false
  #isClosed = false

  constructor(
    store: TranscriptStore,
    transcript: Transcript,
    after: number,
    onPart: (part: TranscriptPart) => void,
  ) {
    this.#store = store
    this.#transcript = transcript
    this.#position = transcript.frames.positionAfter(after)
    this.#onPart = onPart
    transcript.readers.add(this)
    this.wake()
  }

  next(): void {
    this.#isAsking = true
    this.wake()
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#transcript.readers.delete(this)
    this.#store.watch(this.#transcript)
  }

  /** Ends the reader: there will be no more frames. */
  cut(): void {
    if (this.#isClosed) return
    this.close()
    this.#onPart({ kind: 'cut' })
  }

  /** Answers in a later turn, with all frames so far. */
  wake(): void {
    if (this.#isScheduled || !this.#isAsking || this.#isClosed) return
    this.#isScheduled = true
    setImmediate(() => this.#answer())
  }

  #answer(): void {
    this.#isScheduled = false
    if (this.#isClosed) return
    const { frames, state } = this.#transcript
    const { bytes, count, endsFrame } = frames.read(this.#position)
    const isEnd = state === 'ended' && this.#isAtEnd()
    if (bytes.length === 0 && !isEnd && !this.#isFirst) return
    this.#isFirst = false
    this.#isAsking = false
    if (isEnd) this.close()
    if (isEnd && this.#position.firstFrame > frames.next)
      this.#onPart({ kind: 'beyond', last: frames.next - 1 })
    else this.#onPart({ kind: 'frames', bytes, count, endsFrame, isEnd })
  }

  #isAtEnd(): boolean {
    return this.#position.frame >= this.#transcript.frames.next
  }
}
