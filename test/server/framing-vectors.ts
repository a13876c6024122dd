/** Requests that two parsers might read differently, and what may come back for each. */
import { INFERENCE } from './front-end.ts'

export interface Vector {
  readonly name: string
  readonly bytes: string
  /** Statuses that the first answer may have; 0: no answer, the connection is closed or held. */
  readonly statuses: readonly number[]
  /** How many requests with the canary header may be handled, at most. */
  readonly handled: 0 | 1
  /** The connection may stay open, because nothing about it is in doubt. */
  readonly mayStayOpen: boolean
  /** Well-formed requests back to back: in segments of their own they are simply served in turn. */
  readonly pipelines: boolean
}

/** What an attacker hides behind the first request. It has no canary header. */
export const SMUGGLED = `GET /v1/smuggled HTTP/1.1\r\nHost: gateway.test\r\nAuthorization: ${INFERENCE}\r\n\r\n`
const HEAD = `Host: gateway.test\r\nAuthorization: ${INFERENCE}\r\nX-Canary: 1\r\n`
const JSON_TYPE = 'Content-Type: application/json\r\n'

function post(headers: string, body = '', line = 'POST /v1/echo HTTP/1.1'): string {
  return `${line}\r\n${HEAD}${JSON_TYPE}${headers}\r\n${body}`
}

function get(path: string, headers = '', method = 'GET'): string {
  return `${method} ${path} HTTP/1.1\r\n${HEAD}${headers}\r\n`
}

function refused(name: string, bytes: string, ...statuses: number[]): Vector {
  return { name, bytes, statuses, handled: 0, mayStayOpen: false, pipelines: false }
}

function served(name: string, bytes: string, ...statuses: number[]): Vector {
  return { name, bytes, statuses, handled: 1, mayStayOpen: false, pipelines: false }
}

function pipelined(name: string, bytes: string): Vector {
  return { name, bytes, statuses: [0], handled: 0, mayStayOpen: false, pipelines: true }
}

