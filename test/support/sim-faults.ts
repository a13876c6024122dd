/**
 * Everything a provider can do wrong over HTTP, as models of the simulated provider: `fail-<kind>` and
 * `fail-<kind>-<number>`. Faults in the middle hit a streamed reply after its first token, and a document halfway
 * through.
 */

import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { type Frame, textReply } from '../../src/apps/simulator/reply.ts'
import { SIM_FORMATS, type SimModelRow, simModel } from '../../src/apps/simulator/rows.ts'
import { createSim, type Sim, type SimFault, type SimOptions } from '../../src/apps/simulator/simulator.ts'
import type { Transmission } from '../../src/apps/simulator/transmission.ts'

// Ways in which a fault breaks a reply of the simulated provider: partial output, silence, and closed
// connections.

/** The reply in frames; a document comes as its two halves, so that faults can strike in its middle. */
function* framesOf({ stream, speaker, speech }: Transmission): Generator<Frame> {
  if (stream) {
    yield* speaker.frames(speech)
    return
  }
  const whole = JSON.stringify(speaker.whole(speech))
  const middle = Math.floor(whole.length / 2)
  yield { kind: 'token', text: whole.slice(0, middle) }
  yield { kind: 'finish', text: whole.slice(middle) }
}

/** The whole reply as bytes of its body. */
function bodyOf(reply: Transmission): Buffer {
  return Buffer.from(textOf(framesOf(reply)))
}

/** Waits for the client to give up. */
async function hang({ over, response }: Transmission): Promise<void> {
  if (!over) await once(response, 'close')
}

/** Ends the connection with a reset, after all that was written has left. */
async function reset(reply: Transmission): Promise<void> {
  reply.endedHere = true
  await flushed(reply)
  reply.response.socket?.resetAndDestroy()
}

/** Ends the connection properly, wherever the reply stands. */
async function close(reply: Transmission): Promise<void> {
  reply.endedHere = true
  await flushed(reply)
  reply.response.socket?.end()
  reply.response.socket?.destroySoon()
}

/** Writes bytes past the HTTP layer and ends the connection. */
async function raw(reply: Transmission, bytes: string): Promise<void> {
  reply.endedHere = true
  reply.response.socket?.write(bytes)
  await close(reply)
}

/** Resolves when the socket has handed everything to the system. */
function flushed({ response: { socket } }: Transmission): Promise<void> {
  if (socket === null || socket.destroyed) return Promise.resolve()
  return new Promise(done => socket.write('', () => done()))
}

function textOf(frames: Iterable<Frame>): string {
  return Array.from(frames, frame => frame.text).join('')
}

interface Fault {
  readonly does: string
  /** What the number after the kind means and what it is when left out. */
  readonly number?: {
    readonly name: string
    readonly byDefault: number
    readonly min: number
    readonly max: number
  }
  run(reply: Transmission, number: number): Promise<void> | void
}

const MESSAGE = 'Simulated failure'
/** Statuses on which a provider says when to come back. */
const WITH_RETRY_AFTER = new Set([429, 503])
export const RETRY_AFTER_SECONDS = 2

const MS = { name: 'milliseconds', min: 1, max: 3_600_000 } as const

