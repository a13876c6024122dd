/** Request bodies in chunks: each operation that takes a body, with its key and without one, and the admin port. */
import { connect } from 'node:net'
import type { Operation } from '../../../src/api/operation.ts'
import { BYTES, type PiecesWorld, type Way } from './way.ts'

/** Names of the parameters in a path, and texts that none of their records has. */
function pathOf({ path, bases }: Operation): string {
  const place = path
    .replace('{hash}', 'f'.repeat(64))
    .replace('{ref}', 'nothing')
    .replace(/\{\w+\}/g, 'nobody')
  return `${bases?.[0] ?? '/v1'}${place}`
}

/** Bytes that are JSON, and that no operation accepts. */
const BODY = Buffer.alloc(BYTES, ' ')
BODY.write('[]', BYTES - 2)

/** The body as chunks of this length. */
function chunked(pieceBytes: number): Buffer {
  const chunks: (string | Buffer)[] = []
  for (let at = 0; at < BYTES; at += pieceBytes) {
    const piece = BODY.subarray(at, at + pieceBytes)
    chunks.push(`${piece.length.toString(16)}\r\n${piece.toString('latin1')}\r\n`)
  }
  return Buffer.from(`${chunks.join('')}0\r\n\r\n`, 'latin1')
}

const WIRE = new Map<number, Buffer>()

function wireOf(pieceBytes: number): Buffer {
  const wire = WIRE.get(pieceBytes) ?? chunked(pieceBytes)
  WIRE.set(pieceBytes, wire)
  return wire
}

interface ChunkedRequest {
  readonly port: number
  readonly method: string
  readonly path: string
  /** Null: the request has none. */
  readonly key: string | null
  readonly more?: string
}

/** Sends a request with the body in chunks; resolves with its answer when the connection has closed. */
export function sendChunked(
  { port, method, path, key, more = '' }: ChunkedRequest,
  pieceBytes: number,
): Promise<string> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    let answer = ''
    socket.setEncoding('latin1').on('data', text => {
      answer += text
    })
    // A refused client is cut off while it sends.
    socket.on('error', () => undefined)
    socket.once('close', () => resolve(answer))
    const authorization = key === null ? '' : `Authorization: Bearer ${key}\r\n`
    socket.write(
      `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\n` +
        `${authorization}${more}Transfer-Encoding: chunked\r\n\r\n`,
    )
    socket.write(wireOf(pieceBytes))
  })
}

function keyOf({ key }: Operation, { gateway, managementKey }: PiecesWorld): string {
  return key === 'management' ? managementKey : gateway.apiKey
}

/** The answer has this status. Or none came: a client that sends many short pieces on after it is cut off. */
function isAnsweredBy(status: RegExp): Way['isExpected'] {
  return (answer, pieceBytes) => status.test(answer) || (pieceBytes === 1 && answer === '')
}

function bodyWay(operation: Operation, hasKey: boolean): Way {
  return {
    name: `${operation.method} ${pathOf(operation)}, ${hasKey ? 'with its key' : 'without a key'}`,
    send: (world, pieceBytes) =>
      sendChunked(
        {
          port: world.gateway.port,
          method: operation.method,
          path: pathOf(operation),
          key: hasKey ? keyOf(operation, world) : null,
        },
        pieceBytes,
      ),
    isExpected: isAnsweredBy(hasKey ? /^HTTP\/1\.1 4\d\d / : /^HTTP\/1\.1 40[01] /),
  }
}

/**
 * One operation for each kind of body, with its key and without one.
 * @param operations the table of operations
 */
export function bodyWays(operations: readonly Operation[]): readonly Way[] {
  const kinds = new Map<string, Operation>()
  for (const operation of operations) {
    const { accept, bodyLimitBytes, key } = operation
    const kind = `${accept} ${bodyLimitBytes} ${key}`
    if (bodyLimitBytes > 0 && !kinds.has(kind)) kinds.set(kind, operation)
  }
  return [...kinds.values()].flatMap(operation => [true, false].map(hasKey => bodyWay(operation, hasKey)))
}

/** Requests that are refused for their head, whatever their body is. */
export const REFUSED_WAYS: readonly Way[] = (
  [
    ['an unknown path', 'POST', '/v1/nothing'],
    ['a method that the path does not accept', 'PATCH', '/v1/responses'],
    ['an invalid path', 'POST', '/v1//responses'],
  ] as const
).map(([name, method, path]) => ({
  name: `a body to ${name}`,
  send: ({ gateway }, pieceBytes) =>
    sendChunked({ port: gateway.port, method, path, key: gateway.apiKey }, pieceBytes),
  isExpected: isAnsweredBy(/^HTTP\/1\.1 4\d\d /),
}))

/** The bodies that the admin port reads. */
export const ADMIN_WAYS: readonly Way[] = (
  [
    ['POST', '/console/data/api/keys', /^HTTP\/1\.1 40[03] /],
    ['POST', '/healthz', /^HTTP\/1\.1 405 /],
  ] as const
).map(([method, path, status]) => ({
  name: `admin port, ${method} ${path}`,
  send: ({ gateway, managementKey }, pieceBytes) => {
    const { port, origin } = new URL(gateway.adminUrl)
    return sendChunked(
      {
        port: Number(port),
        method,
        path,
        key: managementKey,
        more: `Connection: close\r\nOrigin: ${origin}\r\nSec-Fetch-Site: same-origin\r\n`,
      },
      pieceBytes,
    )
  },
  isExpected: isAnsweredBy(status),
}))
