/** Settings of time limits: for providers, requests, uploads, clients and shutdown. Pure. */
import { Type } from '@sinclair/typebox'
import { group, Milliseconds, setting } from '../settings/setting.ts'

export const timeoutsSettings = group({
  upstreamHeadersMs: setting(
    Milliseconds,
    'time limit for the first byte from a provider, since reasoning models may think for most of a minute; exceeding it is 524',
    { default: 60_000 },
  ),
  upstreamIdleMs: setting(
    Milliseconds,
    'longest pause between two chunks from a provider; exceeding it is 524, or `response.failed` in a stream',
    { default: 60_000 },
  ),
  requestMs: setting(
    Milliseconds,
    'total time of a request, long enough for agent turns of several minutes; exceeding it is 408',
    {
      default: 600_000,
    },
  ),
  heartbeatMs: setting(
    Milliseconds,
    'a stream that is silent for this long gets a comment line, so that proxies keep the connection: most cut it after 60 s',
    { default: 15_000 },
  ),
  stallMs: setting(
    Milliseconds,
    'a client that reads nothing for this long is disconnected; a longer time only keeps buffers in memory',
    { default: 30_000 },
  ),
  uploadMs: setting(Milliseconds, 'total time for a request body', { default: 300_000 }),
  drainMs: setting(Milliseconds, 'grace period for running requests after SIGTERM', { default: 30_000 }),
  drainDelayMs: setting(
    Type.Integer({ minimum: 0, maximum: 600_000 }),
    'delay between readiness 503 and closing the listener. Behind a load balancer that polls `/readyz`, set twice its polling interval',
    { default: 0 },
  ),
})
