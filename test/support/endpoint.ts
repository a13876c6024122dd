/** Endpoints for tests of encoders: a plain endpoint of a format, with the differences that a case needs. */
import type { AnyFormatName, Endpoint, Provider } from '../../src/protocol/provider.ts'

export interface Differences extends Partial<Omit<Endpoint, 'provider' | 'format'>> {
  readonly slug?: string
  readonly quirks?: Provider['quirks']
  /** A row of the table, instead of a plain one. */
  readonly row?: Provider
}

/** An endpoint of the provider `acme`, unless `slug` says otherwise. Nothing listens at its address. */
export function endpointOf(format: AnyFormatName, differences: Differences = {}): Endpoint {
  const { slug = 'acme', quirks = [], row, ...fields } = differences
  return {
    modelId: `${slug}/fast-1`,
    upstreamModel: 'fast-1',
    provider: row ?? {
      slug,
      name: slug,
      format,
      baseUrl: 'http://127.0.0.1:1/v1',
      auth: 'bearer',
      apiKey: null,
      quirks,
      headers: {},
      onAbort: 'cancel',
    },
    format,
    pricing: { prompt: 0, completion: 0, request: 0, inputCacheRead: null, inputCacheWrite: null },
    contextLength: null,
    maxOutputTokens: null,
    region: null,
    zdr: false,
    quantization: 'unknown',
    drawsImages: false,
    supportedParameters: null,
    ...fields,
  }
}
