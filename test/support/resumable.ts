/** Resumable streams as their clients read them, in pieces, cut at any byte; and stores that threads share. */
import { once } from 'node:events'
import { request } from 'node:http'
import { MessageChannel } from 'node:worker_threads'
import { systemClock } from '../../src/base/clock.ts'
import { type LinkMessage, ThreadLink } from '../../src/base/thread-rpc.ts'
import { TranscriptClient, TranscriptServer } from '../../src/storage/transcripts/transcript-channel.ts'
import type { TranscriptStore } from '../../src/storage/transcripts/transcript-store.ts'

/** A piece of a stream: its whole frames. */
export interface Piece {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly frames: readonly string[]
  /** `[DONE]` came last. */
  readonly isDone: boolean
  /** Of an answer that is no stream. */
  readonly body: string
  /** Why there is no answer, where there is none. */
  readonly fault: string
}

interface PieceOptions {
  readonly port: number
  readonly apiKey: string
  /** The client leaves after so many bytes; default: it stays to the end. */
  readonly cutAfter?: number
  /** The client leaves as soon as this has come. */
  readonly leaveAt?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly method?: 'GET' | 'POST' | 'HEAD'
  readonly body?: unknown
  /** Called with all text so far. */
  readonly onText?: (text: string) => void
}

/** Reads one piece on a connection of its own. Never rejects. */
export async function readPiece(path: string, options: PieceOptions): Promise<Piece> {
  const { port, apiKey, cutAfter = Number.POSITIVE_INFINITY, headers = {}, body, onText, leaveAt } = options
  const method = options.method ?? (body === undefined ? 'GET' : 'POST')
  const text = body === undefined ? '' : JSON.stringify(body)
  const ended = Promise.withResolvers<void>()
  let received = ''
  let status = 0
  let fault = ''
  let answered: Piece['headers'] = {}
  const sent = request(
    {
      host: '127.0.0.1',
      port,
      path: `/v1${path}`,
      method,
      agent: false,
      headers: {
        authorization: `Bearer ${apiKey}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
    },
    reply => {
      status = reply.statusCode ?? 0
      answered = reply.headers
      reply.setEncoding('utf8').on('data', (more: string) => {
        received += more
        onText?.(received)
        if (received.length >= cutAfter) sent.destroy()
        if (leaveAt !== undefined && received.includes(leaveAt)) sent.destroy()
      })
      reply.on('close', () => ended.resolve())
    },
  )
  sent.on('error', error => {
    fault = String(error)
    ended.resolve()
  })
  sent.end(text)
  await ended.promise
  const whole = received.slice(0, cutAfter)
  const frames = whole
    .slice(0, whole.lastIndexOf('\n\n') + 1)
    .split('\n\n')
    .map(frame => frame.replace(/^\n+/, '').trimEnd())
    .filter(frame => frame !== '' && !frame.startsWith(':'))
  const isDone = frames.at(-1) === 'data: [DONE]'
  return {
    status,
    headers: answered,
    frames: status === 200 ? (isDone ? frames.slice(0, -1) : frames) : [],
    isDone,
    body: whole,
    fault,
  }
}

/** POST /responses for a stream that may be read again. */
export function ask(
  options: PieceOptions & { readonly model: string; readonly input?: string },
): Promise<Piece> {
  const { model, input = 'Hi', ...rest } = options
  return readPiece('/responses', {
    ...rest,
    headers: { 'x-gateway-resumable': 'true', ...rest.headers },
    body: { model, input, stream: true },
  })
}

/** GET /responses/{id} from the event after this one; null: from the beginning. */
export function resume(id: string, after: number | null, options: PieceOptions): Promise<Piece> {
  return readPiece(`/responses/${id}?stream=true${after === null ? '' : `&starting_after=${after}`}`, options)
}

export function numberOf(frame: string): number {
  return Number(/"sequence_number":(\d+)/.exec(frame)?.[1] ?? Number.NaN)
}

export function idOf({ headers }: Piece): string {
  return String(headers['x-generation-id'] ?? '')
}

/** The text of all deltas. */
export function textOf(frames: readonly string[]): string {
  return frames
    .map(frame => JSON.parse(frame.slice(frame.indexOf('data: ') + 6)) as { type: string; delta?: string })
    .filter(({ type }) => type === 'response.output_text.delta')
    .map(({ delta }) => delta ?? '')
    .join('')
}

/** Frames without the ids and texts that differ from one stream to the next. */
export function normalized(frames: readonly string[]): readonly string[] {
  return frames.map(frame =>
    frame
      .replaceAll(/gen-\d+-\w{20}/g, 'GEN')
      .replaceAll(/"(msg|rs|fc)_[^"]+"/g, '"$1"')
      .replaceAll(/"signature":"[^"]+"/g, '"signature":""'),
  )
}

/** The numbers of a stream that has none twice and none missing. */
export function counted(frames: readonly string[]): boolean {
  return frames.every((frame, at) => numberOf(frame) === at)
}

/** The ends of a thread and of the main thread, with a real channel between them. */
export function joinThread(store: TranscriptStore) {
  const { port1, port2 } = new MessageChannel()
  const thread = new ThreadLink<{ readonly transcripts: TranscriptServer }>(systemClock, (message, moved) =>
    port1.postMessage(message, moved),
  )
  const main = new ThreadLink<{ readonly transcripts: TranscriptClient }>(systemClock, (message, moved) =>
    port2.postMessage(message, moved),
  )
  const client = new TranscriptClient(thread.service('transcripts'))
  const server = new TranscriptServer(store, main.service('transcripts'))
  thread.serve({ transcripts: client })
  main.serve({ transcripts: server })
  port1.on('message', (message: LinkMessage) => thread.receive(message))
  port2.on('message', (message: LinkMessage) => main.receive(message))
  return {
    client,
    server,
    async close() {
      server.close()
      port1.close()
      await once(port2, 'close')
    },
  }
}

/** Numbers from 0, below what is asked for: the same for the same seed. */
export function drawFrom(seed: number): (below: number) => number {
  let state = seed >>> 0
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}
