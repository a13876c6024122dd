/** How the end of a request is counted and logged: whose doing it was. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t from 'tap'
import type { Handler } from '../../src/api/operation.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { secured } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, type Row as OperationRow, startFrontEnd } from './front-end.ts'

const REQUEST_MS = 60_000
const BEGUN = 'data: begun\n\n'

const handlers: Readonly<Record<string, Handler>> = {
  fine: (_request, reply) => reply.json(200, {}),
  refusing: () => {
    throw new GatewayError('invalid_prompt', 'no')
  },
  failing: () => {
    throw new GatewayError('provider_unavailable', 'away')
  },
  late: () => {
    throw new GatewayError('deadline_exceeded', 'late')
  },
  unforeseen: () => {
    throw new TypeError('bug')
  },
  'failing within a stream': (_request, reply) => {
    reply.openStream(BEGUN)
    reply.error = new GatewayError('provider_unavailable', 'away')
    reply.endStream('data: {"error":1}\n\n')
  },
  'breaking off a stream': (_request, reply) => {
    reply.openStream(BEGUN)
    throw new TypeError('bug')
  },
  'hanging within a stream': (_request, reply) => {
    reply.openStream(BEGUN)
    return new Promise(() => undefined)
  },
  'streaming until the client leaves': (request, reply) => {
    reply.openStream(BEGUN)
    return new Promise((_resolve, reject) => {
      request.context.signal.addEventListener('abort', () => reject(request.context.signal.reason))
    })
  },
  'failing after the client has left': (request, reply) => {
    reply.openStream(BEGUN)
    return new Promise(resolve => {
      request.context.signal.addEventListener('abort', () => {
        reply.error = new GatewayError('provider_unavailable', 'away')
        resolve()
      })
    })
  },
}

interface Row {
  readonly handler: keyof typeof handlers
  readonly status: number
  readonly outcome: string
  /** What happens once the answer has begun. */
  readonly next?: 'deadline' | 'client leaves'
}

const ROWS: readonly Row[] = [
  { handler: 'fine', status: 200, outcome: 'completed' },
  { handler: 'refusing', status: 400, outcome: 'refused' },
  { handler: 'failing', status: 502, outcome: 'failed' },
  { handler: 'late', status: 408, outcome: 'failed' },
  { handler: 'unforeseen', status: 500, outcome: 'failed' },
  { handler: 'failing within a stream', status: 200, outcome: 'failed' },
  { handler: 'breaking off a stream', status: 200, outcome: 'failed' },
  { handler: 'hanging within a stream', status: 200, outcome: 'failed', next: 'deadline' },
  { handler: 'hanging within a stream', status: 499, outcome: 'aborted', next: 'client leaves' },
  { handler: 'streaming until the client leaves', status: 499, outcome: 'aborted', next: 'client leaves' },
  { handler: 'failing after the client has left', status: 499, outcome: 'aborted', next: 'client leaves' },
]

/** Resolves once this much of the answer was read. */
async function until(socket: Socket, text: string): Promise<void> {
  let read = ''
  socket.setEncoding('latin1')
  for await (const more of socket.iterator({ destroyOnReturn: false })) {
    read += String(more)
    if (read.includes(text)) return
  }
}

for (const { handler, status, outcome, next } of ROWS) {
  t.test(`${handler}${next === undefined ? '' : `, then ${next}`}: ${outcome}`, async t => {
    const clock = new TestClock()
    const route: OperationRow = {
      method: 'GET',
      path: '/it',
      bodyLimitBytes: 0,
      key: 'inference',
      handler: handlers[handler] ?? (() => undefined),
    }
    const front = await startFrontEnd(t, [route], { clock, requestMs: REQUEST_MS })
    const tcp = connect(front.port, '127.0.0.1')
    const socket = secured(tcp)
    t.teardown(() => socket.destroy())
    socket.on('error', () => undefined)
    await once(tcp, 'connect')
    socket.write(`GET /v1/it HTTP/1.1\r\nHost: x\r\nAuthorization: ${INFERENCE}\r\n\r\n`)
    if (next !== undefined) await until(socket, BEGUN)
    if (next === 'client leaves') socket.destroy()
    if (next === 'deadline') {
      clock.advance(REQUEST_MS)
      clock.advance(1_000)
    }
    if (handler === 'hanging within a stream' && next === 'client leaves') {
      // A handler that never ends is ended for it.
      await waitFor(() => front.server.openStreams === 0)
      clock.advance(REQUEST_MS)
      clock.advance(1_000)
    }
    await front.logged(1)
    t.match(front.lines[0], { status, outcome })
    const [counted] = (await front.metrics.requests.get()).values.filter(({ value }) => value > 0)
    t.match(counted, { value: 1, labels: { status_class: `${Math.floor(status / 100)}xx`, outcome } })
  })
}

async function waitFor(done: () => boolean): Promise<void> {
  while (!done()) await new Promise(resolve => setImmediate(resolve))
}
