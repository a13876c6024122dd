/** Settings for traces and for the collector that receives them. Pure. */
import { Type } from '@sinclair/typebox'
import { Address, group, Milliseconds, nullable, oneOf, setting } from '../settings/setting.ts'
import { collectorFault, OTLP_PROTOCOLS } from './otlp/terms.ts'
import { TRACE_TRUST } from './tracing.ts'

/** The address of a collector of traces. */
const collectorUrl = {
  accepts: (url: string | null) => url === null || collectorFault(url) === null,
  expected: 'a URL of the form http://HOST:PORT or https://…',
}

export const tracingSettings = group({
  endpoint: setting(
    nullable(Address),
    'base address of an OpenTelemetry collector that speaks OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` is appended. Null: no [traces](tracing.md). `OTEL_EXPORTER_OTLP_ENDPOINT` and related variables take precedence',
    collectorUrl,
  ),
  protocol: setting(oneOf(OTLP_PROTOCOLS), 'encoding of the traces that are sent', {
    default: 'http/protobuf',
  }),
  share: setting(
    Type.Number({ minimum: 0, maximum: 1 }),
    'share of the requests that are kept, chosen by their trace id, so that all instances keep the same ones. Failed and slow requests are kept too, but no slow ones that a trusted caller does not sample (`trust`)',
    { default: 0.01 },
  ),
  keepSlowerThanMs: setting(Milliseconds, 'requests that take longer than this count as slow', {
    default: 5_000,
  }),
  trust: setting(
    oneOf(TRACE_TRUST),
    "whose sampled flag in `traceparent` overrides `share`: every caller's (`always`), no caller's (`never`), or only the flag of [keys](management.md#keys) with `trace_trusted` (`keys`)",
    { default: 'keys' },
  ),
  timeoutMs: setting(Milliseconds, "time limit for the collector's answer", { default: 10_000 }),
  compression: setting(oneOf(['none', 'gzip']), 'compression of the traces that are sent', {
    default: 'none',
  }),
  tracesUrl: setting(nullable(Type.String()), 'full address of the collector, used instead of `endpoint`', {
    environmentOnly: true,
  }),
  headers: setting(Type.Record(Type.String(), Type.String()), 'headers for the collector', {
    default: {},
    environmentOnly: true,
  }),
  serviceName: setting(Type.String(), 'name of this service in traces', {
    default: 'sluice',
    environmentOnly: true,
  }),
  resource: setting(Type.Record(Type.String(), Type.String()), 'further attributes of this service', {
    default: {},
    environmentOnly: true,
  }),
})
