/**
 * Access to transcripts from other threads. `TranscriptClient` is the end in a serve thread, `TranscriptServer` the end
 * in the main thread, which has the transcripts. All events of one turn of the event loop are one message, even if they
 * belong to several streams.
 */
import type { StoreWriter, TranscriptStore } from './transcript-store.ts'
import type {
  TranscriptNotice,
  TranscriptPart,
  TranscriptQuestion,
  TranscriptReader,
  Transcripts,
  TranscriptWriter,
} from './transcripts.ts'

/** A step of a serve thread: it writes, or it reads. */
export type TranscriptAction =
  | { readonly kind: 'open'; readonly id: string; readonly keyHash: string }
  | { readonly kind: 'add'; readonly id: string; readonly frames: Uint8Array; readonly count: number }
  | { readonly kind: 'end' | 'leave' | 'forget'; readonly id: string }
  /** `reader` names the reader between the thread and the main thread. */
  | { readonly kind: 'read'; readonly reader: number; readonly question: TranscriptQuestion }
  | { readonly kind: 'next' | 'close'; readonly reader: number }

/** From a serve thread, in the order in which it happened. */
export interface TranscriptRequest {
  readonly type: 'transcribe'
  readonly actions: readonly TranscriptAction[]
}

/** From the main thread. */
export type TranscriptReply =
  | { readonly type: 'transcribed'; readonly reader: number; readonly part: TranscriptPart }
  | { readonly type: 'transcribed'; readonly id: string; readonly notice: TranscriptNotice }

/** Sends a message; the memory of `moved` goes along and is not copied. */
type SendTranscript<Message> = (message: Message, moved: readonly ArrayBuffer[]) => void

function memoryOf({ buffer }: Uint8Array): ArrayBuffer {
  return buffer as ArrayBuffer
}

/** Serves one thread. Main thread. */
export class TranscriptServer {
  readonly #store: TranscriptStore
  readonly #reply: SendTranscript<TranscriptReply>
  readonly #writers = new Map<string, StoreWriter>()
  readonly #readers = new Map<number, TranscriptReader>()
  #closed = false

  constructor(store: TranscriptStore, reply: SendTranscript<TranscriptReply>) {
    this.#store = store
    this.#reply = reply
  }

  receive(actions: readonly TranscriptAction[]): void {
    if (!this.#closed) for (const action of actions) this.#follow(action)
  }

  /** Call it when the thread has ended: what it has not ended is cut short, and will get no end. */
  close(): void {
    this.#closed = true
    for (const reader of this.#readers.values()) reader.close()
    for (const writer of this.#writers.values()) writer.forget()
    this.#readers.clear()
    this.#writers.clear()
  }

  #follow(action: TranscriptAction): void {
    switch (action.kind) {
      case 'open':
        this.#open(action.id, action.keyHash)
        break
      case 'add':
        this.#writers.get(action.id)?.addBytes(action.frames, action.count)
        break
      case 'leave':
        this.#writers.get(action.id)?.leave()
        break
      case 'end':
      case 'forget':
        this.#writers.get(action.id)?.[action.kind]()
        this.#writers.delete(action.id)
        break
      case 'read':
        this.#read(action.reader, action.question)
        break
      case 'next':
        this.#readers.get(action.reader)?.next()
        break
      case 'close':
        this.#readers.get(action.reader)?.close()
        this.#readers.delete(action.reader)
        break
    }
  }

  #open(id: string, keyHash: string): void {
    const writer = this.#store.open(id, keyHash, notice => {
      if (!this.#closed) this.#reply({ type: 'transcribed', id, notice }, [])
    })
    this.#writers.set(id, writer)
  }

  #read(reader: number, question: TranscriptQuestion): void {
    const opened = this.#store.read(question, part => {
      const isFrames = part.kind === 'frames'
      if (!isFrames || part.isEnd) this.#readers.delete(reader)
      if (!this.#closed)
        this.#reply({ type: 'transcribed', reader, part }, isFrames ? [memoryOf(part.bytes)] : [])
    })
    this.#readers.set(reader, opened)
  }
}

/** Events of one stream that wait for the end of the turn. */
interface Addition {
  readonly kind: 'addition'
  readonly id: string
  text: string
  count: number
  isSent: boolean
}

/** The transcripts as a serve thread uses them. */
export class TranscriptClient implements Transcripts {
  readonly #send: SendTranscript<TranscriptRequest>
  readonly #notices = new Map<string, (notice: TranscriptNotice) => void>()
  readonly #readers = new Map<number, (part: TranscriptPart) => void>()
  #queue: (TranscriptAction | Addition)[] = []
  #lastReader = 0

  constructor(send: SendTranscript<TranscriptRequest>) {
    this.#send = send
  }

  open(id: string, keyHash: string, onNotice: (notice: TranscriptNotice) => void): TranscriptWriter {
    this.#notices.set(id, onNotice)
    this.#push({ kind: 'open', id, keyHash })
    let addition: Addition | null = null
    const tell = (kind: 'end' | 'leave' | 'forget'): void => {
      addition = null
      if (kind !== 'leave') this.#notices.delete(id)
      this.#push({ kind, id })
    }
    return {
      add: (text, count) => {
        if (addition === null || addition.isSent) {
          addition = { kind: 'addition', id, text, count, isSent: false }
          this.#push(addition)
          return
        }
        addition.text += text
        addition.count += count
      },
      end: () => tell('end'),
      leave: () => tell('leave'),
      forget: () => tell('forget'),
    }
  }

  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader {
    const reader = ++this.#lastReader
    this.#readers.set(reader, onPart)
    this.#push({ kind: 'read', reader, question })
    return {
      next: () => this.#push({ kind: 'next', reader }),
      close: () => {
        if (this.#readers.delete(reader)) this.#push({ kind: 'close', reader })
      },
    }
  }

  /** Takes what the main thread says. */
  receive(reply: TranscriptReply): void {
    if ('notice' in reply) {
      this.#notices.get(reply.id)?.(reply.notice)
      return
    }
    const { reader, part } = reply
    const onPart = this.#readers.get(reader)
    if (part.kind !== 'frames' || part.isEnd) this.#readers.delete(reader)
    onPart?.(part)
  }

  /** Sends at once, without waiting for the end of the turn; for a thread that ends. */
  flush(): void {
    if (this.#queue.length === 0) return
    const moved: ArrayBuffer[] = []
    const actions = this.#queue.map(queued => (queued.kind === 'addition' ? written(queued, moved) : queued))
    this.#queue = []
    this.#send({ type: 'transcribe', actions }, moved)
  }

  #push(queued: TranscriptAction | Addition): void {
    if (this.#queue.length === 0) setImmediate(() => this.flush())
    this.#queue.push(queued)
  }
}

const encoder = new TextEncoder()

function written(addition: Addition, moved: ArrayBuffer[]): TranscriptAction {
  addition.isSent = true
  const { id, text, count } = addition
  // Memory of its own, which can be moved.
  const frames = new Uint8Array(Buffer.byteLength(text))
  encoder.encodeInto(text, frames)
  moved.push(memoryOf(frames))
  return { kind: 'add', id, frames, count }
}
