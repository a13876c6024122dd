/**
 * Every metric of the gateway, declared once. Labels come from closed sets only: route templates, configured
 * providers and models, enumerations; anything else is counted as `other`. docs/metrics.md lists the same
 * names, and a test holds the two equal. Leaf.
 */
import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** Seconds. Fine at the low end, where a gateway's own work is; up to the ten minutes a request may take. */
const DURATION_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
]

export type Metrics = ReturnType<typeof createMetrics>

/** Builds the metrics of one thread on a registry of their own. */
export function createMetrics() {
  const registry = new Registry()
  const registers = [registry]
  return {
    registry,
    requests: new Counter({
      name: 'gateway_requests_total',
      help: 'Requests answered, by route template, status class and how they ended',
      labelNames: ['route', 'status_class', 'outcome'] as const,
      registers,
    }),
    requestDuration: new Histogram({
      name: 'gateway_request_duration_seconds',
      help: 'From the request line to the last byte of the answer',
      labelNames: ['route'] as const,
      buckets: DURATION_BUCKETS,
      registers,
    }),
    timeToFirstToken: new Histogram({
      name: 'gateway_time_to_first_token_seconds',
      help: 'From the request line to the first content handed to the client',
      buckets: DURATION_BUCKETS,
      registers,
    }),
    openStreams: new Gauge({ name: 'gateway_open_streams', help: 'Event streams being sent now', registers }),
    streamChunks: new Counter({
      name: 'gateway_stream_chunks_total',
      help: 'Events written to event streams',
      registers,
    }),
    streamBytes: new Counter({
      name: 'gateway_stream_bytes_total',
      help: 'Bytes written to event streams',
      registers,
    }),
    tokens: new Counter({
      name: 'gateway_tokens_total',
      help: 'Tokens read and written by models',
      labelNames: ['direction', 'model'] as const,
      registers,
    }),
    upstreamRequests: new Counter({
      name: 'gateway_upstream_requests_total',
      help: 'Attempts at providers, by how they ended',
      labelNames: ['provider', 'outcome'] as const,
      registers,
    }),
    upstreamLatency: new Histogram({
      name: 'gateway_upstream_latency_seconds',
      help: 'From sending a request to a provider to its response headers',
      labelNames: ['provider'] as const,
      buckets: DURATION_BUCKETS,
      registers,
    }),
  }
}
