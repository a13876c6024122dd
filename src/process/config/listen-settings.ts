/** Settings for the addresses that a gateway listens on: the public one, and the admin port. Pure. */
import { Type } from '@sinclair/typebox'
import {
  Address,
  FRONT_CHOICES,
  group,
  Host,
  networks,
  nullable,
  oneOf,
  Port,
  setting,
} from '../../base/settings/setting.ts'

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
