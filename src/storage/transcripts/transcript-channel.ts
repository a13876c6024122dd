/**
 * Access to transcripts from other threads. `TranscriptClient` runs in a serve thread, `TranscriptServer` in the main
 * thread, which has the transcripts. All events of one stream in one turn of the event loop are sent in one call.
 */
import { serviceUnavailable } from '../../base/errors.ts'
import type { RemoteService } from '../../base/thread-rpc.ts'
import type { StoreWriter, TranscriptStore } from './transcript-store.ts'
import {
  type EarlierClaim,
  isEarlierClaim,
  type TranscriptClaim,
  type TranscriptNotice,
  type TranscriptPart,
  type TranscriptQuestion,
  type TranscriptReader,
  type Transcripts,
  type TranscriptWriter,
} from './transcripts.ts'

function memoryOf({ buffer }: Uint8Array): ArrayBuffer {
  return buffer as ArrayBuffer
}

/** Serves one thread. Main thread. */
export class TranscriptServer {
  readonly #store: TranscriptStore
  readonly #client: RemoteService<TranscriptClient>
  readonly #writers = new Map<string, StoreWriter>()
  /** Readers by the number that the thread gave them. */
  readonly #readers = new Map<number, TranscriptReader>()
  #closed = false

  constructor(store: TranscriptStore, client: RemoteService<TranscriptClient>) {
    this.#store = store
    this.#client = client
  }

  begin(id: string, keyHash: string): void {
    const writer = this.#store.open(id, keyHash, notice => {
      if (!this.#closed) this.#client.send('notice', [id, notice])
    })
    this.#writers.set(id, writer)
  }

  /** Null: this thread writes the answer. */
  async claim(claim: TranscriptClaim): Promise<EarlierClaim | null> {
    const { id } = claim
    const result = await this.#store.claim(claim, notice => {
      if (!this.#closed) this.#client.send('notice', [id, notice])
    })
    if (isEarlierClaim(result)) return result
    if (this.#closed) result.forget()
    else this.#writers.set(id, result)
    return null
  }

  add(id: string, frames: Uint8Array, count: number): void {
    this.#writers.get(id)?.addBytes(frames, count)
  }

  leave(id: string): void {
    this.#writers.get(id)?.leave()
  }

  end(id: string, isKept: boolean): void {
    this.#writers.get(id)?.end(isKept)
    this.#writers.delete(id)
  }

  forget(id: string): void {
    this.#writers.get(id)?.forget()
    this.#writers.delete(id)
  }

  read(reader: number, question: TranscriptQuestion): void {
    const openedReader = this.#store.read(question, part => {
      const isFrames = part.kind === 'frames'
      if (!isFrames || part.isEnd) this.#readers.delete(reader)
      if (this.#closed) return
      this.#client.send('part', [reader, part], isFrames ? [memoryOf(part.bytes)] : [])
    })
    this.#readers.set(reader, openedReader)
  }

  next(reader: number): void {
    this.#readers.get(reader)?.next()
  }

  closeReader(reader: number): void {
    this.#readers.get(reader)?.close()
    this.#readers.delete(reader)
  }

  /** Call it when the thread has ended: its unfinished streams are cut off and get no end. */
  close(): void {
    this.#closed = true
    for (const reader of this.#readers.values()) reader.close()
    for (const writer of this.#writers.values()) writer.forget()
    this.#readers.clear()
    this.#writers.clear()
  }
}

/** Events of one stream that are sent at the end of the turn. */
interface Addition {
  text: string
  count: number
  isSent: boolean
}

const encoder = new TextEncoder()

/** The transcripts as a serve thread uses them. */
export class TranscriptClient implements Transcripts {
  readonly #server: RemoteService<TranscriptServer>
  readonly #notices = new Map<string, (notice: TranscriptNotice) => void>()
  readonly #readers = new Map<number, (part: TranscriptPart) => void>()
  #lastReader = 0

  constructor(server: RemoteService<TranscriptServer>) {
    this.#server = server
  }

  open(id: string, keyHash: string, onNotice: (notice: TranscriptNotice) => void): TranscriptWriter {
    this.#notices.set(id, onNotice)
    this.#server.send('begin', [id, keyHash])
    return this.#writer(id)
  }

  async claim(
    claim: TranscriptClaim,
    onNotice: (notice: TranscriptNotice) => void,
  ): Promise<TranscriptWriter | EarlierClaim> {
    this.#notices.set(claim.id, onNotice)
    const result = await this.#server.ask('claim', [claim], null)
    if (result === null) return this.#writer(claim.id)
    this.#notices.delete(claim.id)
    if (result === undefined) throw serviceUnavailable()
    return result
  }

  #writer(id: string): TranscriptWriter {
    let addition: Addition | null = null
    return {
      add: (text, count) => {
        if (addition === null || addition.isSent) {
          addition = { text, count, isSent: false }
          this.#add(id, addition)
          return
        }
        addition.text += text
        addition.count += count
      },
      end: (isKept = true) => {
        this.#notices.delete(id)
        this.#server.send('end', [id, isKept])
      },
      leave: () => {
        addition = null
        this.#server.send('leave', [id])
      },
      forget: () => {
        this.#notices.delete(id)
        this.#server.send('forget', [id])
      },
    }
  }

  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader {
    const reader = ++this.#lastReader
    this.#readers.set(reader, onPart)
    this.#server.send('read', [reader, question])
    return {
      next: () => this.#server.send('next', [reader]),
      close: () => {
        if (this.#readers.delete(reader)) this.#server.send('closeReader', [reader])
      },
    }
  }

  /** Called by the main thread. */
  notice(id: string, notice: TranscriptNotice): void {
    this.#notices.get(id)?.(notice)
  }

  /** Called by the main thread. */
  part(reader: number, part: TranscriptPart): void {
    const onPart = this.#readers.get(reader)
    if (part.kind !== 'frames' || part.isEnd) this.#readers.delete(reader)
    onPart?.(part)
  }

  #add(id: string, addition: Addition): void {
    this.#server.sendLater('add', () => {
      addition.isSent = true
      const { text, count } = addition
      // Memory of its own, which can be transferred.
      const frames = new Uint8Array(Buffer.byteLength(text))
      encoder.encodeInto(text, frames)
      const args: [string, Uint8Array, number] = [id, frames, count]
      return { args, moved: [memoryOf(frames)] }
    })
  }
}