const CODINGS = [
  '',
  'identity',
  'gzip',
  'gzip, chunked',
  'chunked, gzip',
  'chunked, chunked',
  'Chunked',
  'CHUNKED',
  'xchunked',
  'chunkedx',
  'cow',
  '"chunked"',
  'chunked;q=1',
  ',chunked',
  'chunked,',
  'chunked, identity',
  'x chunked',
  'chun ked',
  'deflate',
  'trailers',
  'chunked\xa0x',
]
const LENGTHS = [
  '',
  '-1',
  '+2',
  '0x2',
  '2,2',
  '2, 2',
  '2.0',
  '2e0',
  '2;',
  '02',
  '00',
  '0000000002',
  '1_0',
  '"2"',
  'two',
  '2 2',
  '\xb2',
  '99999999999',
  '18446744073709551618',
  '999999999999999999999999999999',
]
const TARGETS_REFUSED_BY_PARSER = [
  'POST /v1/echo HTTP/1.0',
  'POST /v1/echo HTTP/1.2',
  'POST /v1/echo HTTP/2.0',
  'POST /v1/echo HTTP/0.9',
  'POST /v1/echo http/1.1',
  'POST /v1/echo HTTP/11',
  'POST  /v1/echo HTTP/1.1',
  'POST\t/v1/echo HTTP/1.1',
  'POST /v1/echo  HTTP/1.1',
  'POST /v1/ec ho HTTP/1.1',
  'POST http://gateway.test/v1/echo HTTP/1.1',
  'POST * HTTP/1.1',
  'CONNECT gateway.test:443 HTTP/1.1',
  'POST /v1/echo',
  'POST v1/echo HTTP/1.1',
  'PRI * HTTP/2.0',
]
const PATHS = [
  '//v1/echo',
  '/v1//echo',
  '/v1/echo//',
  '/v1/../v1/echo',
  '/v1/./echo',
  '/v1/echo/..',
  '/v1/echo/.',
  '/v1/%2e%2e/v1/echo',
  '/v1/%2E/echo',
  '/v1%2fecho',
  '/v1%2Fecho',
  '/v1%5cecho',
  '/v1/echo%00',
  '/v1/echo%',
  '/v1/echo%z',
  '/v1/echo%zz',
  '/v1/echo%4',
  '/v1/echo#x',
  '/v1/ech\xf6',
  '/v1/echo\x7f',
  '/v1/<echo>',
  '/v1/"echo"',
  '/v1/{echo}',
  '/v1/ec|ho',
  '/v1/ec^ho',
  '/v1/ec`ho',
  '/v1\\echo',
  `/v1/${'a'.repeat(2100)}`,
]
const QUERIES = ['?a=<b>', '?a="b"', '?a=b#c', '?%zz', '?a=%', '?a=\xff', '?a=b|c', `?a=${'b'.repeat(4200)}`]
const METHODS = [
  'get',
  'post',
  'Post',
  'G@T!',
  'GE T',
  'XPOST',
  'POSTX',
  'xxget:',
  'POST:',
  'TRACE',
  'PROPFIND',
  'PURGE',
  'M-SEARCH',
  'BREW',
  'A'.repeat(3000),
  '"POST"',
]
const HOSTS = [
  '',
  ' ',
  'a b',
  'a/b',
  'a@b',
  'user:pass@gateway.test',
  'a#b',
  'a?b',
  'gateway.test:99999',
  'gateway.test:',
  'gateway.test:x',
  'gateway.test:-1',
  '[::1',
  '::1',
  'gateway.test, other.test',
  '\xe9.test',
  '<gateway>',
  'gateway.test:80:80',
]
const BROKEN_HEADERS: readonly (readonly [string, string])[] = [
  ['space before the colon', 'Content-Length : 2\r\n'],
  ['tab before the colon', 'Content-Length\t: 2\r\n'],
  ['leading space', ' Content-Length: 2\r\n'],
  ['folded line', 'X-A: b\r\n c\r\nContent-Length: 2\r\n'],
  ['folded line with a tab', 'X-A: b\r\n\tc\r\nContent-Length: 2\r\n'],
  ['space in a name', 'X A: b\r\nContent-Length: 2\r\n'],
  ['NUL in a name', 'X\x00A: b\r\nContent-Length: 2\r\n'],
  ['control in a name', 'X\x01A: b\r\nContent-Length: 2\r\n'],
  ['parenthesis in a name', 'X(A: b\r\nContent-Length: 2\r\n'],
  ['comma in a name', 'X,A: b\r\nContent-Length: 2\r\n'],
  ['slash in a name', 'X/A: b\r\nContent-Length: 2\r\n'],
  ['bracket in a name', 'X[A: b\r\nContent-Length: 2\r\n'],
  ['brace in a name', 'X{A: b\r\nContent-Length: 2\r\n'],
  ['no colon', 'Content-Length 2\r\n'],
  ['bare LF after a value', 'X-A: b\nContent-Length: 2\r\n'],
  ['bare CR in a value', 'X-A: b\rc\r\nContent-Length: 2\r\n'],
  ['bare LF in a value', 'X-A: b\nc: d\r\nContent-Length: 2\r\n'],
  ['NUL in a value', 'X-A: b\x00c\r\nContent-Length: 2\r\n'],
  ['control in a value', 'X-A: b\x01c\r\nContent-Length: 2\r\n'],
  ['CR CR LF', 'X-A: b\r\r\nContent-Length: 2\r\n'],
  ['high byte in a name', 'X\xe9: b\r\nContent-Length: 2\r\n'],
]
const CHUNKS: readonly (readonly [string, string])[] = [
  ['digit beyond f: g', 'g\r\n{}'],
  ['digit beyond f: G', 'G\r\n{}'],
  ['at sign', '@\r\n{}'],
  ['colon', ':\r\n{}'],
  ['semicolon alone', ';\r\n{}'],
  ['question mark', '?\r\n{}'],
  ['extension', '2;a=b\r\n{}\r\n0\r\n\r\n'],
  ['quoted extension', '2;a="b"\r\n{}\r\n0\r\n\r\n'],
  ['leading space', ' 2\r\n{}\r\n0\r\n\r\n'],
  ['trailing space', '2 \r\n{}\r\n0\r\n\r\n'],
  ['empty size line', '\r\n{}\r\n0\r\n\r\n'],
  ['bare LF after the size', '2\n{}\r\n0\r\n\r\n'],
  ['bare CR after the size', '2\r{}\r\n0\r\n\r\n'],
  ['wrong terminator', '2\r\n{}XX0\r\n\r\n'],
  ['bare LF terminator', '2\r\n{}\n0\r\n\r\n'],
  ['no terminator', '2\r\n{}0\r\n\r\n'],
  ['overflow of 16 digits', 'FFFFFFFFFFFFFFFF\r\n{}'],
  ['overflow of 17 digits', 'FFFFFFFFFFFFFFFFF\r\n{}'],
  ['hex prefix', '0x2\r\n{}\r\n0\r\n\r\n'],
  ['plus', '+2\r\n{}\r\n0\r\n\r\n'],
  ['minus', '-2\r\n{}\r\n0\r\n\r\n'],
  ['underscore', '0_2\r\n{}\r\n0\r\n\r\n'],
  ['leading zeros', '0000002\r\n{}\r\n0\r\n\r\n'],
  ['last chunk of many zeros', '2\r\n{}\r\n0000\r\n\r\n'],
  ['last chunk with an extension', '2\r\n{}\r\n0;x\r\n\r\n'],
  ['last chunk with a bare LF', '2\r\n{}\r\n0\n\n'],
]
const TRAILERS: readonly (readonly [string, string])[] = [
  ['an honest trailer', 'X-Trailer: a\r\n\r\n'],
  ['a trailer that reads as a request', 'xxget: /v1/smuggled HTTP/1.1\r\nHost: gateway.test\r\n\r\n'],
  ['a trailer whose first two bytes hide a request', `a:${SMUGGLED}`],
  ['two bytes before a request', `\r\n${SMUGGLED}`],
  ['a request in place of the last line end', SMUGGLED],
  ['a trailer named as a method', 'GET: /v1/smuggled HTTP/1.1\r\nHost: gateway.test\r\n\r\n'],
  ['a Content-Length trailer', 'Content-Length: 4\r\n\r\n'],
]
const TYPES = [
  'text/plain',
  'text/json',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  'application/jsonx',
  'application/json; charset=utf-16',
  'application/json; charset=latin1',
  'application/json, text/plain',
  'json',
  '*/*',
  'application/xml',
  'application/json; q=1; x',
]
/** Codings that the gateway reads; the bodies here are not in them. */
const DECODED: ReadonlySet<string> = new Set(['gzip', 'br', 'deflate', 'zstd'])
const ENCODINGS = ['gzip', 'br', 'deflate', 'zstd', 'x-gzip', 'gzip, identity', 'identity, gzip', '']
const EXPECTATIONS = ['200-ok', '100-continue, 100-continue', 'nothing', '']

