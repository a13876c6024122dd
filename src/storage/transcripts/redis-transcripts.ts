/**
 * Transcripts in Redis, so that a stream that began on one instance can be resumed on another. Main thread. Each stream
 * is a list of encrypted entries, bound to the API key of the request; Redis sees neither texts nor keys. While Redis
 * is unavailable, a stream can be resumed only on its own instance.
 */
import { hash } from 'node:crypto'
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { openRedis, type Redis } from '../redis.ts'
import { lengthOfFrames, SLICE_BYTES } from './frame-log.ts'
import { countFrames } from './frames.ts'
import { refuse, type Transcript, type TranscriptMirror, type TranscriptStore } from './transcript-store.ts'
import {
  CLAIM_READERS_MAX,
  type EarlierClaim,
  READERS_MAX,
  type TranscriptClaim,
  type TranscriptPart,
  type TranscriptQuestion,
  type TranscriptReader,
} from './transcripts.ts'

/** Encrypts texts for their owner; see providers/credentials/sealed-text.ts. */
interface TranscriptSeal {
  seal(text: string, owner: readonly string[]): string
  open(ciphertext: string, owner: readonly string[]): string | null
}

interface RedisTranscriptsOptions {
  readonly url: string
  /** Prefix of every Redis key and channel. */
  readonly prefix: string
  readonly windowMs: number
  readonly seal: TranscriptSeal
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly silenceMs?: number
}

/** Milliseconds between two reads of a stream of another instance. */
const POLL_INTERVAL_MS = 50
/** Maximum entries per read. */
const ENTRIES_PER_READ = 16
/**
 * After this many reads without a new entry, the reader checks that the stream still exists: its instance may have
 * died.
 */
const EMPTY_READS_MAX = 20
/** Number of reads after which a missing stream counts as unknown. Its first entry may still be on its way. */
const UNKNOWN_READS_MAX = 5
/** Number of times per window that a reader reports its presence to the instance of the stream. */
const PRESENCES_PER_WINDOW = 4
/** Interval of these reports for an answer under a name, which waits 10 s for a reader. */
const CLAIM_PRESENCE_MS = 2_500
/** How long a running answer keeps its name and its copy after its instance last refreshed them. */
const LEASE_MS = 15_000
/** Number of refreshes in that time. */
const REFRESHES_PER_LEASE = 3
/** Number of attempts to claim a name that changes owners at the same time. */
const CLAIM_ATTEMPTS = 3
/** Runs a command only if the stored claim still is this instance's. */
const IF_OWN_CLAIM = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call(unpack(ARGV, 2)) end"

/** Begins a message about an answer that another instance has replaced. Ids have no spaces. */
const REPLACED_PREFIX = 'replaced '

/** The first line of an entry; frames follow it. */
type EntryKind = 'open' | 'frames' | 'end' | 'dropped'

interface Entry {
  readonly kind: EntryKind
  /** Number of the first frame; in the last entry, of the next frame. */
  readonly first: number
  readonly frames: Buffer
}

export class RedisTranscripts implements TranscriptMirror {
  readonly #options: RedisTranscriptsOptions
  readonly #store: TranscriptStore
  readonly #redis: Redis
  readonly #presences: Redis
  /** Streams whose copy has a gap. */
  readonly #broken = new WeakSet<Transcript>()
  /** Number of local readers of each stream of another instance, by stream id. */
  readonly #readers = new Map<string, number>()
  /** Names that this instance holds, by transcript. */
  readonly #claims = new Map<string, { readonly key: string; readonly value: string }>()
  #refresh: Timer | null = null

