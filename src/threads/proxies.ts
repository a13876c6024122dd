/** The configured egress proxies, for every part that sends requests. */
import type { Config } from '../config/config.ts'
import type { ProxySettings } from '../upstream/egress.ts'

export function proxiesOf({ httpsProxy, httpProxy, noProxy }: Config): ProxySettings {
  return { https: httpsProxy, http: httpProxy, except: noProxy }
}