export const VECTORS: readonly Vector[] = [
  ...CODINGS.map(coding =>
    refused(
      `Transfer-Encoding: ${coding}`,
      post(`Transfer-Encoding: ${coding}\r\n`, `0\r\n\r\n${SMUGGLED}`),
      400,
    ),
  ),
  ...['chunked', 'identity', 'gzip', '', 'Chunked'].flatMap(second => [
    refused(
      `Transfer-Encoding twice, then ${second}`,
      post(`Transfer-Encoding: chunked\r\nTransfer-Encoding: ${second}\r\n`, `0\r\n\r\n${SMUGGLED}`),
      400,
    ),
    refused(
      `Transfer-Encoding twice, first ${second}`,
      post(`Transfer-Encoding: ${second}\r\nTransfer-Encoding: chunked\r\n`, `0\r\n\r\n${SMUGGLED}`),
      400,
    ),
  ]),
  refused(
    'Content-Length, then Transfer-Encoding',
    post('Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`),
    400,
  ),
  refused(
    'Transfer-Encoding, then Content-Length',
    post('Transfer-Encoding: chunked\r\nContent-Length: 5\r\n', `0\r\n\r\n${SMUGGLED}`),
    400,
  ),
  refused(
    'Content-Length 0 and Transfer-Encoding',
    post('Content-Length: 0\r\nTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`),
    400,
  ),
  refused(
    'empty Content-Length and Transfer-Encoding',
    post('Content-Length:\r\nTransfer-Encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`),
    400,
  ),
  refused(
    'empty Transfer-Encoding and Content-Length',
    post('Transfer-Encoding:\r\nContent-Length: 2\r\n', `{}${SMUGGLED}`),
    400,
  ),
  refused(
    'Transfer-Encoding on GET',
    `${get('/v1/echo', 'Transfer-Encoding: chunked\r\n')}0\r\n\r\n${SMUGGLED}`,
    400,
  ),
  refused(
    'Transfer-Encoding on DELETE',
    `${get('/v1/echo', 'Transfer-Encoding: chunked\r\n', 'DELETE')}0\r\n\r\n${SMUGGLED}`,
    400,
  ),
  ...LENGTHS.map(length =>
    refused(
      `Content-Length: ${length}`,
      post(`Content-Length: ${length}\r\n`, `{}${SMUGGLED}`),
      400,
      411,
      413,
    ),
  ),
  ...[
    ['0', '85'],
    ['2', '0'],
    ['2', '2'],
    ['0', '0'],
    ['', '2'],
    ['2', ''],
  ].map(([first, second]) =>
    refused(
      `Content-Length ${first} and ${second}`,
      post(`Content-Length: ${first}\r\nContent-Length: ${second}\r\n`, `{}${SMUGGLED}`),
      400,
    ),
  ),
  refused('Content-Length over the limit of the route', post('Content-Length: 1025\r\n', '{}'), 413),
  refused('Content-Length of ten digits', post('Content-Length: 9999999999\r\n', '{}'), 413),
  refused('no Content-Length on POST', post('', SMUGGLED), 411),
  refused('no Content-Length on PATCH', post('', SMUGGLED, 'PATCH /v1/echo HTTP/1.1'), 411),
  refused('no Content-Length on PUT', post('', SMUGGLED, 'PUT /v1/echo HTTP/1.1'), 411),
  refused(
    'empty header name that hides the Content-Length',
    post(': b\r\nContent-Length: 85\r\n', SMUGGLED),
    411,
  ),
  ...BROKEN_HEADERS.map(([name, headers]) => refused(name, post(headers, `{}${SMUGGLED}`), 0, 400)),
  refused(
    'empty line before the end of the head',
    `POST /v1/echo HTTP/1.1\r\n${HEAD}\n\n${SMUGGLED}`,
    0,
    400,
  ),
  ...CHUNKS.map(([name, chunk]) =>
    served(
      `chunk with ${name}`,
      post('Transfer-Encoding: chunked\r\n', chunk + SMUGGLED),
      0,
      200,
      400,
      413,
      505,
    ),
  ),
  ...TRAILERS.map(([name, trailer]) =>
    served(
      `after the last chunk ${name}`,
      post('Transfer-Encoding: chunked\r\n', `2\r\n{}\r\n0\r\n${trailer}`),
      0,
      200,
      400,
      505,
    ),
  ),
  ...TARGETS_REFUSED_BY_PARSER.map(line =>
    refused(line, post('Content-Length: 2\r\n', `{}${SMUGGLED}`, line), 0, 400, 501, 505),
  ),
  ...PATHS.map(path => refused(`path ${path.slice(0, 40)}`, get(path) + SMUGGLED, 400, 404, 505)),
  ...QUERIES.map(query =>
    refused(`query ${query.slice(0, 40)}`, get(`/v1/echo${query}`) + SMUGGLED, 400, 505),
  ),
  ...METHODS.map(method =>
    refused(`method ${method.slice(0, 20)}`, get('/v1/echo', '', method) + SMUGGLED, 501, 505),
  ),
  refused('no method', ` /v1/echo HTTP/1.1\r\n${HEAD}\r\n${SMUGGLED}`, 0, 400, 501, 505),
  ...HOSTS.map(host =>
    refused(
      `Host: ${host}`,
      `GET /v1/echo HTTP/1.1\r\nHost: ${host}\r\nAuthorization: ${INFERENCE}\r\nX-Canary: 1\r\n\r\n${SMUGGLED}`,
      400,
    ),
  ),
  refused(
    'no Host',
    `GET /v1/echo HTTP/1.1\r\nAuthorization: ${INFERENCE}\r\nX-Canary: 1\r\n\r\n${SMUGGLED}`,
    400,
  ),
  refused('two Hosts', get('/v1/echo', 'Host: gateway.test\r\n') + SMUGGLED, 400),
  refused('two Hosts that differ', get('/v1/echo', 'Host: other.test\r\n') + SMUGGLED, 400),
  refused('two Authorizations', get('/v1/echo', `Authorization: ${INFERENCE}\r\n`) + SMUGGLED, 400),
  refused('two Authorizations that differ', get('/v1/echo', 'Authorization: Bearer x\r\n') + SMUGGLED, 400),
  refused('two Content-Types', post('Content-Type: application/json\r\nContent-Length: 2\r\n', '{}'), 400),
  ...['GET', 'HEAD', 'DELETE', 'OPTIONS'].map(method =>
    refused(`body on ${method}`, `${get('/v1/echo', 'Content-Length: 85\r\n', method)}${SMUGGLED}`, 400),
  ),
  ...EXPECTATIONS.map(value =>
    refused(`Expect: ${value}`, post(`Content-Length: 2\r\nExpect: ${value}\r\n`, '{}'), 417),
  ),
  ...ENCODINGS.map(value =>
    refused(
      `Content-Encoding: ${value}`,
      post(`Content-Length: 2\r\nContent-Encoding: ${value}\r\n`, '{}'),
      DECODED.has(value) ? 400 : 415,
    ),
  ),
  ...TYPES.map(type =>
    refused(
      `Content-Type: ${type}`,
      `POST /v1/echo HTTP/1.1\r\n${HEAD}Content-Type: ${type}\r\nContent-Length: 2\r\n\r\n{}`,
      415,
    ),
  ),
  refused('no Content-Type', `POST /v1/echo HTTP/1.1\r\n${HEAD}Content-Length: 2\r\n\r\n{}`, 415),
  refused('a head of 20 KB', get('/v1/echo', `X-Long: ${'a'.repeat(20_000)}\r\n`), 431),
  refused('200 headers', get('/v1/echo', 'X-A: b\r\n'.repeat(200)), 431),
  refused(
    'bytes that are no HTTP',
    `\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03${SMUGGLED}`,
    0,
    400,
    501,
    505,
  ),
  refused('HTTP/0.9', `GET /v1/echo\r\n${SMUGGLED}`, 0, 400, 505),
  // A second request while the first is not answered: the library drops both, and none may be handled in part.
  pipelined('two requests at once', get('/v1/echo') + SMUGGLED),
  pipelined('a request after a body', post('Content-Length: 2\r\n', `{}${SMUGGLED}`)),
  pipelined('a request after an empty body', post('Content-Length: 0\r\n', SMUGGLED)),
  pipelined('three requests at once', get('/v1/echo') + SMUGGLED + SMUGGLED),
  {
    ...served('half a request after a request', get('/v1/echo') + SMUGGLED.slice(0, 40), 200),
    mayStayOpen: true,
    pipelines: true,
  },
  served('a chunked body', post('Transfer-Encoding: chunked\r\n', '2\r\n{}\r\n0\r\n\r\n'), 200),
  served('Connection: close', get('/v1/echo', 'Connection: close\r\n'), 200),
  served('Connection: keep-alive, close', get('/v1/echo', 'Connection: keep-alive, close\r\n'), 200),
  served('Connection: Close', get('/v1/echo', 'Connection: Close\r\n'), 200),
]
