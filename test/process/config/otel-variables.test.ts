import t from 'tap'
import { exportTerms, isTraced } from '../../../src/base/telemetry/otlp/terms.ts'
import { loadConfig } from '../../../src/process/config/config.ts'

const tracingOf = (environment: Record<string, string>) => loadConfig([], environment).tracing
const urlOf = (environment: Record<string, string>) =>
  exportTerms(tracingOf(environment), '1')?.url.href ?? null

t.test('the address of a collector turns traces on, and that of the signal is taken as it is', t => {
  t.equal(isTraced(tracingOf({})), false)
  t.equal(urlOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' }), 'http://c:4318/v1/traces')
  t.equal(urlOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318/base/' }), 'http://c:4318/base/v1/traces')
  t.equal(
    urlOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://d/x' }),
    'https://d/x',
  )
  t.end()
})

t.test('what turns traces off is no fault', t => {
  const on = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4317' }
  t.equal(urlOf({ ...on, OTEL_SDK_DISABLED: 'true' }), null)
  t.equal(urlOf({ ...on, OTEL_TRACES_EXPORTER: 'none' }), null)
  t.equal(urlOf({ ...on, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }), null)
  t.ok(urlOf({ ...on, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json' }))
  t.end()
})

t.test('the other variables are read as OpenTelemetry says', t => {
  t.match(
    tracingOf({
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c',
      OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json',
      OTEL_EXPORTER_OTLP_HEADERS: 'api-key=a%20b, x = 1,broken',
      OTEL_EXPORTER_OTLP_TIMEOUT: '2500',
      OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: 'gzip',
      OTEL_SERVICE_NAME: 'gate',
      OTEL_RESOURCE_ATTRIBUTES: 'service.name=no,deployment.environment=prod',
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.25',
    }),
    {
      protocol: 'http/json',
      headers: { 'api-key': 'a b', x: '1' },
      timeoutMs: 2500,
      compression: 'gzip',
      serviceName: 'gate',
      resource: { 'deployment.environment': 'prod' },
      share: 0.25,
      trust: 'always',
    },
  )
  t.match(tracingOf({ OTEL_TRACES_SAMPLER: 'always_on' }), { share: 1, trust: 'keys' })
  t.match(tracingOf({ OTEL_TRACES_SAMPLER: 'unknown' }), { share: 0.01 })
  t.end()
})

t.test('faulty ones name their variable, and repeat no value', t => {
  t.throws(() => tracingOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'secret' }), {
    message: /^OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL/,
  })
  t.throws(() => tracingOf({ OTEL_EXPORTER_OTLP_PROTOCOL: 'carrier-pigeon' }), {
    message: /^OTEL_EXPORTER_OTLP_PROTOCOL: expected http\/protobuf, http\/json or grpc/,
  })
  const ofTraces = {
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'carrier-pigeon',
  }
  t.throws(() => tracingOf(ofTraces), { message: /^OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: expected/ })
  t.end()
})