  constructor(store: TranscriptStore, options: RedisTranscriptsOptions) {
    const { url, prefix, clock, log, silenceMs } = options
    this.#options = options
    this.#store = store
    const shared = { url, clock, log, ...(silenceMs === undefined ? {} : { silenceMs }) }
    this.#redis = openRedis(shared)
    this.#presences = openRedis({
      ...shared,
      channel: { name: `${prefix}transcripts`, onMessage: message => this.#receive(message) },
    })
    this.#scheduleRefresh()
  }

  #receive(message: string): void {
    if (message.startsWith(REPLACED_PREFIX))
      this.#store.replacedElsewhere(message.slice(REPLACED_PREFIX.length))
    else this.#store.readElsewhere(message)
  }

  #publish(message: string): void {
    this.#redis.send(['PUBLISH', `${this.#options.prefix}transcripts`, message]).catch(() => undefined)
  }

  noteOpening(transcript: Transcript): void {
    this.#push(transcript, 'open', 0, '')
  }

  noteFrames(transcript: Transcript, first: number, frames: Uint8Array): void {
    if (this.#broken.has(transcript)) this.#rewrite(transcript)
    else this.#push(transcript, 'frames', first, textOf(frames))
  }

  noteEnd(transcript: Transcript): void {
    if (this.#broken.has(transcript)) this.#rewrite(transcript)
    else this.#push(transcript, 'end', transcript.frames.next, '')
    this.#endClaim(transcript)
  }

  async claim(claim: TranscriptClaim): Promise<EarlierClaim | null> {
    const owner = claimOwner(claim)
    const key = `${this.#options.prefix}claim/${hash('sha256', owner.join(' '), 'hex')}`
    const value = this.#options.seal.seal(`${claim.id} ${claim.digest}`, owner)
    const { replacesBeforeMs = 0 } = claim
    try {
      for (let attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
        const set = await this.#redis.send(['SET', key, value, 'NX', 'PX', String(LEASE_MS)])
        if (set === 'OK') {
          this.#claims.set(claim.id, { key, value })
          return null
        }
        const reply = await this.#redis.send(['GET', key])
        if (typeof reply !== 'string') continue
        const [id, digest, ended] = this.#options.seal.open(reply, owner)?.split(' ') ?? []
        if (id === undefined || digest === undefined) return null
        const endedMs = ended === undefined ? null : Number(ended)
        if (endedMs === null || endedMs >= replacesBeforeMs) return { id, digest, endedMs }
        const command = ['SET', key, value, 'PX', String(LEASE_MS)]
        if ((await this.#redis.send(['EVAL', IF_OWN_CLAIM, '1', key, reply, ...command])) === null) continue
        this.#claims.set(claim.id, { key, value })
        this.#publish(REPLACED_PREFIX + id)
        return null
      }
    } catch {
      // Without Redis, each instance has names of its own.
    }
    return null
  }

  noteRelease({ id }: Transcript): void {
    this.#changeClaim(id, key => ['DEL', key])
    this.#claims.delete(id)
  }

  #extendClaim(transcript: Transcript): void {
    this.#changeClaim(transcript.id, key => ['PEXPIRE', key, String(lifeMs(transcript))])
  }

  /** Stores the end time of the answer in its claim. */
  #endClaim(transcript: Transcript): void {
    const { id, claim, endedMs } = transcript
    const storedClaim = this.#claims.get(id)
    if (claim === null || storedClaim === undefined) return
    const value = this.#options.seal.seal(`${id} ${claim.digest} ${endedMs}`, claimOwner(claim))
    this.#changeClaim(id, key => ['SET', key, value, 'PX', String(lifeMs(transcript))])
    this.#claims.set(id, { key: storedClaim.key, value })
  }

  #changeClaim(id: string, command: (key: string) => readonly string[]): void {
    const claim = this.#claims.get(id)
    if (claim === undefined) return
    const { key, value } = claim
    this.#redis.send(['EVAL', IF_OWN_CLAIM, '1', key, value, ...command(key)]).catch(() => undefined)
  }

  noteDrop(transcript: Transcript): void {
    this.#send(transcript, ['DEL', this.#keyOf(transcript.id)])
    this.#push(transcript, 'dropped', transcript.frames.next, '')
  }

  noteForget({ id }: Transcript): void {
    this.#redis.send(['DEL', this.#keyOf(id)]).catch(() => undefined)
  }

  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader {
    const key = this.#keyOf(question.id)
    const owner = ownerOf(question)
    const readers = this.#readers.get(question.id) ?? 0
    const isClaimed = question.isClaimed === true
    if (readers >= (isClaimed ? CLAIM_READERS_MAX : READERS_MAX)) return refuse({ kind: 'busy' }, onPart)
    this.#readers.set(question.id, readers + 1)
    return new RemoteReader({
      question,
      clock: this.#options.clock,
      presenceMs: isClaimed ? CLAIM_PRESENCE_MS : this.#options.windowMs / PRESENCES_PER_WINDOW,
      entries: async start => {
        const lastIndex = start + ENTRIES_PER_READ - 1
        const reply = await this.#redis.send(['LRANGE', key, String(start), String(lastIndex)])
        return Array.isArray(reply) ? reply.map(sealed => this.#decrypt(sealed, owner)) : []
      },
      length: async () => Number(await this.#redis.send(['LLEN', key])),
      reportPresence: () => this.#publish(question.id),
      onPart,
      onClose: () => this.#readerClosed(question.id),
    })
  }

  #readerClosed(id: string): void {
    const readers = (this.#readers.get(id) ?? 1) - 1
    if (readers === 0) this.#readers.delete(id)
    else this.#readers.set(id, readers)
  }

  close(): void {
    this.#refresh?.cancel()
    this.#redis.close()
    this.#presences.close()
  }

  #keyOf(id: string): string {
    return `${this.#options.prefix}transcript/${id}`
  }

  #decrypt(ciphertext: unknown, owner: readonly string[]): Entry | null {
    const text = typeof ciphertext === 'string' ? this.#options.seal.open(ciphertext, owner) : null
    const [, kind, first] = /^(open|frames|end|dropped) (\d+)\n/.exec(text ?? '') ?? []
    if (text === null || kind === undefined || first === undefined) return null
    const frames = Buffer.from(text.slice(kind.length + first.length + 2))
    return { kind: kind as EntryKind, first: Number(first), frames }
  }

  #push(transcript: Transcript, kind: EntryKind, first: number, frames: string): void {
    const key = this.#keyOf(transcript.id)
    const entry = this.#options.seal.seal(`${kind} ${first}\n${frames}`, ownerOf(transcript))
    this.#send(transcript, ['RPUSH', key, entry])
    this.#send(transcript, ['PEXPIRE', key, String(lifeMs(transcript))])
  }

  #send(transcript: Transcript, command: readonly string[]): void {
    this.#redis.send(command).catch(() => this.#broken.add(transcript))
  }

  /** Writes the whole stream again after an outage. */
  #rewrite(transcript: Transcript): void {
    if (!this.#redis.isReady) return
    this.#broken.delete(transcript)
    this.#send(transcript, ['DEL', this.#keyOf(transcript.id)])
    this.#push(transcript, 'open', 0, '')
    for (const { first, bytes } of transcript.frames.pieces()) {
      this.#push(transcript, 'frames', first, textOf(bytes))
    }
    if (transcript.state === 'ended') this.#push(transcript, 'end', transcript.frames.next, '')
  }

  /** Schedules the next refresh: it extends the life of silent streams and of claims, and repairs broken copies. */
  #scheduleRefresh(): void {
    const { clock, windowMs } = this.#options
    this.#refresh = clock.after(Math.min(windowMs / 2, LEASE_MS / REFRESHES_PER_LEASE), () => {
      for (const transcript of this.#store.all()) {
        const { id, state } = transcript
        if (this.#broken.has(transcript) && state !== 'dropped') this.#rewrite(transcript)
        else if (state === 'running')
          this.#send(transcript, ['PEXPIRE', this.#keyOf(id), String(lifeMs(transcript))])
        if (state !== 'ended') this.#extendClaim(transcript)
      }
      this.#scheduleRefresh()
    })
  }
}