export const FAULTS = {
  status: {
    does: 'answers with the status, in the shape of the format; 429 and 503 carry Retry-After',
    number: { name: 'HTTP status', byDefault: 500, min: 400, max: 999 },
    run(reply, status) {
      const headers: Record<string, string> = WITH_RETRY_AFTER.has(status)
        ? { 'retry-after': String(RETRY_AFTER_SECONDS) }
        : {}
      reply.json(status, reply.speaker.failure({ status, message: MESSAGE }), headers)
    },
  },
  reset: { does: 'resets the connection instead of answering', run: reply => reset(reply) },
  close: { does: 'closes the connection instead of answering', run: reply => close(reply) },
  garbage: {
    does: 'sends bytes that are no HTTP',
    run: reply => raw(reply, '\u0001\u0002 this is no reply\r\n\r\n'),
  },
  'no-headers': { does: 'never answers', run: reply => hang(reply) },
  'slow-headers': {
    does: 'answers properly after a while',
    number: { ...MS, byDefault: 1000 },
    async run(reply, ms) {
      await reply.pause(ms)
      if (!reply.over) await reply.send()
    },
  },
  'slow-first-token': {
    does: 'sends the response headers at once and everything else after a while',
    number: { ...MS, byDefault: 1000 },
    async run(reply, ms) {
      reply.head()
      await reply.pause(ms)
      await finish(reply, framesOf(reply))
    },
  },
  'no-first-token': {
    does: 'sends the response headers and then nothing',
    run(reply) {
      reply.head()
      return hang(reply)
    },
  },
  stall: {
    does: 'falls silent in the middle',
    async run(reply) {
      await half(reply)
      await hang(reply)
    },
  },
  drip: {
    does: 'sends the reply byte by byte, at intervals; 0: one byte in each turn of the event loop',
    number: { ...MS, byDefault: 300, min: 0 },
    async run(reply, ms) {
      const body = bodyOf(reply)
      reply.head({ 'content-length': body.length })
      for (let at = 0; at < body.length && !reply.over; at++) {
        await reply.write(body.subarray(at, at + 1))
        await (ms === 0 ? setImmediate() : reply.pause(ms))
      }
      reply.response.end()
    },
  },
  'cut-reset': {
    does: 'resets the connection in the middle',
    async run(reply) {
      await half(reply)
      await reset(reply)
    },
  },
  'cut-close': {
    does: 'closes the connection in the middle of a chunked body',
    async run(reply) {
      await half(reply)
      await close(reply)
    },
  },
  'cut-length': {
    does: 'closes the connection before the Content-Length is reached',
    async run(reply) {
      await half(reply, { 'content-length': bodyOf(reply).length })
      await close(reply)
    },
  },
  'cut-end': {
    does: 'ends the body cleanly in the middle',
    async run(reply) {
      await half(reply)
      reply.response.end()
    },
  },
  'cut-bare': {
    does: 'closes in the middle of a body that only the closing delimits',
    run: reply => raw(reply, rawHead(reply, ['connection: close']) + textOf(untilToken(framesOf(reply)))),
  },
  'no-finish': {
    does: 'says everything but how it ended',
    async run(reply) {
      if (!reply.stream) reply.json(200, reply.speaker.unfinished(reply.speech))
      else {
        reply.head()
        await finish(reply, without(framesOf(reply), 'finish'))
      }
    },
  },
  'error-in-stream': {
    does: 'tells an error in the middle of the stream; a document is an error under 200',
    number: { name: 'status it would have had', byDefault: 529, min: 400, max: 599 },
    async run(reply, status) {
      if (reply.stream) await errorFrame(reply, untilToken(framesOf(reply)), status)
      else reply.json(200, reply.speaker.failure({ status, message: MESSAGE }))
    },
  },
  'error-first': {
    does: 'tells an error as the first event; a document is an error under 200',
    number: { name: 'status it would have had', byDefault: 529, min: 400, max: 599 },
    async run(reply, status) {
      if (reply.stream) await errorFrame(reply, [], status)
      else reply.json(200, reply.speaker.failure({ status, message: MESSAGE }))
    },
  },
  'error-under-200': {
    does: 'answers an error as JSON with status 200, also where a stream was asked for',
    number: { name: 'status it should have had', byDefault: 500, min: 400, max: 599 },
    run: (reply, status) => reply.json(200, reply.speaker.failure({ status, message: MESSAGE })),
  },
  html: {
    does: 'answers a page of HTML with status 200',
    run(reply) {
      reply.response.writeHead(200, { 'content-type': 'text/html' })
      reply.response.end('<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>')
    },
  },
  'json-instead-of-sse': {
    does: 'answers a stream request with one document',
    run: reply => reply.json(200, reply.speaker.whole(reply.speech)),
  },
  'bad-sse': {
    does: 'sends an event in the middle whose data is no JSON',
    async run(reply) {
      reply.head()
      await reply.pour([...untilToken(framesOf(reply)), { kind: 'token', text: 'data: {"oops": \n\n' }], 0)
      reply.response.end()
    },
  },
  'huge-frame': {
    does: 'sends one event (or document) of so many KiB',
    number: { name: 'KiB', byDefault: 2048, min: 1, max: 65_536 },
    async run(reply, kib) {
      reply.head()
      const filling = 'x'.repeat(kib * 1024)
      const frame = reply.stream ? `data: {"filling":"${filling}"}\n\n` : `{"filling":"${filling}"}`
      await reply.pour(
        [...(reply.stream ? untilToken(framesOf(reply)) : []), { kind: 'token', text: frame }],
        0,
      )
      reply.response.end()
    },
  },
  'empty-reply': {
    does: 'answers 200 with an empty body',
    run(reply) {
      reply.head({ 'content-length': 0 })
      reply.response.end()
    },
  },
  redirect: {
    does: 'redirects to an address that must never be asked',
    run(reply) {
      reply.response.writeHead(302, {
        location: 'http://169.254.169.254/latest/meta-data/',
        'content-length': 0,
      })
      reply.response.end()
    },
  },
  gzip: {
    does: 'compresses the reply without being asked',
    run(reply) {
      reply.head({ 'content-encoding': 'gzip' })
      reply.response.end(gzipSync(bodyOf(reply)))
    },
  },
  'both-lengths': {
    does: 'gives a Content-Length and chunks',
    run: reply =>
      raw(
        reply,
        `${rawHead(reply, ['content-length: 5', 'transfer-encoding: chunked'])}5\r\nhello\r\n0\r\n\r\n`,
      ),
  },
  'bad-chunk': {
    does: 'gives a chunk size that is no number, after the first token',
    run(reply) {
      const begun = textOf(untilToken(framesOf(reply)))
      const size = Buffer.byteLength(begun).toString(16)
      return raw(reply, `${rawHead(reply, ['transfer-encoding: chunked'])}${size}\r\n${begun}\r\nzz\r\n`)
    },
  },
  'big-headers': {
    does: 'answers with so many KiB of response headers',
    number: { name: 'KiB', byDefault: 20, min: 1, max: 1024 },
    run: (reply, kib) =>
      raw(reply, `${rawHead(reply, ['content-length: 0', `x-filling: ${'x'.repeat(kib * 1024)}`])}`),
  },
  'second-reply': {
    does: 'answers properly, then sends a second reply that nobody asked for',
    async run(reply) {
      const { socket } = reply.response
      const answered = new Promise(done => reply.response.once('finish', done))
      await reply.send()
      await answered
      socket?.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno')
    },
  },
} as const satisfies Readonly<Record<string, Fault>>

