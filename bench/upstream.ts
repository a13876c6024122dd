/**
 * The upstream of the benches: a process that behaves like a provider, plain, over TLS and over HTTP/2, at a pace that
 * the model name of the request encodes (wire.ts). Prints one line with its three ports, then answers each line on
 * standard input with one line of counts. `node bench/upstream.ts CERT KEY`
 */
import type { TemplatedApp } from 'uWebSockets.js'
import { createInterface } from 'node:readline'
import { type Reply, serveHttp2 } from './upstream-http2.ts'
import {
  FNV_START,
  type Frames,
  filler,
  fnv1a,
  framesOf,
  hashText,
  jsonBody,
  jsonText,
  PATHS,
  planOf,
  type Wire,
} from './wire.ts'

const { App, SSLApp, us_socket_local_port } = await import('uWebSockets.js')

interface Stream {
  readonly reply: Reply
  readonly frames: Frames
  readonly uid: number
  readonly events: number
  readonly spacingMs: number
  readonly filler: string
  sent: number
  hash: number
  whole: string
  dueMs: number
  live: boolean
}

const BODY_MAX_BYTES = 1 << 20
/** Slots of one millisecond; longer than any spacing. */
const WHEEL_SLOTS = 16_384
const FLOOD_TEXT_BYTES = 4096
/** Then the paced streams have their turn. */
const FLOOD_FRAMES_PER_TURN = 32
/** Aborts kept for one report; more than a row can bring. */
const ABORTS_MAX = 20_000

const wheel: Stream[][] = Array.from({ length: WHEEL_SLOTS }, () => [])
let wheelMs = nowMs()
let streams = 0
let requests = 0
let aborts: [uid: number, atMicros: number][] = []
let lateMs = 0

function nowMs(): number {
  return Math.floor(performance.now())
}

function stamp(): string {
  return String(process.hrtime.bigint())
}

let pendingReply: Reply | null = null
let pendingText = ''
const flush = (): void => {
  pendingReply?.write(pendingText)
}

/** One corked write; false when the reader is slower than we are. */
function write(reply: Reply, text: string): void {
  pendingReply = reply
  pendingText = text
  reply.cork(flush)
}

function nextText(stream: Stream): string {
  const head = `@${stream.uid},${stream.sent},${stamp()};`
  if (stream.sent === stream.events - 1) return `${head}#${hashText(stream.hash)}`
  const text = head + stream.filler
  stream.hash = fnv1a(stream.hash, Buffer.from(text))
  return text
}

function sendDelta(stream: Stream, before: string): void {
  const text = nextText(stream)
  stream.whole += text
  write(stream.reply, before + stream.frames.delta(stream.sent, text))
  stream.sent++
}

function schedule(stream: Stream): void {
  stream.dueMs += stream.spacingMs
  // A slot that has passed is served at the next turn.
  const at = Math.max(stream.dueMs, wheelMs + 1)
  wheel[at % WHEEL_SLOTS]?.push(stream)
}

function step(stream: Stream): void {
  if (!stream.live) return
  if (stream.sent < stream.events) {
    sendDelta(stream, '')
    schedule(stream)
    return
  }
  stream.live = false
  streams--
  const { reply, frames, whole, events } = stream
  reply.cork(() => reply.end(frames.closing(whole, events)))
}

function turn(): void {
  const now = nowMs()
  if (now - wheelMs > lateMs) lateMs = now - wheelMs
  while (wheelMs < now) {
    wheelMs++
    const at = wheelMs % WHEEL_SLOTS
    const due = wheel[at]
    if (due === undefined || due.length === 0) continue
    wheel[at] = []
    for (const stream of due) step(stream)
  }
  setTimeout(turn, 1)
}

function openStream(reply: Reply): void {
  reply.writeStatus('200 OK')
  reply.writeHeader('content-type', 'text/event-stream; charset=utf-8')
  reply.writeHeader('cache-control', 'no-cache')
}

function startStream(
  reply: Reply,
  state: { aborted: (() => void) | null },
  frames: Frames,
  uid: number,
  plan: { readonly events: number; readonly spacingMs: number; readonly textBytes: number },
): void {
  const head = `@${uid},${plan.events},${stamp()};`.length
  const stream: Stream = {
    reply,
    frames,
    uid,
    events: plan.events,
    spacingMs: Math.min(plan.spacingMs, WHEEL_SLOTS - 1),
    filler: filler(Math.max(0, plan.textBytes - head)),
    sent: 0,
    hash: FNV_START,
    whole: '',
    dueMs: nowMs(),
    live: true,
  }
  streams++
  state.aborted = () => {
    if (!stream.live) return
    stream.live = false
    streams--
    if (aborts.length < ABORTS_MAX) aborts.push([uid, Number(process.hrtime.bigint() / 1000n)])
  }
  reply.cork(() => {
    openStream(reply)
    sendDelta(stream, frames.opening)
  })
  schedule(stream)
}

