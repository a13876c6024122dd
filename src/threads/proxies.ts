/** The proxies of the configuration, for whatever sends requests. */
import type { Config } from '../config/config.ts'
import type { ProxySettings } from '../upstream/egress.ts'

export function proxiesOf({ httpsProxy, httpProxy, noProxy }: Config): ProxySettings {
  return { https: httpsProxy, http: httpProxy, except: noProxy }
}
