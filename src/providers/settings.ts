/** Settings for calls to providers: connections, proxies, keys. Pure. */
import { Type } from '@sinclair/typebox'
import { group, Milliseconds, nullable, proxyUrl, setting } from '../base/settings/setting.ts'

export const upstreamSettings = group({
  maxConnections: setting(
    Type.Integer({ minimum: 1, maximum: 1_000_000 }),
    'connections of one thread to one origin, counted separately for each own credential. Further requests wait up to 10 s for a free one; then the next endpoint is tried. With HTTP/2 each connection carries 100 requests. The default is at least as high as the default of `limits.maxInFlight`, so no request waits',
    { default: 10_000 },
  ),
  maxAgeMs: setting(
    Milliseconds,
    'age above which a connection to a provider takes no further requests. A new connection resolves the name again, so that a changed address is used. Running requests are not interrupted',
    { default: 300_000 },
  ),
})

export const credentialsSettings = group({
  maxEntries: setting(
    Type.Integer({ minimum: 1, maximum: 1_000_000 }),
    'decrypted customer provider keys that a thread caches in memory. Fewer mean less risk if memory is leaked',
    { default: 1_000 },
  ),
  maxBytes: setting(
    Type.Integer({ minimum: 65_536 }),
    'bytes of decrypted provider keys that a thread caches',
    { default: 4_194_304 },
  ),
  ttlMs: setting(
    Milliseconds,
    'how long a thread caches a decrypted provider key; never more than five minutes',
    { default: 300_000 },
  ),
})

/** Proxies for all outgoing connections. */
export const proxySettings = {
  httpsProxy: setting(
    nullable(Type.String()),
    "proxy for `https` addresses of providers and links: `http://[USER:PASSWORD@]HOST:PORT`, `https://…`, or `HOST:PORT`. A provider's own `proxy` takes precedence. The lower-case variable also works, and takes precedence over this one; the same applies to the next two",
    { env: 'HTTPS_PROXY', anyCase: true, secret: true, environmentOnly: true, ...proxyUrl },
  ),
  httpProxy: setting(nullable(Type.String()), 'proxy for `http` addresses, in the same form', {
    env: 'HTTP_PROXY',
    anyCase: true,
    secret: true,
    environmentOnly: true,
    ...proxyUrl,
  }),
  noProxy: setting(
    nullable(Type.String()),
    'comma-separated hosts that are reached without a proxy: names (with their subdomains), addresses, networks such as `10.0.0.0/8`, each with or without a port; `*` means all',
    { env: 'NO_PROXY', anyCase: true, environmentOnly: true },
  ),
}

export const masterKeys = setting(
  nullable(Type.String()),
  '[master keys](#master-keys), `id:base64-of-32-bytes[,id2:…]`. Without it, embedded mode creates a file `vault.key` (mode 0600) next to the database. Required with PostgreSQL, where all instances must have the same keys',
  { env: 'GATEWAY_VAULT_KEYS', secret: true, environmentOnly: true },
)

export type EnvironmentProxies = Readonly<Record<keyof typeof proxySettings, string | null>>
