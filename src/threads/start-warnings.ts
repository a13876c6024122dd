/** What is allowed in a configuration but should be known: said once at start, by field. Pure. */
import type { Config } from '../config/config.ts'
import { proxyUrl } from '../upstream/egress.ts'

export interface StartWarning {
  readonly message: string
  readonly field: string
}

const LOOPBACK = /^(?:localhost|.*\.localhost|127(?:\.\d{1,3}){3}|\[::1\])$/

/** The warnings of a configuration without faults. */
export function startWarnings({ providers }: Pick<Config, 'providers'>): readonly StartWarning[] {
  return providers.flatMap(({ baseUrl, proxy }, index) => {
    const warnings: StartWarning[] = []
    if (isPlainRemote(baseUrl)) {
      warnings.push({
        message: 'a provider is asked without TLS: keys and prompts can be read on the way',
        field: `providers[${index}].baseUrl`,
      })
    }
    if (proxy !== undefined && proxy !== 'none' && hasUser(proxy) && isPlainRemote(proxyUrl(proxy))) {
      warnings.push({
        message: 'a proxy gets its password without TLS',
        field: `providers[${index}].proxy`,
      })
    }
    return warnings
  })
}

function hasUser(proxy: string): boolean {
  return new URL(proxyUrl(proxy)).username !== ''
}

function isPlainRemote(text: string | undefined): boolean {
  if (text === undefined || !URL.canParse(text)) return false
  const { protocol, hostname } = new URL(text)
  return protocol === 'http:' && !LOOPBACK.test(hostname)
}
