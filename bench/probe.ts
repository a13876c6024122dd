/**
 * Stream load generator for machines without a C compiler: the same program as probe.c, with the same settings and
 * output lines, at several times its cost per event; probe.c explains `recut`. Hot path: no object per event.
 */
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { FNV_START, fnv1a } from './wire.ts'

const settings = new Map(
  process.argv.slice(2).map(word => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]),
)
const number = (name: string, otherwise: number): number => Number(settings.get(name) ?? otherwise)

const PORT = number('port', 0)
const HOST = settings.get('host') ?? '127.0.0.1'
const STREAMS = number('streams', 1)
const EVENTS = number('events', 100)
const RAMP_MS = number('rampMs', 0)
const WARM_MS = number('warmMs', 0)
const WINDOW_MS = number('windowMs', 1000)
const ABORT_AFTER = number('abortAfter', 0)
const STALLED = number('stalled', 0)
const SPACING_MS = number('spacingMs', 20)
/** Texts may come in other pieces than they were sent in. */
const RECUT = number('recut', 0) > 0
/** A piece begins with any character, a text with the last one of the marker. */
const MARKER_TEXT = settings.get('marker') ?? '"delta":"@'
const MARKER = Buffer.from(RECUT ? MARKER_TEXT.slice(0, -1) : MARKER_TEXT)
const TEXT_AT = MARKER_TEXT.length - 1
const REQUEST = readFileSync(settings.get('request') ?? '')
const ABORTS_MAX = 20_000
/** After a refusal; asking again at once would only be refused again. */
const PAUSE_MS = 250
const SUB_BUCKETS = 32

/** Microseconds in buckets of 1/32 of a power of two. */
class Histogram {
  readonly #buckets = new Float64Array(SUB_BUCKETS * 40)
  #count = 0
  #max = 0

