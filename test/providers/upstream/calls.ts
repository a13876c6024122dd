/** What the tests of the transports share: one whose clock stands still, and a handler that takes notes. */
import type { Test } from 'tap'
import type { GatewayError } from '../../../src/base/errors.ts'
import type { TransportName } from '../../../src/protocol/provider.ts'
import {
  createDirectTransport,
  type DirectTransportOptions,
} from '../../../src/providers/upstream/client/direct-transport.ts'
import type {
  Transport,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
} from '../../../src/providers/upstream/transport.ts'
import type { UndiciRoute } from '../../../src/providers/upstream/undici/undici-pools.ts'
import { createUndiciTransport } from '../../../src/providers/upstream/undici/undici-transport.ts'
import { type Answering, FaultServer } from '../../support/fault-server.ts'
import { awaited } from '../../support/patience.ts'
import { TestClock } from '../../support/test-clock.ts'

export const HEADERS_MS = 120_000
export const IDLE_MS = 60_000

/** Writes down what it is told; runs of data count once. */
export class Notes implements UpstreamHandler {
  readonly seen: string[] = []
  readonly ended: Promise<void>
  readonly head: Promise<UpstreamHead>
  readonly data: Promise<void>
  error: GatewayError | null = null
  bytes = Buffer.alloc(0)
  #ended: () => void = () => undefined
  #head: (head: UpstreamHead) => void = () => undefined
  #data: () => void = () => undefined

  constructor() {
    this.ended = new Promise(resolve => (this.#ended = resolve))
    this.head = new Promise(resolve => (this.#head = resolve))
    this.data = new Promise(resolve => (this.#data = resolve))
  }

  onHead(head: UpstreamHead): void {
    this.seen.push(`head ${head.status}`)
    this.#head(head)
  }

  onData(chunk: Buffer): void {
    if (this.seen.at(-1) !== 'data') this.seen.push('data')
    if (this.bytes.length < 1024) this.bytes = Buffer.concat([this.bytes, chunk])
    this.#data()
  }

  onEnd(): void {
    this.seen.push('end')
    this.#ended()
  }

  onError(error: GatewayError): void {
    this.seen.push(error.code)
    this.error = error
    this.#ended()
  }
}

/** Turns of the event loop, each with a full pass through poll. */
export async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise(resolve => setImmediate(resolve))
}

export interface SetUpOptions extends Partial<DirectTransportOptions> {
  /** Of the transport undici. */
  readonly route?: Partial<UndiciRoute>
}

/** A transport on a clock that stands still. */
export function setUp(t: Test, { route, ...options }: SetUpOptions = {}, name: TransportName = 'direct') {
  const clock = new TestClock()
  const faults: unknown[] = []
  const deps = {
    clock,
    log: { fault: (_component: string, _message: string, error: unknown) => faults.push(error) },
    ...options,
  }
  const client = name === 'direct' ? createDirectTransport(deps) : createUndici(deps, route)
  t.teardown(() => client.close())
  const request = (url: URL, more: Partial<UpstreamRequest> = {}): UpstreamRequest => ({
    url,
    headers: {},
    body: '{"model":"m"}',
    headersTimeoutMs: HEADERS_MS,
    idleTimeoutMs: IDLE_MS,
    ...more,
  })
  const ask = async (url: URL, more: Partial<UpstreamRequest> = {}): Promise<Notes> => {
    const notes = new Notes()
    client.start(request(url, more), notes)
    await awaited(`the end of a call to ${url.pathname}`, notes.ended)
    return notes
  }
  return { clock, client, faults, request, ask }
}

function createUndici({ ca, ...deps }: DirectTransportOptions, route: Partial<UndiciRoute> = {}): Transport {
  const tls = ca === undefined ? null : { ca, cert: null, key: null }
  return createUndiciTransport({ ...deps, route: { proxy: null, http2: false, tls, ...route } })
}

export async function serve(t: Test, answer: (answering: Answering) => void): Promise<FaultServer> {
  const server = await FaultServer.start(answer)
  t.teardown(() => server.close())
  return server
}

/** How a call ends in `Notes.seen` when it fails, and when it is late. */
export const GONE = 'provider_unavailable'
export const LATE = 'upstream_timeout'
