/** Connections from sandboxes to allow-listed servers, under the same rules as page fetches (`tools.webFetch`). */
import type { Clock } from '../clock.ts'
import type { Config } from '../config/config.ts'
import type { OpenTunnel } from '../sandbox/run-network.ts'
import { createAdmits } from '../tools/web/domains.ts'
import { createProxyOf, proxiesOf } from '../upstream/egress.ts'
import { createTunnels } from '../upstream/pages/checked-tunnel.ts'
import type { LinkRules } from '../upstream/pages/fetch-page.ts'

/** Creates connections for sandboxes. `rules` replace those of the configuration. */
export function sandboxTunnels(config: Config, clock: Clock, rules: Partial<LinkRules> = {}): OpenTunnel {
  const { allowHttp, allowPrivate, timeoutMs } = config.tools.webFetch
  const proxyOf = createProxyOf(proxiesOf(config))
  const open = createTunnels({ clock, timeoutMs, allowHttp, allowPrivate, proxyOf, ...rules })
  return (address, domains, signal) => open(address, createAdmits(domains, []), signal)
}
