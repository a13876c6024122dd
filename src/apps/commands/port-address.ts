/** Finds the gateway port that a command calls: its address and key, from options, configuration or environment. */
import { keyKind } from '../../callers/api-key.ts'
import { loadConfig, processEnvironment } from '../../process/config/config.ts'
import type { Config } from '../../process/config/settings.ts'
import { CommandError, type OptionValues, UsageError } from './command.ts'
import { configWords } from './outcome.ts'

/** A port of the gateway that a command calls, and the key for it. */
export interface PortAddress {
  readonly url: string
  readonly key: string
}

/** One of the two ports of a gateway, and the kind of key that it accepts. */
export interface PortTerms {
  /** The section of the configuration with the port. */
  readonly part: 'listen' | 'admin'
  /** Used if no configuration was read. */
  readonly defaultPort: number
  readonly key: 'apiKey' | 'managementKey'
  /** Message if there is no key. */
  readonly missing: string
  /** Message if the key is of the other kind. */
  readonly otherKind: string
}

/** Returns address and key. @throws UsageError, ConfigError, CommandError */
export function portAddress(options: OptionValues, terms: PortTerms): PortAddress {
  const { url, key: givenKey } = options
  const config = typeof url === 'string' && typeof givenKey === 'string' ? null : configOf(options)
  const key = typeof givenKey === 'string' ? givenKey : (config?.[terms.key] ?? '')
  const port = { url: typeof url === 'string' ? checkedUrl(url) : urlOf(config, terms), key }
  if (key === '') throw new UsageError(terms.missing)
  if (!/^[\x21-\x7e]+$/.test(key)) throw new UsageError('--key: expects a key without spaces')
  // The gateway would refuse a key of the other kind, so it is not sent.
  const ownKind = terms.key === 'apiKey' ? 'inference' : 'management'
  if ((keyKind(key) ?? ownKind) !== ownKind) throw new CommandError(terms.otherKind)
  return port
}

/** Returns only the address. @throws UsageError, ConfigError */
export function portUrl(options: OptionValues, terms: PortTerms): string {
  return typeof options['url'] === 'string' ? checkedUrl(options['url']) : urlOf(configOf(options), terms)
}

const configOf = ({ config }: OptionValues): Config => loadConfig(configWords(config), processEnvironment())

/** The address without a trailing slash. @param name of the option or argument @throws UsageError */
export function checkedUrl(text: string, name = '--url'): string {
  const url = URL.parse(text)
  const isPlain =
    url !== null && url.username === '' && url.password === '' && url.search === '' && url.hash === ''
  if (!isPlain || !/^https?:$/.test(url.protocol)) {
    throw new UsageError(
      `${name}: expects an http:// or https:// address with a host, and without a user or query`,
    )
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}

/** The URL of a gateway with this configuration, as seen from its own machine. */
function urlOf(config: Config | null, { part, defaultPort }: PortTerms): string {
  const { host = '127.0.0.1', port = defaultPort } = config?.[part] ?? {}
  if (port === 0) throw new UsageError(`--url: is required, because ${part}.port is 0`)
  const reachableHost = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  const scheme = part === 'listen' && config?.listen.tls != null ? 'https' : 'http'
  return `${scheme}://${reachableHost.includes(':') ? `[${reachableHost}]` : reachableHost}:${port}`
}
