/** The settings for sending traces, in the form that the exporter uses. Pure. Leaf. */

/** Formats of OTLP over HTTP. */
export const OTLP_PROTOCOLS = ['http/protobuf', 'http/json'] as const

/** The settings of traces. */
interface TracingSettings {
  readonly endpoint: string | null
  readonly tracesUrl: string | null
  readonly protocol: (typeof OTLP_PROTOCOLS)[number]
  readonly timeoutMs: number
  readonly compression: 'none' | 'gzip'
  readonly headers: Readonly<Record<string, string>>
  readonly serviceName: string
  readonly resource: Readonly<Record<string, string>>
}

export interface ExportTerms
  extends Pick<TracingSettings, 'protocol' | 'timeoutMs' | 'compression' | 'headers'> {
  readonly url: URL
  /** Attributes of the service. */
  readonly resource: Readonly<Record<string, string>>
}

/** True if traces are on. */
export function isTraced({ endpoint, tracesUrl }: TracingSettings): boolean {
  return endpoint !== null || tracesUrl !== null
}

/** Null: traces are off. */
export function exportTerms(settings: TracingSettings, version: string): ExportTerms | null {
  const { endpoint, tracesUrl, protocol, timeoutMs, compression, headers, serviceName } = settings
  const base = endpoint === null ? null : `${endpoint.replace(/\/+$/, '')}/v1/traces`
  const address = tracesUrl ?? base
  if (address === null) return null
  const resource = { ...settings.resource, 'service.name': serviceName, 'service.version': version }
  return { url: new URL(address), protocol, timeoutMs, compression, headers, resource }
}

/** The problem with a collector's address; null: none. */
export function collectorFault(url: string): string | null {
  const isGood = /^https?:\/\/[^\s?#]+$/.test(url) && URL.canParse(url)
  return isGood ? null : 'expected a URL of the form http://HOST:PORT or https://…'
}