  note(micros: number, times = 1): void {
    const value = micros < 0 ? 0 : Math.floor(micros)
    this.#count += times
    if (value > this.#max) this.#max = value
    let at = value
    if (value >= SUB_BUCKETS) {
      const power = 31 - Math.clz32(Math.min(value, 0x7fffffff))
      at = (power - 4) * SUB_BUCKETS + ((value >>> (power - 5)) & (SUB_BUCKETS - 1))
    }
    this.#buckets[at] = (this.#buckets[at] ?? 0) + times
  }

  #quantile(q: number): number {
    const wanted = Math.floor(q * this.#count)
    let sum = 0
    for (const [at, count] of this.#buckets.entries()) {
      sum += count
      if (sum > wanted) {
        if (at < SUB_BUCKETS) return at
        return (SUB_BUCKETS + (at % SUB_BUCKETS)) * 2 ** (Math.floor(at / SUB_BUCKETS) - 1)
      }
    }
    return this.#max
  }

  summary(): object {
    const [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(q => this.#quantile(q))
    return { count: this.#count, p50, p90, p99, p999, max: this.#max }
  }
}

const firstEvent = new Histogram()
const delay = new Histogram()
const gap = new Histogram()
const counts = {
  events: 0,
  reads: 0,
  readsWithEvents: 0,
  bytes: 0,
  begun: 0,
  finished: 0,
  finishedInWindow: 0,
  lost: 0,
  wrong: 0,
  errors: 0,
  refused: 0,
  silent: 0,
}
const aborts: [uid: number, atMicros: number][] = []
let inWindow = false
let stopping = false

const nowMicros = (): number => Number(process.hrtime.bigint()) / 1000

const HEAD = 0
const SIZE = 1
const SIZE_REST = 2
const DATA = 3
const DATA_END = 4
const TRAILER = 5
const LF = 10
const CR = 13
const QUOTE = 34
const DATA_FIELD = Buffer.from('data:')
const ENDS = [Buffer.from('[DONE]'), Buffer.from('"response.completed"'), Buffer.from('"message_stop"')]
const END_WITHIN = 120
/** Where the text of a stream is read on, when it is cut anew. */
const TEXT_START = 0
const TEXT_HEAD = 1
const TEXT_BODY = 2
const TEXT_PROOF = 3
const TEXT_OVER = 4
const TEXT_HEAD_MAX_BYTES = 64
const PROOF_BYTES = 9
const AT_SIGN = 64
const HASH_SIGN = 35
const SEMICOLON = 59

class Stream {
  readonly #index: number
  #socket: Socket | null = null
  #state = HEAD
  #head = ''
  #chunkLeft = 0
  #emptyLine = true
  #carry = Buffer.alloc(0)
  #hash = FNV_START
  #seen = 0
  #sentMicros = 0
  #lastMicros = 0
  #broken = false
  #done = false
  #over = false
  #refused = false
  #abort = false
  #running = false
  #textPart = TEXT_START
  readonly #textHead = Buffer.alloc(TEXT_HEAD_MAX_BYTES)
  #textHeadLength = 0
  #pieces = 0
  #uid = 0
  #stampMicros = 0

  constructor(index: number) {
    this.#index = index
    this.#begin()
  }

  #begin(): void {
    // One buffer for all sockets: nothing of a read outlives its callback.
    const socket = connect({
      port: PORT,
      host: HOST,
      noDelay: true,
      onread: {
        buffer: READ_BUFFER,
        callback: (length: number, buffer: Uint8Array) => {
          if (this.#socket === socket) this.#read(buffer.subarray(0, length) as Buffer)
          return true
        },
      },
    })
    this.#socket = socket
    socket.on('connect', () => this.#ask())
    socket.on('error', () => undefined)
    socket.on('close', () => {
      if (this.#socket === socket) this.#broke()
    })
  }

  #ask(): void {
    this.#state = HEAD
    this.#head = ''
    this.#carry = Buffer.alloc(0)
    this.#hash = FNV_START
    this.#seen = 0
    this.#textPart = TEXT_START
    this.#textHeadLength = this.#pieces = 0
    this.#broken = this.#done = this.#over = this.#refused = false
    this.#running = true
    counts.begun++
    this.#sentMicros = this.#lastMicros = nowMicros()
    this.#socket?.write(REQUEST)
  }

  #again(): void {
    const socket = this.#socket
    this.#socket = null
    this.#running = false
    socket?.destroy()
    if (!stopping) this.#begin()
  }

  #broke(): void {
    if (this.#refused) {
      if (counts.refused++ === 0) process.stderr.write(`refused: ${this.#head.slice(0, 300)}\n`)
      const socket = this.#socket
      this.#socket = null
      this.#running = false
      socket?.destroy()
      setTimeout(() => {
        if (!stopping) this.#begin()
      }, PAUSE_MS)
      return
    }
    if (!stopping) {
      counts.errors++
      if (this.#running) counts.lost += Math.max(0, EVENTS - this.#seen)
    }
    this.#again()
  }

  #read(bytes: Buffer): void {
    const before = counts.events
    const sound = this.#feed(bytes, nowMicros())
    if (inWindow) {
      counts.reads++
      if (counts.events > before) counts.readsWithEvents++
    }
    if (!sound) this.#broke()
    else if (this.#abort) {
      this.#abort = false
      const last = aborts.at(-1)
      if (last !== undefined) last[1] = Math.floor(nowMicros())
      this.#again()
    } else if (this.#over) this.#ended()
  }

  #ended(): void {
    counts.finished++
    if (inWindow) counts.finishedInWindow++
    if (this.#seen < EVENTS) counts.lost += EVENTS - this.#seen
    if (this.#broken || !this.#done || this.#seen > EVENTS) counts.wrong++
    this.#running = false
    if (/connection: close/i.test(this.#head)) this.#again()
    else if (!stopping) this.#ask()
  }

  #feed(bytes: Buffer, micros: number): boolean {
    let at = 0
    while (at < bytes.length) {
      const byte = bytes[at] ?? 0
      switch (this.#state) {
        case HEAD: {
          this.#head += bytes.toString('latin1', at)
          const end = this.#head.indexOf('\r\n\r\n')
          if (end === -1) return this.#head.length < 8192
          at = bytes.length - (this.#head.length - end - 4)
          this.#head = this.#head.slice(0, end)
          this.#refused = !this.#head.startsWith('HTTP/1.1 200')
          if (this.#refused || !/transfer-encoding: chunked/i.test(this.#head)) return false
          this.#state = SIZE
          this.#chunkLeft = 0
          break
        }
        case SIZE: {
          at++
          if (byte === CR || byte === 59) this.#state = SIZE_REST
          else {
            const digit = Number.parseInt(String.fromCharCode(byte), 16)
            if (Number.isNaN(digit)) return false
            this.#chunkLeft = this.#chunkLeft * 16 + digit
          }
          break
        }
        case SIZE_REST:
          at++
          if (byte === LF) {
            this.#state = this.#chunkLeft > 0 ? DATA : TRAILER
            this.#emptyLine = true
          }
          break
        case DATA: {
          const length = Math.min(bytes.length - at, this.#chunkLeft)
          this.#payload(bytes.subarray(at, at + length), micros)
          at += length
          this.#chunkLeft -= length
          if (this.#chunkLeft === 0) this.#state = DATA_END
          break
        }
        case DATA_END:
          at++
          if (byte === LF) this.#state = SIZE
          break
        default:
          at++
          if (byte === LF) {
            if (this.#emptyLine) this.#over = true
            this.#emptyLine = true
          } else if (byte !== CR) this.#emptyLine = false
      }
    }
    return true
  }

  #payload(bytes: Buffer, micros: number): void {
    if (inWindow) counts.bytes += bytes.length
    let at = 0
    for (;;) {
      const end = bytes.indexOf(LF, at)
      const piece = bytes.subarray(at, end === -1 ? bytes.length : end)
      if (end === -1) {
        if (piece.length > 0) this.#carry = Buffer.concat([this.#carry, piece])
        return
      }
      if (this.#carry.length === 0) this.#line(piece, micros)
      else {
        this.#line(Buffer.concat([this.#carry, piece]), micros)
        this.#carry = Buffer.alloc(0)
      }
      at = end + 1
    }
  }

  #line(line: Buffer, micros: number): void {
    if (line.length < 6 || DATA_FIELD.compare(line, 0, 5) !== 0) return
    const markerAt = line.indexOf(MARKER)
    if (markerAt !== -1) {
      const start = markerAt + TEXT_AT
      const end = line.indexOf(QUOTE, start)
      if (end === -1) this.#broken = true
      else if (RECUT) this.#piece(line.subarray(start, end), micros)
      else this.#text(line.subarray(start, end), micros)
      return
    }
    const near = line.subarray(0, END_WITHIN)
    if (ENDS.some(end => near.includes(end))) this.#done = true
  }

  #text(text: Buffer, micros: number): void {
    const head = text.toString('latin1', 1, text.indexOf(59))
    const [uid = Number.NaN, sequence = Number.NaN, stampNs = Number.NaN] = head.split(',').map(Number)
    if (sequence !== this.#seen) this.#broken = true
    if (sequence === EVENTS - 1) {
      const hash = Number.parseInt(text.toString('latin1', text.lastIndexOf(35) + 1), 16)
      if (hash !== this.#hash) this.#broken = true
    } else this.#hash = fnv1a(this.#hash, text)
    if (inWindow) {
      counts.events++
      if (this.#seen === 0) firstEvent.note(micros - this.#sentMicros)
      else {
        delay.note(micros - stampNs / 1000)
        gap.note(micros - this.#lastMicros)
      }
    }
    this.#lastMicros = micros
    this.#counted(uid)
  }

  #counted(uid: number): void {
    this.#seen++
    if (ABORT_AFTER > 0 && this.#index % 2 === 1 && this.#seen === ABORT_AFTER) {
      this.#abort = true
      if (aborts.length < ABORTS_MAX) aborts.push([uid, 0])
    }
  }

  #delayed(micros: number, times: number): void {
    if (inWindow) delay.note(micros - this.#stampMicros, times)
  }

  /** The head of a text is whole: whose it is, which one, and when it was sent. */
  #headed(micros: number): void {
    const head = this.#textHead.subarray(0, this.#textHeadLength)
    const [uid = Number.NaN, sequence = Number.NaN, stampNs = Number.NaN] = head
      .toString('latin1', 1, head.length - 1)
      .split(',')
      .map(Number)
    if (sequence !== this.#seen) this.#broken = true
    this.#uid = uid
    this.#stampMicros = stampNs / 1000
    this.#delayed(micros, head.length)
    if (sequence === EVENTS - 1) this.#textPart = TEXT_PROOF
    else {
      this.#hash = fnv1a(this.#hash, head)
      this.#textPart = TEXT_BODY
      if (inWindow) counts.events++
      this.#counted(uid)
    }
    this.#textHeadLength = 0
  }

  /** The last text is whole. */
  #proved(micros: number): void {
    const hash = Number.parseInt(this.#textHead.toString('latin1', 1, PROOF_BYTES), 16)
    if (this.#textHead[0] !== HASH_SIGN || hash !== this.#hash) this.#broken = true
    this.#delayed(micros, PROOF_BYTES)
    this.#textPart = TEXT_OVER
    if (inWindow) counts.events++
    this.#counted(this.#uid)
  }

  /** A piece of the text of a stream, cut anywhere. */
  #piece(piece: Buffer, micros: number): void {
    if (piece.length === 0) return
    if (inWindow) {
      if (this.#pieces === 0) firstEvent.note(micros - this.#sentMicros)
      else gap.note(micros - this.#lastMicros)
    }
    this.#pieces++
    this.#lastMicros = micros
    let at = 0
    while (at < piece.length) {
      const byte = piece[at] ?? 0
      switch (this.#textPart) {
        case TEXT_START:
          if (byte !== AT_SIGN) {
            this.#broken = true
            return
          }
          this.#textPart = TEXT_HEAD
          break
        case TEXT_HEAD:
          if (this.#textHeadLength === TEXT_HEAD_MAX_BYTES) {
            this.#broken = true
            return
          }
          this.#textHead[this.#textHeadLength++] = byte
          at++
          if (byte === SEMICOLON) this.#headed(micros)
          break
        case TEXT_BODY: {
          const next = piece.indexOf(AT_SIGN, at)
          const until = next === -1 ? piece.length : next
          this.#hash = fnv1a(this.#hash, piece.subarray(at, until))
          if (until > at) this.#delayed(micros, until - at)
          at = until
          if (next !== -1) this.#textPart = TEXT_START
          break
        }
        case TEXT_PROOF:
          this.#textHead[this.#textHeadLength++] = byte
          at++
          if (this.#textHeadLength === PROOF_BYTES) this.#proved(micros)
          break
        default:
          this.#broken = true
          return
      }
    }
  }

  /** Out of order, or with another hash, and not yet counted. */
  get broken(): boolean {
    return this.#running && this.#broken
  }

  /** Whether it has been waiting for much longer than its pace. */
  silent(micros: number): boolean {
    return this.#running && micros - this.#lastMicros > (SPACING_MS * 5 + 3000) * 1000
  }
}

const READ_BUFFER = Buffer.alloc(65_536)

function say(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`)
}

function stall(): void {
  const request = readFileSync(settings.get('stalledRequest') ?? '')
  // Node has no receive buffer setting for TCP: what the kernel takes is the same for every subject.
  for (let at = 0; at < STALLED; at++) {
    const socket = connect({ port: PORT, host: HOST })
    socket.pause().on('error', () => undefined)
    socket.write(request)
  }
}

if (STALLED > 0) stall()
const startedAt = performance.now()
const streams: Stream[] = []
const opening = setInterval(() => {
  const share = RAMP_MS === 0 ? 1 : Math.min(1, (performance.now() - startedAt) / RAMP_MS)
  while (streams.length < Math.max(1, share * STREAMS) && streams.length < STREAMS)
    streams.push(new Stream(streams.length))
  if (streams.length === STREAMS) clearInterval(opening)
}, 1)
setTimeout(() => {
  inWindow = true
  say({ phase: 'window' })
}, RAMP_MS + WARM_MS)
setTimeout(
  () => {
    inWindow = false
    say({ phase: 'end' })
    const micros = nowMicros()
    counts.silent = streams.filter(stream => stream.silent(micros)).length
    counts.wrong += streams.filter(stream => stream.broken).length
    stopping = true
    const result = {
      ...counts,
      firstEvent: firstEvent.summary(),
      delay: delay.summary(),
      gap: gap.summary(),
      aborts,
    }
    process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0))
  },
  RAMP_MS + WARM_MS + WINDOW_MS,
)
