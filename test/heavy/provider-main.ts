/**
 * Providers for load tests, in a separate process so that their work and memory do not count as the gateway's: the
 * simulated provider, and a second one whose tokens each carry the time at which they were sent. Models of the second:
 * `flow-<tokens>-<ms>` sends a token every so many milliseconds; `flood-<MiB>-<bytes>` sends that much text in tokens
 * of that size, as fast as it is read. Its `GET /state` returns counts. Started by provider-process.ts.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fieldsOf, READERS, type SimFormat } from '../../src/apps/simulator/ask.ts'
import type { Frame, Pieces } from '../../src/apps/simulator/reply.ts'
import { SPEAKERS } from '../../src/apps/simulator/simulator.ts'
import { createFaultySim } from '../support/sim-faults.ts'

const BATCH_CHARACTERS = 16 * 1024
const MIB = 1024 * 1024

const state = { requests: 0, open: 0, closedEarly: 0, sentBytes: 0, longestWaitMs: 0 }

/** By format and model. */
const floods = new Map<string, Flood>()
/** When a reader that is flooded last took something. */
const takenAtMs = new WeakMap<ServerResponse, number>()

const sim = createFaultySim({ keepRequests: 0 })
const server = createServer((request, response) => {
  request.on('error', () => response.destroy())
  response.on('error', () => response.destroy())
  if (request.method === 'GET') {
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ ...state, sim: sim.state }))
    return
  }
  void serve(request, response)
})
server.requestTimeout = 0
server.headersTimeout = 0
server.keepAliveTimeout = 60_000
server.listen(0, '127.0.0.1')
await once(server, 'listening')
const { port } = server.address() as AddressInfo
const { url } = await sim.listen()
process.stdout.write(`${JSON.stringify({ simUrl: url, stampUrl: `http://127.0.0.1:${port}` })}\n`)
// The process that started this one has gone.
process.stdin.on('end', () => process.exit(0)).resume()

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
  const body = fieldsOf(JSON.parse(Buffer.concat(chunks).toString()))
  const format: SimFormat = request.url?.endsWith('/chat/completions') ? 'openai-chat' : 'openai-responses'
  const ask = READERS[format](body, { model: '', stream: true })
  const [kind, first, second] = ask.model.split('-')
  const flow = kind === 'flow'
  const pieces = flow ? stamps(Number(first)) : blocks(Number(first), Number(second))
  const frames = SPEAKERS[format].frames({
    ask,
    reply: { parts: [{ kind: 'text', pieces }], finish: 'stop', paceMs: 0 },
    tally: { input: ask.inputTokens, output: pieces.tokens, reasoning: 0 },
    id: String(++state.requests),
    createdSeconds: 1,
  })
  state.open++
  response.on('close', () => {
    state.open--
    if (response.writableFinished) return
    state.closedEarly++
    state.longestWaitMs = Math.max(
      state.longestWaitMs,
      performance.now() - (takenAtMs.get(response) ?? Infinity),
    )
  })
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.flushHeaders()
  if (flow) pace(response, frames, Number(second))
  else {
    const key = `${format} ${ask.model}`
    const flood = floods.get(key) ?? new Flood(frames)
    floods.set(key, flood)
    pour(response, flood)
  }
}

/** Tokens that say when they were made, on the clock that all processes of the machine share, in microseconds. */
function stamps(tokens: number): Pieces {
  const made: string[] = []
  return {
    tokens,
    *each() {
      for (let at = 0; at < tokens; at++) {
        if (at === made.length) made.push(`${process.hrtime.bigint() / 1000n} `)
        yield made[at] ?? ''
      }
    },
  }
}

function blocks(mebibytes: number, bytes: number): Pieces {
  const block = 'x'.repeat(bytes)
  const tokens = Math.ceil((mebibytes * MIB) / bytes)
  return {
    tokens,
    *each() {
      for (let at = 0; at < tokens; at++) yield block
    },
  }
}

/** Sends each token when it is due, however long the last one took; what surrounds tokens goes with the next. */
function pace(response: ServerResponse, frames: Iterable<Frame>, ms: number): void {
  const iterator = frames[Symbol.iterator]()
  const startMs = performance.now()
  let sent = 0
  const next = (): void => {
    if (response.destroyed) return
    let batch = ''
    for (let step = iterator.next(); ; step = iterator.next()) {
      if (step.done === true) {
        send(response, batch)
        response.end()
        return
      }
      batch += step.value.text
      if (step.value.kind === 'token') break
    }
    send(response, batch)
    sent++
    setTimeout(next, Math.max(0, startMs + sent * ms - performance.now()))
  }
  next()
}

/**
 * What a flood sends, in blocks that are made once for all readers of a model: making tokens costs more than
 * forwarding them, and the provider must be the faster one.
 */
class Flood {
  readonly #frames: Iterator<Frame>
  readonly #blocks: Buffer[] = []
  #whole = false

  constructor(frames: Iterable<Frame>) {
    this.#frames = frames[Symbol.iterator]()
  }

  /** Null after the last one. */
  block(at: number): Buffer | null {
    while (this.#blocks.length <= at && !this.#whole) {
      let batch = ''
      while (batch.length < BATCH_CHARACTERS && !this.#whole) {
        const step = this.#frames.next()
        this.#whole = step.done === true
        if (step.done !== true) batch += step.value.text
      }
      this.#blocks.push(Buffer.from(batch))
    }
    return this.#blocks[at] ?? null
  }
}

/** Sends all of it as fast as it is taken. */
function pour(response: ServerResponse, flood: Flood): void {
  let at = 0
  const more = (): void => {
    while (!response.destroyed) {
      const block = flood.block(at++)
      if (block === null) {
        response.end()
        return
      }
      takenAtMs.set(response, performance.now())
      if (!send(response, block)) {
        response.once('drain', more)
        return
      }
    }
  }
  more()
}

function send(response: ServerResponse, bytes: string | Buffer): boolean {
  state.sentBytes += bytes.length
  return bytes.length === 0 || response.write(bytes)
}