function startFlood(
  reply: Reply,
  state: { aborted: (() => void) | null },
  frames: Frames,
  mebibytes: number,
): void {
  const text = filler(FLOOD_TEXT_BYTES)
  let bytesLeft = mebibytes * 1024 * 1024
  let sequence = 0
  let live = true
  streams++
  state.aborted = () => {
    if (live) streams--
    live = false
  }
  const go = (): boolean => {
    for (let written = 0; live && bytesLeft > 0; written++) {
      if (written === FLOOD_FRAMES_PER_TURN) {
        setImmediate(go)
        return true
      }
      const frame = frames.delta(sequence++, text)
      bytesLeft -= frame.length
      let flowing = true
      reply.cork(() => {
        flowing = reply.write(frame)
      })
      if (!flowing) return false
    }
    if (live) {
      live = false
      streams--
      reply.cork(() => reply.end(frames.closing('', sequence)))
    }
    return true
  }
  reply.onWritable(go)
  reply.cork(() => {
    openStream(reply)
    reply.write(frames.opening)
  })
  go()
}

function refuse(reply: Reply, status: string, reason: string): void {
  reply.cork(() => {
    reply.writeStatus(status)
    reply.writeHeader('content-type', 'application/json')
    reply.end(JSON.stringify({ error: { message: reason, type: 'invalid_request_error' } }))
  })
}

function answer(wire: Wire, reply: Reply, state: { aborted: (() => void) | null }, body: Buffer): void {
  let request: { model?: unknown; stream?: unknown }
  try {
    request = JSON.parse(body.toString('utf8')) as typeof request
  } catch {
    refuse(reply, '400 Bad Request', 'the body is no JSON')
    return
  }
  const model = typeof request.model === 'string' ? request.model : ''
  const plan = planOf(model)
  if (plan === null) {
    refuse(reply, '404 Not Found', `no plan in the model name ${model}`)
    return
  }
  const uid = ++requests
  const id = String(uid).padStart(8, '0')
  if (plan.kind === 'json') {
    const text = jsonBody(wire, id, model, jsonText(plan.textBytes))
    const send = (): void => {
      reply.cork(() => {
        reply.writeHeader('content-type', 'application/json')
        reply.end(text)
      })
    }
    if (plan.delayMs === undefined) send()
    else {
      const timer = setTimeout(send, plan.delayMs)
      state.aborted = () => clearTimeout(timer)
    }
    return
  }
  const frames = framesOf(wire, id, model)
  if (plan.kind === 'flood') startFlood(reply, state, frames, plan.mebibytes)
  else startStream(reply, state, frames, uid, plan)
}

function serve(app: TemplatedApp): Promise<number> {
  for (const wire of Object.keys(PATHS) as Wire[]) {
    app.post(PATHS[wire], reply => {
      const pieces: Buffer[] = []
      let length = 0
      const state: { aborted: (() => void) | null } = { aborted: null }
      let gone = false
      reply.onAborted(() => {
        gone = true
        state.aborted?.()
      })
      reply.onData((piece, last) => {
        if (gone) return
        length += piece.byteLength
        if (length > BODY_MAX_BYTES) {
          gone = true
          reply.close()
          return
        }
        // The piece is only lent: the inner Buffer is a view, the outer one a copy.
        pieces.push(Buffer.from(Buffer.from(piece)))
        if (last) answer(wire, reply, state, Buffer.concat(pieces))
      })
    })
  }
  app.any('/*', reply => refuse(reply, '404 Not Found', 'unknown path'))
  return new Promise((resolve, reject) => {
    app.listen('127.0.0.1', 0, socket => {
      if (socket === false || socket === null) reject(new Error('cannot listen'))
      else resolve(us_socket_local_port(socket))
    })
  })
}

const [cert = '', key = ''] = process.argv.slice(2)
const plain = await serve(App())
const tls = await serve(SSLApp({ cert_file_name: cert, key_file_name: key }))
const http2 = await serveHttp2({ cert, key }, async ({ path, reply, body, onAborted }) => {
  const wire = (Object.keys(PATHS) as Wire[]).find(each => PATHS[each] === path)
  if (wire === undefined) {
    refuse(reply, '404 Not Found', 'unknown path')
    return
  }
  const state: { aborted: (() => void) | null } = { aborted: null }
  onAborted(() => state.aborted?.())
  // A request that is cut off asks for nothing.
  const bytes = await body.catch(() => null)
  if (bytes !== null) answer(wire, reply, state, bytes)
})
setTimeout(turn, 1)
process.stdout.write(`${JSON.stringify({ plain, tls, http2 })}\n`)

/** Each line asks for the counts since the last one. The end of the input ends the process. */
createInterface({ input: process.stdin })
  .on('line', () => {
    process.stdout.write(`${JSON.stringify({ streams, requests, lateMs, aborts })}\n`)
    aborts = []
    lateMs = 0
  })
  .on('close', () => process.exit(0))
