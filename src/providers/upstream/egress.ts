/**
 * Egress: chooses the proxy and the transport of a request, from the provider's row and the environment. Serve threads.
 */
import { BlockList, isIP } from 'node:net'
import type { Egress } from '../../protocol/provider.ts'
import type { EnvironmentProxies } from '../settings.ts'
import { createDirectTransport } from './client/direct-transport.ts'
import type { Transport, TransportOptions, UpstreamRequest } from './transport.ts'
import type { UndiciRoute } from './undici/undici-pools.ts'
import { createUndiciTransport } from './undici/undici-transport.ts'

/** The proxies that the environment names, as written in its variables. */
export interface ProxySettings {
  /** For https URLs; null if there is none. */
  readonly https: string | null
  readonly http: string | null
  /**
   * Hosts that are reached without a proxy: names with their subdomains, addresses, networks; each may have a port; `*`
   * means all.
   */
  readonly exceptions: string | null
}

/** The proxies of a configuration. */
export function proxiesOf({ httpsProxy, httpProxy, noProxy }: EnvironmentProxies): ProxySettings {
  return { https: httpsProxy, http: httpProxy, exceptions: noProxy }
}

/** The URL of the proxy for a URL; null if there is none. */
export type ProxyOf = (url: URL) => string | null

/** Parses the settings once. `HOST:PORT` means an HTTP proxy. */
export function createProxyOf({ https, http, exceptions }: ProxySettings): ProxyOf {
  if (https === null && http === null) return () => null
  const rules = (exceptions ?? '').split(/[\s,]+/).flatMap(ruleOf)
  return url => {
    const proxy = url.protocol === 'https:' ? https : http
    return proxy === null || rules.some(rule => rule(url)) ? null : proxyUrl(proxy)
  }
}

/** The proxy's full URL: `HOST:PORT` alone means an HTTP proxy. */
export function proxyUrl(text: string): string {
  return text.includes('://') ? text : `http://${text}`
}

type Rule = (url: URL) => boolean

function ruleOf(text: string): readonly Rule[] {
  const entry = text.toLowerCase()
  if (entry === '') return []
  if (entry === '*') return [() => true]
  if (entry.includes('/')) return networkRule(entry)
  // An IPv6 address has a port only after brackets.
  const [, name = '', port] = /^(\[[^\]]+\]|[^:]+|.*:.*:.*?)(?::(\d+))?$/.exec(entry) ?? []
  const host = name.replace(/^\*?\./, '').replace(/^\[|\]$/g, '')
  if (host === '') return []
  return [url => isHostOrBelow(hostOf(url), host) && (port === undefined || port === portOf(url))]
}

function isHostOrBelow(host: string, rule: string): boolean {
  return host === rule || host.endsWith(`.${rule}`)
}

/** `ADDRESS/BITS`, for hosts that are addresses. */
function networkRule(entry: string): readonly Rule[] {
  const [address = '', bits = ''] = entry.split('/')
  const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
  if (isIP(address) === 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > (family === 'ipv6' ? 128 : 32))
    return []
  const network = new BlockList()
  network.addSubnet(address, Number(bits), family)
  return [
    url => {
      const host = hostOf(url)
      return isIP(host) !== 0 && network.check(host, isIP(host) === 6 ? 'ipv6' : 'ipv4')
    },
  ]
}

function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
}

function portOf({ port, protocol }: URL): string {
  if (port !== '') return port
  return protocol === 'https:' ? '443' : '80'
}

interface TransportsOptions extends TransportOptions {
  readonly proxies: ProxySettings
  /** True if every request uses undici. */
  readonly undici?: boolean
}

/**
 * Combines several transports into one: the provider's row and the environment choose the transport of each request.
 */
export function createTransports({ proxies, undici = false, ...options }: TransportsOptions): Transport {
  const proxyOf = createProxyOf(proxies)
  const direct = createDirectTransport(options)
  /** A transport for each combination of options that rows and environment name, so there are only a few. */
  const undiciTransports = new Map<string, Transport>()
  const identities = new WeakMap<object, number>()
  let lastIdentity = 0
  const isAlwaysDirect = !undici && proxies.https === null && proxies.http === null

  const keyOf = ({ proxy, http2, tls }: UndiciRoute): string => {
    const identity = tls === null ? 0 : (identities.get(tls) ?? ++lastIdentity)
    if (tls !== null) identities.set(tls, identity)
    return `${http2} ${identity} ${proxy}`
  }
  const transportFor = (route: UndiciRoute): Transport => {
    const key = keyOf(route)
    let transport = undiciTransports.get(key)
    if (transport === undefined) {
      transport = createUndiciTransport({ ...options, route })
      undiciTransports.set(key, transport)
    }
    return transport
  }
  const choose = ({ url, egress }: UpstreamRequest): Transport => {
    const route = routeOf(url, egress, proxyOf)
    return undici || route.isUndici ? transportFor(route) : direct
  }
  return {
    start(request, handler, nowMs) {
      const isDirect = isAlwaysDirect && request.egress === undefined
      return (isDirect ? direct : choose(request)).start(request, handler, nowMs)
    },
    async close() {
      await Promise.all([direct, ...undiciTransports.values()].map(transport => transport.close()))
    },
  }
}

function routeOf(
  url: URL,
  egress: Egress | undefined,
  proxyOf: ProxyOf,
): UndiciRoute & { isUndici: boolean } {
  const ownProxy = egress?.proxy ?? null
  const proxy = ownProxy === 'none' ? null : ownProxy === null ? proxyOf(url) : proxyUrl(ownProxy)
  const http2 = egress?.http2 ?? false
  const tls = egress?.tls ?? null
  return {
    proxy,
    http2,
    tls,
    isUndici: egress?.transport === 'undici' || proxy !== null || http2 || tls !== null,
  }
}
