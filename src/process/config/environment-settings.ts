/** Settings that exist only as environment variables: the log level, proxies, master keys, first keys. Pure. */
import { Type } from '@sinclair/typebox'
import type { LogLevel } from '../../base/log/log.ts'
import { nullable, oneOf, proxyUrl, setting } from '../../base/settings/setting.ts'

const LOG_LEVELS = [
  'trace',
  'debug',
  'info',
  'warn',
  'error',
  'fatal',
  'silent',
] as const satisfies readonly LogLevel[]

export const environmentSettings = {
  logLevel: setting(oneOf(LOG_LEVELS), 'the lowest level that is logged', {
    default: 'info',
    env: 'LOG_LEVEL',
    environmentOnly: true,
  }),
  httpsProxy: setting(
    nullable(Type.String()),
    "proxy for `https` addresses of providers and links: `http://[USER:PASSWORD@]HOST:PORT`, `https://…`, or `HOST:PORT`. A provider's own `proxy` wins. The lower-case name works too and takes precedence; the same applies to the next two",
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
  managementKey: setting(
    nullable(Type.String()),
    'management key in plain text, added to the store at start unless it is already there or was deleted',
    { env: 'GATEWAY_MANAGEMENT_KEY', secret: true, environmentOnly: true },
  ),
  apiKey: setting(nullable(Type.String()), 'API key in plain text, added in the same way', {
    env: 'GATEWAY_API_KEY',
    secret: true,
    environmentOnly: true,
  }),
  vaultKeys: setting(
    nullable(Type.String()),
    '[master keys](#master-keys), `id:base64-of-32-bytes[,id2:…]`. Without it, embedded mode creates a file `vault.key` (mode 0600) next to the database. Required with PostgreSQL, where all instances must have the same keys',
    { env: 'GATEWAY_VAULT_KEYS', secret: true, environmentOnly: true },
  ),
  providerKeys: setting(
    Type.Record(Type.String(), Type.String()),
    'provider keys from the variables in the built-in table, by slug',
    { default: {}, environmentOnly: true },
  ),
}