/** How long the copy lives without a refresh. */
function lifeMs({ claim, state, keptMs }: Transcript): number {
  return claim !== null && state !== 'ended' ? LEASE_MS : keptMs
}

function claimOwner({ keyHash, name }: TranscriptClaim): readonly string[] {
  return [keyHash, name]
}

function ownerOf({ id, keyHash }: Pick<TranscriptQuestion, 'id' | 'keyHash'>): readonly string[] {
  return [keyHash, id]
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()
}

interface RemoteReaderDeps {
  readonly question: TranscriptQuestion
  readonly clock: Clock
  /** Interval at which the reader reports its presence to the instance of the stream. */
  readonly presenceMs: number
  /** Some entries from this index on; null for an entry of another key. Rejects while Redis is away. */
  readonly entries: (start: number) => Promise<readonly (Entry | null)[]>
  /** Number of entries. Rejects while Redis is away. */
  readonly length: () => Promise<number>
  readonly reportPresence: () => void
  readonly onPart: (part: TranscriptPart) => void
  /** Called once. */
  readonly onClose: () => void
}

/** Frames that the reader has not received yet. */
interface PendingFrames {
  readonly bytes: Buffer
  readonly count: number
  readonly isEnd: boolean
}

/** A reader of a stream of another instance. It polls Redis while its client wants more. */
class RemoteReader implements TranscriptReader {
  readonly #deps: RemoteReaderDeps
  /** Index of the next entry to read. */
  #entryIndex = 0
  /** Number of the next frame for the reader. */
  #next: number
  #isFirst = true
  #isAsking = false
  #isClosed = false
  #pending: PendingFrames | null = null
  /** Consecutive reads that found nothing. */
  #emptyReads = 0
  #timer: Timer | null = null
  #presence: Timer | null = null

  constructor(deps: RemoteReaderDeps) {
    this.#deps = deps
    this.#next = deps.question.after + 1
    this.next()
  }

