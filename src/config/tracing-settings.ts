/** Settings of traces and of the collector that receives them. Pure. */
import { Type } from '@sinclair/typebox'
import { Address, group, Milliseconds, nullable, oneOf, setting } from '../settings/setting.ts'
import { collectorFault, OTLP_PROTOCOLS } from '../telemetry/otlp/terms.ts'
import { TRACE_TRUST } from '../telemetry/tracing.ts'

/** The address of a collector of traces. */
const collectorUrl = {
  accepts: (url: string | null) => url === null || collectorFault(url) === null,
  expected: 'a URL of the form http://HOST:PORT or https://…',
}

export const tracingSettings = group({
  endpoint: setting(
    nullable(Address),
    'base address of an OpenTelemetry collector that speaks OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` is appended. Null: no [traces](tracing.md). `OTEL_EXPORTER_OTLP_ENDPOINT` and other variables win',
    collectorUrl,
  ),
  protocol: setting(oneOf(OTLP_PROTOCOLS), 'form of what is sent', { default: 'http/protobuf' }),
  share: setting(
    Type.Number({ minimum: 0, maximum: 1 }),
    'share of the requests that are kept, chosen by their trace id, so that all instances keep the same ones. Requests that fail and slow ones are kept in any case',
    { default: 0.01 },
  ),
  keepSlowerThanMs: setting(Milliseconds, 'requests that take longer are slow', { default: 5_000 }),
  trust: setting(
    oneOf(TRACE_TRUST),
    'whose sampled flag in `traceparent` decides in place of `share`: of every caller (`always`), of none (`never`), or of [keys](management.md#keys) with `trace_trusted` (`keys`)',
    { default: 'keys' },
  ),
  timeoutMs: setting(Milliseconds, 'time that the collector has for its answer', { default: 10_000 }),
  compression: setting(oneOf(['none', 'gzip']), 'compression of what is sent', { default: 'none' }),
  tracesUrl: setting(nullable(Type.String()), 'address of the collector as it is, in place of `endpoint`', {
    environmentOnly: true,
  }),
  headers: setting(Type.Record(Type.String(), Type.String()), 'headers for the collector', {
    default: {},
    environmentOnly: true,
  }),
  serviceName: setting(Type.String(), 'the name of this service in traces', {
    default: 'sluice',
    environmentOnly: true,
  }),
  resource: setting(Type.Record(Type.String(), Type.String()), 'more attributes of this service', {
    default: {},
    environmentOnly: true,
  }),
})
