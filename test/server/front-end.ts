/** The real front end on a free port, with what it was told and what it told kept for a test to look at. */
import type { Test } from 'tap'
import type { Handler, Method, OpenHandler, Operation, RawHandler } from '../../src/api/operation.ts'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { GatewayError } from '../../src/base/errors.ts'
import type { ExchangeLine, Log } from '../../src/base/log/log.ts'
import { createMetrics, type Metrics } from '../../src/base/metrics/metrics.ts'
import type { KeyKind, KeyRecord } from '../../src/protocol/management/keys.ts'
import { loadFront } from '../../src/server/http-libraries.ts'
import type { Authenticator } from '../../src/server/http-request.ts'
import { HttpServer, type ServerOptions } from '../../src/server/server.ts'
import { someKey } from '../storage/records.ts'
import { responsesDialect } from '../support/dialects.ts'
import { certificateFiles, OVER_TLS } from '../support/over-tls.ts'
import { TEST_FRONT } from '../support/test-front.ts'

export const INFERENCE = 'Bearer sk-gw-v1-test'
export const MANAGEMENT = 'Bearer sk-gw-mgmt-test'

export function keyRecord(kind: KeyKind): KeyRecord {
  return someKey({
    hash: (kind === 'inference' ? 'a' : 'b').repeat(64),
    kind,
    name: kind,
    label: 'sk-gw-...',
    organizationId: 'org_default',
    workspaceId: 'ws_default',
  })
}

/** The front that serves the tests; a suite may choose. */
export const FRONT = await loadFront(TEST_FRONT)

const SILENT: Log = {
  exchange: () => undefined,
  listening: () => undefined,
  notice: () => undefined,
  fault: () => undefined,
}

/** Two keys; one is answered at once, as from a cache, the other after a turn, as from the store. */
export const twoKeys: Authenticator = {
  authenticate(authorization) {
    if (authorization === INFERENCE) return keyRecord('inference')
    if (authorization === MANAGEMENT) {
      return new Promise(resolve => setImmediate(() => resolve(keyRecord('management'))))
    }
    throw new GatewayError(
      'authentication',
      authorization === undefined ? 'Missing Authentication header' : 'Invalid credentials',
    )
  },
}

/** A row of the table of operations with what matters to the server. */
export interface Row {
  readonly method: Method
  readonly path: string
  readonly freeParam?: string
  readonly bodyLimitBytes: number
  readonly key: 'inference' | 'management' | 'any'
  readonly handler: Handler
}

const DESCRIPTION = { id: 'test', summary: 'Test' }

/** Inference rows speak the Responses dialect. */
export function operation(row: Row): Operation {
  const { key } = row
  const whole = {
    ...DESCRIPTION,
    ...row,
    accept: row.bodyLimitBytes > 0 ? ('json' as const) : ('none' as const),
    dialect: key === 'inference' ? responsesDialect : null,
  }
  return key === 'management' ? { ...whole, key, role: 'viewer' } : { ...whole, key }
}

/** A row whose handler gets the body as it arrives. */
export function rawOperation(path: string, bodyLimitBytes: number, handler: RawHandler): Operation {
  return {
    ...DESCRIPTION,
    method: 'POST',
    path,
    bodyLimitBytes,
    key: 'inference',
    accept: 'raw',
    media: 'any',
    dialect: null,
    handler,
  }
}

/** A row that asks for no key. */
export function openOperation(path: string, handler: OpenHandler): Operation {
  return {
    ...DESCRIPTION,
    method: 'GET',
    path,
    bodyLimitBytes: 0,
    key: 'none',
    accept: 'none',
    dialect: null,
    handler,
  }
}

export interface FrontEnd {
  readonly server: HttpServer
  readonly port: number
  readonly metrics: Metrics
  readonly lines: ExchangeLine[]
  readonly faults: { readonly message: string; readonly error: unknown }[]
  /** Waits until this many log lines were written. */
  logged(count: number): Promise<void>
}

/** The options of a front end with these rows, without limits that a test would meet. */
export function serverOptions(rows: readonly Row[], overrides: Partial<ServerOptions> = {}): ServerOptions {
  return {
    front: FRONT.create,
    operations: rows.map(operation),
    keys: twoKeys,
    rate: null,
    maxConnections: 1000,
    socketsPerKey: 64,
    connectionsPerAddress: 0,
    trustedProxies: [],
    tls: OVER_TLS ? certificateFiles() : null,
    openPerKey: 5000,
    waitingPerKey: 0,
    waitMs: 10_000,
    bytesInFlightPerKey: 536_870_912,
    uploadMs: 300_000,
    requestMs: 600_000,
    allowChunked: true,
    closeAfterReply: false,
    maxInFlight: 1000,
    maxLagMs: 100,
    maxBufferedBytes: 536_870_912,
    clock: systemClock,
    log: SILENT,
    metrics: createMetrics(),
    ...overrides,
  }
}

export async function startFrontEnd(
  t: Test,
  rows: readonly Row[],
  overrides: Partial<ServerOptions> = {},
): Promise<FrontEnd> {
  const lines: ExchangeLine[] = []
  const faults: FrontEnd['faults'] = []
  const waiting: (() => void)[] = []
  const log: Log = {
    exchange: line => {
      lines.push(line)
      for (const wake of waiting.splice(0)) wake()
    },
    listening: () => undefined,
    notice: () => undefined,
    fault: (_, message, error) => faults.push({ message, error }),
  }
  const metrics = overrides.metrics ?? createMetrics()
  const clock: Clock = overrides.clock ?? systemClock
  const server = new HttpServer(serverOptions(rows, { log, ...overrides, clock, metrics }))
  t.teardown(() => server.close())
  const port = await server.listen('127.0.0.1', 0)
  return {
    server,
    port,
    metrics,
    lines,
    faults,
    async logged(count) {
      while (lines.length < count) await new Promise<void>(resolve => waiting.push(resolve))
    },
  }
}