  next(): void {
    if (this.#isClosed || this.#isAsking) return
    this.#isAsking = true
    if (this.#pending === null) void this.#poll()
    else setImmediate(() => this.#slice())
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#pending = null
    this.#deps.onClose()
    this.#timer?.cancel()
    this.#presence?.cancel()
  }

  /** Never rejects. */
  async #poll(): Promise<void> {
    const before = this.#entryIndex
    try {
      const entries = await this.#deps.entries(this.#entryIndex)
      if (this.#isClosed) return
      if (this.#deliver(entries)) return
      this.#emptyReads = this.#entryIndex > before ? 0 : this.#emptyReads + 1
      if (this.#isFirst && this.#presence !== null) {
        this.#answer([], 0, false)
        return
      }
      if (this.#emptyReads % EMPTY_READS_MAX === EMPTY_READS_MAX - 1 && (await this.#isGone())) return
    } catch {
      if (this.#isClosed) return
      if (this.#isFirst || ++this.#emptyReads === EMPTY_READS_MAX) {
        this.#end({ kind: 'cut' })
        return
      }
    }
    if (this.#isClosed) return
    this.#timer = this.#deps.clock.after(
      this.#entryIndex > before ? 0 : POLL_INTERVAL_MS,
      () => void this.#poll(),
    )
  }

  /** True if the reader got its part. */
  #deliver(entries: readonly (Entry | null)[]): boolean {
    if (entries.length === 0 && this.#presence === null) {
      return this.#emptyReads >= UNKNOWN_READS_MAX && this.#end({ kind: 'unknown' })
    }
    const frames: Buffer[] = []
    let count = 0
    for (const entry of entries) {
      if (entry === null) return this.#end({ kind: 'unknown' })
      if (this.#presence === null) this.#reportPresence()
      if (entry.kind === 'dropped') return this.#end({ kind: this.#isFirst ? 'dropped' : 'cut' })
      if (entry.first > this.#next) {
        // The stream was rewritten, in other pieces.
        this.#entryIndex = 0
        break
      }
      this.#entryIndex++
      if (entry.kind === 'end') {
        if (entry.first < this.#next) return this.#end({ kind: 'beyond', last: entry.first - 1 })
        return this.#answer(frames, count, true)
      }
      const newFrames = this.#newFramesOf(entry)
      if (newFrames.count === 0) continue
      frames.push(newFrames.frames)
      count += newFrames.count
      this.#next += newFrames.count
    }
    return count > 0 && this.#answer(frames, count, false)
  }

  /** The frames of an entry that the reader does not have yet. */
  #newFramesOf({ kind, first, frames }: Entry): { readonly frames: Buffer; readonly count: number } {
    if (kind !== 'frames') return { frames, count: 0 }
    const count = countFrames(frames)
    const knownCount = Math.min(count, this.#next - first)
    return { frames: frames.subarray(lengthOfFrames(frames, knownCount)), count: count - knownCount }
  }

  /**
   * True if the stream no longer exists. A stream that was rewritten in fewer pieces is read again from its beginning.
   */
  async #isGone(): Promise<boolean> {
    const length = await this.#deps.length()
    if (this.#isClosed) return true
    if (length === 0) return this.#end({ kind: 'cut' })
    if (length < this.#entryIndex) this.#entryIndex = 0
    return false
  }

  #reportPresence(): void {
    this.#deps.reportPresence()
    this.#presence = this.#deps.clock.after(this.#deps.presenceMs, () => this.#reportPresence())
  }

  #answer(frames: readonly Buffer[], count: number, isEnd: boolean): boolean {
    this.#isFirst = false
    this.#emptyReads = 0
    this.#pending = { bytes: Buffer.concat(frames), count, isEnd }
    this.#slice()
    return true
  }

  #slice(): void {
    if (this.#pending === null) return
    const { bytes: allBytes, count, isEnd } = this.#pending
    const bytes = new Uint8Array(allBytes.subarray(0, SLICE_BYTES))
    const isLast = bytes.length === allBytes.length
    this.#pending = isLast ? null : { bytes: allBytes.subarray(SLICE_BYTES), count, isEnd }
    this.#isAsking = false
    if (isLast && isEnd) this.close()
    const part = { bytes, count: isLast ? count : 0, endsFrame: isLast, isEnd: isLast && isEnd }
    this.#deps.onPart({ kind: 'frames', ...part })
  }

  #end(part: TranscriptPart): boolean {
    this.close()
    this.#deps.onPart(part)
    return true
  }
}
