/** Settings of the ports, and of limits on connections, keys and memory. Pure. */
import { Type } from '@sinclair/typebox'
import {
  Address,
  FRONT_CHOICES,
  group,
  Host,
  Milliseconds,
  networks,
  nullable,
  oneOf,
  Port,
  quarterOfHeap,
  requestsThatFit,
  setting,
  socketsThatFit,
} from '../base/settings/setting.ts'

export const listenSettings = group({
  host: setting(Address, 'public address', { default: '127.0.0.1', env: 'GATEWAY_HOST' }),
  port: setting(Port, 'public port; 0 picks a free one', { default: 8080, env: 'GATEWAY_PORT' }),
  front: setting(
    oneOf(FRONT_CHOICES),
    'the library that serves HTTP and WebSockets: `uws` (uWebSockets.js, the faster one), `node` (`node:http`, for every system and version of Node), or `auto`: `uws` if it has a build for the system, otherwise `node` ([decision 44](decisions/0044-two-fronts.md))',
    { default: 'auto', env: 'GATEWAY_FRONT' },
  ),
  shared: setting(
    Type.Boolean(),
    'true: another instance may serve on the same port, for a [restart without a gap](#restart-without-a-gap). Without it, a start checks that the port is free',
    { default: false, env: 'GATEWAY_SHARED_PORT' },
  ),
  tls: nullable(
    group({
      cert: setting(
        Address,
        'a PEM file with the certificate and its chain, for [TLS on the public port](operations.md#tls), version 1.2 or newer. Both files are read again when they change; paths are relative to the working directory',
      ),
      key: setting(Address, 'the PEM file with its private key, without a passphrase'),
    }),
  ),
  trustedProxies: setting(
    Type.Array(Address, { maxItems: 1_000 }),
    'addresses and networks (`10.0.0.0/8`, `fd00::/8`) of proxies in front of the gateway; `limits.connectionsPerAddress` does not apply to them, because each carries many clients. They have no other effect: `X-Forwarded-For` is never read',
    { default: [], ...networks },
  ),
  chunkFlush: setting(
    Type.Boolean(),
    'true: a comment (a line with a colon) follows each write of an event stream, for clients that process a chunk only after its line end has arrived; see [inference.md](inference.md#streams)',
    { default: false },
  ),
})

export const adminSettings = group({
  host: setting(Address, 'address of the admin port, for metrics and health', {
    default: '127.0.0.1',
    env: 'GATEWAY_ADMIN_HOST',
  }),
  port: setting(Port, 'admin port; 0 picks a free one', { default: 9090, env: 'GATEWAY_ADMIN_PORT' }),
  hosts: setting(
    Type.Array(Host),
    'names allowed in the `Host` header of requests to the admin port. Always allowed: addresses, `admin.host`, names without a dot, and names that end in `.internal`, `.local` or `.localhost`. Requests with other names are rejected with 421, so that a web page cannot read the port through a browser in your network',
    { default: [] },
  ),
})

export const limitsSettings = group({
  maxConnections: setting(
    Type.Integer({ minimum: 1 }),
    'client connections of the process; never more than 45 % of its file descriptor limit. With one provider connection for each, the default stays below the usual limit of 65,536',
    { default: 20_000 },
  ),
  connectionsPerAddress: setting(
    Type.Integer({ minimum: 0 }),
    'connections per client address (IPv6: per /64 network). Each serve thread enforces its part: this number divided by the threads, rounded up. 0: unlimited. Set it if clients connect without a proxy. A connection that the client closes between two requests may count for 13 s longer',
    { default: 0 },
  ),
  openPerKey: setting(
    Type.Integer({ minimum: 1 }),
    'open requests, including streams, per API key and thread; further ones wait (`waitingPerKey`) or are rejected with 429',
    { default: 5_000 },
  ),
  waitingPerKey: setting(
    Type.Integer({ minimum: 0, maximum: 10_000 }),
    'requests with an end user (`user` or `safety_identifier`) that may wait in one thread while their API key has `openPerKey` requests open; end users get [fair shares](end-users.md#fair-shares). When the queue is full, the newest request of the end user with the most waiting requests is rejected with 429. 0: no request waits. Only bodies up to 256 KiB wait, so the default bounds memory',
    { default: 256 },
  ),
  waitMs: setting(
    Type.Integer({ minimum: 1, maximum: 60_000 }),
    'how long a request may wait while its API key is at its limit (`waitingPerKey`), before it is rejected with 429; keep it below the idle timeout of your proxies',
    { default: 10_000 },
  ),
  bytesInFlightPerKey: setting(
    nullable(Type.Integer({ minimum: 1 })),
    'bytes of request bodies per API key and thread, counted from the request head until the answer ends. A body that would exceed this is rejected with 429 before it is read, but a single request always fits. The same number of answer bytes may wait until slow clients of the key read them; above that, its next requests are rejected with 429',
    { defaultText: 'a quarter of `maxBufferedBytes`' },
  ),
  socketsPerKey: setting(
    Type.Integer({ minimum: 1 }),
    'open WebSockets per API key and thread; further ones are rejected with 429. Each may buffer a message of 4 MiB, so this bounds the memory of one key',
    socketsThatFit,
  ),
  allowChunked: setting(Type.Boolean(), 'false: chunked request bodies are refused with 411', {
    default: true,
  }),
  closeAfterReply: setting(
    Type.Boolean(),
    'true: the connection is closed after every answer. Use it behind proxies that you do not trust to separate requests ([security](security.md#known-weaknesses))',
    { default: false },
  ),
  maxInFlight: setting(
    Type.Integer({ minimum: 1 }),
    'concurrent requests per thread; further ones are rejected with 503 (for keys with few open requests, only above 125 % of this). This bounds memory (about 20 KB each) rather than CPU, since streams mostly wait',
    requestsThatFit,
  ),
  maxLagMs: setting(
    Milliseconds,
    'maximum event loop lag of a thread: the median of recent samples, taken every 50 ms, where a long pause counts twice. After 10 s above this, new requests of the keys that use most of the loop are rejected with 503, until the lag falls below half of it. A lower value makes the gateway react earlier, but also when other programs use the CPU',
    { default: 200 },
  ),
  maxBufferedBytes: setting(
    Type.Integer({ minimum: 1_048_576 }),
    'memory for the requests of one thread: parsed bodies, growing answers, and bytes that slow clients have not read. Above it, new requests of the keys that use most are rejected with 429; above 125 % of it, all others are rejected with 503; below 80 %, all are accepted again. Large requests together may use 75 %: a body or answer beyond that leads to 503, and a body that could never fit to 413 ([decision 17](decisions/0017-held-bytes.md))',
    quarterOfHeap,
  ),
})
