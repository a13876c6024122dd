/** All time limits of a request, which several rooms keep. Pure. */
import { Type } from '@sinclair/typebox'
import { group, Milliseconds, setting } from './setting.ts'

export const timeoutsSettings = group({
  upstreamHeadersMs: setting(
    Milliseconds,
    'time limit for the first byte from a provider, after which the attempt fails with 524. Reasoning models may think for most of a minute',
    { default: 60_000 },
  ),
  upstreamIdleMs: setting(
    Milliseconds,
    'longest pause between two chunks from a provider. After a longer one the attempt fails with 524, or with `response.failed` in a stream',
    { default: 60_000 },
  ),
  requestMs: setting(
    Milliseconds,
    'time limit for a whole request, after which it fails with 408. The default leaves room for agent turns of several minutes',
    {
      default: 600_000,
    },
  ),
  heartbeatMs: setting(
    Milliseconds,
    'a stream that is silent for this long gets a comment line, so that proxies keep the connection open; most close it after 60 s of silence',
    { default: 15_000 },
  ),
  stallMs: setting(
    Milliseconds,
    'a client that reads nothing of a running stream for this long is disconnected; a longer time only keeps buffers in memory. After the end of an answer, its unread rest is kept for 10 s or a little more',
    { default: 30_000 },
  ),
  uploadMs: setting(Milliseconds, 'total time for a request body', { default: 300_000 }),
  drainMs: setting(Milliseconds, 'grace period for running requests after SIGTERM', { default: 30_000 }),
  drainDelayMs: setting(
    Type.Integer({ minimum: 0, maximum: 600_000 }),
    'how long the listener stays open after `/readyz` has turned to 503. Behind a load balancer that polls `/readyz`, set this to twice the polling interval',
    { default: 0 },
  ),
})