export type FaultKind = keyof typeof FAULTS

/** The proper reply of every fault. */
const REPLY = textReply('One two three four five six seven eight nine ten.')

/** Longer than a slow machine needs, shorter than a suite may take. */
const STATE_MS = 120_000

/**
 * A simulated provider with models that misbehave. Waiting for a state that does not come fails, and says what it
 * waited for.
 */
export function createFaultySim(options: SimOptions = {}): Sim {
  const sim = createSim({ ...options, faultOf })
  const until = sim.until.bind(sim)
  sim.until = async described => {
    let timer: NodeJS.Timeout | undefined
    const tooLong = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        const state = JSON.stringify(sim.state)
        reject(new Error(`the simulated provider never came to ${String(described)}; it is at ${state}`))
      }, STATE_MS)
    })
    try {
      return await Promise.race([until(described), tooLong])
    } finally {
      clearTimeout(timer)
    }
  }
  return sim
}

/** Rows of every fault in every format. */
export function simFaultModels(): SimModelRow[] {
  return SIM_FORMATS.flatMap(format => Object.keys(FAULTS).map(kind => simModel(`fail-${kind}`, format)))
}

/** The fault that `fail-…` names; null when there is no such fault or its number is out of range. */
function faultOf(model: string): SimFault | null {
  if (!model.startsWith('fail-')) return null
  const rest = model.slice('fail-'.length)
  // A kind may itself end in a number, so the whole name goes first.
  const match = Object.hasOwn(FAULTS, rest) ? null : /^(.+)-(\d{1,7})$/.exec(rest)
  const kind = match?.[1] ?? rest
  if (!Object.hasOwn(FAULTS, kind)) return null
  const fault: Fault = FAULTS[kind as FaultKind]
  const number = match === null ? (fault.number?.byDefault ?? 0) : Number(match[2])
  if (match !== null && fault.number === undefined) return null
  if (fault.number !== undefined && (number < fault.number.min || number > fault.number.max)) return null
  return { reply: REPLY, run: reply => fault.run(reply, number) }
}

/** Frames up to the first token, that one included. */
function* untilToken(frames: Iterable<Frame>): Generator<Frame> {
  for (const frame of frames) {
    yield frame
    if (frame.kind === 'token') return
  }
}

function* without(frames: Iterable<Frame>, kind: Frame['kind']): Generator<Frame> {
  for (const frame of frames) if (frame.kind !== kind) yield frame
}

async function half(reply: Transmission, headers: Readonly<Record<string, number>> = {}): Promise<void> {
  reply.head(headers)
  await reply.pour(untilToken(framesOf(reply)), 0)
}

async function finish(reply: Transmission, frames: Iterable<Frame>): Promise<void> {
  await reply.pour(frames, 0)
  reply.response.end()
}

async function errorFrame(reply: Transmission, before: Iterable<Frame>, status: number): Promise<void> {
  const frames = [...before]
  reply.head()
  const told = reply.speaker.failureFrame({ status, message: MESSAGE }, frames.length)
  await finish(reply, [...frames, { kind: 'finish', text: told }])
}

function rawHead(reply: Transmission, headers: readonly string[]): string {
  const type = reply.stream ? 'text/event-stream' : 'application/json'
  return `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\n${headers.join('\r\n')}\r\n\r\n`
}
