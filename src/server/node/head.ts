/** Request heads from `node:http`: the raw head, or the reason that its parser rejected it. Pure. */
import type { IncomingMessage } from 'node:http'
import { GatewayError } from '../../base/errors.ts'
import { REQUEST_HEAD_MAX_BYTES } from '../front.ts'
import type { RequestHead } from '../head-checks.ts'

const NON_ASCII = /[\x80-\xff]/

/** The parser also accepts older versions, which have different framing. */
export function headOf({ method = '', url = '', rawHeaders, httpVersion }: IncomingMessage): RequestHead {
  const queryAt = url.indexOf('?')
  const head = {
    method,
    path: queryAt === -1 ? url : url.slice(0, queryAt),
    query: queryAt === -1 ? '' : url.slice(queryAt + 1),
    headers: rawHeaders.map((text, index) => (index % 2 === 0 ? text.toLowerCase() : decode(text))),
  }
  if (httpVersion === '1.1') return head
  return { ...head, fault: new GatewayError('invalid_request', 'Only HTTP/1.1 is supported') }
}

/** The parser reads each byte as a character. */
function decode(value: string): string {
  return NON_ASCII.test(value) ? Buffer.from(value, 'latin1').toString() : value
}

/** The head of a request that the parser could not read; null for an error of the connection. */
export function unreadHead(error: Error): RequestHead | null {
  const code: unknown = Reflect.get(error, 'code')
  if (typeof code !== 'string' || !code.startsWith('HPE_')) return null
  const fault =
    code === 'HPE_HEADER_OVERFLOW'
      ? new GatewayError(
          'headers_too_large',
          `The request line and headers are longer than ${REQUEST_HEAD_MAX_BYTES} bytes`,
        )
      : new GatewayError('invalid_request', 'The request is not valid HTTP/1.1')
  return { method: '', path: '', query: '', headers: [], fault }
}
