/**
 * Where the data of a request has to stay, by the host that was called. Only configured names count, exactly: any other
 * host is the global one. Pure.
 */
import type { ClientRequest } from '../gateway/exchange.ts'

type Region = NonNullable<ClientRequest['dataRegion']>

/** Hosts of the regions; a name without a port stands for every port. */
export type RegionHosts = Readonly<Record<Region, readonly string[]>>

/** The region of a Host header; null: data may go anywhere. */
export type DataRegionOf = (host: string) => Region | null

export function createDataRegions(hosts: RegionHosts): DataRegionOf {
  const regions = new Map<string, Region>()
  for (const region of ['europe', 'us'] as const) {
    for (const host of hosts[region]) regions.set(nameOf(host), region)
  }
  if (regions.size === 0) return () => null
  return host => {
    const name = nameOf(host)
    return regions.get(name) ?? regions.get(name.replace(/:\d{1,5}$/, '')) ?? null
  }
}

/** Host names know no case, and may end in the dot of the root. */
function nameOf(host: string): string {
  return host.toLowerCase().replace(/\.(?=$|:\d{1,5}$)/, '')
}
