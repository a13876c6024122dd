/** Connections from sandboxes to allow-listed servers, under the same rules as page fetches (`tools.webFetch`). */
import type { Clock } from '../../base/clock.ts'
import type { OpenTunnel } from '../../features/sandbox/run-network.ts'
import { createAdmits } from '../../features/tools/web/domains.ts'
import { createProxyOf, proxiesOf } from '../../providers/upstream/egress.ts'
import { createTunnels } from '../../providers/upstream/pages/checked-tunnel.ts'
import type { LinkRules } from '../../providers/upstream/pages/fetch-page.ts'
import type { Config } from '../config/settings.ts'

/** Creates connections for sandboxes. `rules` replace the configured rules. */
export function sandboxTunnels(config: Config, clock: Clock, rules: Partial<LinkRules> = {}): OpenTunnel {
  const { allowHttp, allowPrivate, timeoutMs } = config.tools.webFetch
  const proxyOf = createProxyOf(proxiesOf(config))
  const open = createTunnels({ clock, timeoutMs, allowHttp, allowPrivate, proxyOf, ...rules })
  return (address, domains, signal) => open(address, createAdmits(domains, []), signal)
}
