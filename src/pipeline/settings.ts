/** Settings of routing, accounting and time limits. Pure. */
import { Type } from '@sinclair/typebox'
import { group, Milliseconds, oneOf, setting } from '../base/settings/setting.ts'
import { ABORT_POLICIES } from '../protocol/provider.ts'

export const routingSettings = group({
  loadBalancing: setting(
    Type.Boolean(),
    'true: the first endpoint of a request is [picked at random, weighted by price](routing.md#price). false: endpoints are tried in the order of the file. Endpoints without known prices always keep that order',
    { default: true },
  ),
  breakerFailures: setting(
    Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 1_000_000 })], {
      expected: 'null or an integer from 1 to 1000000',
    }),
    'number of failures within 30 s, either consecutive or more than the successes, after which an endpoint is [not used for a while](routing.md#health). null: it is always used, even before its `Retry-After` has passed',
    { default: 5 },
  ),
  hedgeAfterMs: setting(
    Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 600_000 })], {
      expected: 'null or an integer from 1 to 600000',
    }),
    'how long an endpoint may stay silent before [a second one is tried as well](routing.md#hedging). null: never, because providers may bill a hedged request twice',
    { default: null },
  ),
})

export const accountingSettings = group({
  onAbort: setting(
    oneOf(ABORT_POLICIES),
    'what happens to the provider request when its caller disconnects. `finish`: before any content it is closed at once, later at the next content or after 2 s of silence, so that the last frames can still report usage. `cancel`: it is closed at once. `drain`: it is read to the end (at most 64 replies per thread and 16 per key, 4 MiB and 60 s each). Usage that the provider did not report is estimated',
    { default: 'finish', required: true },
  ),
})

export const byokSettings = group({
  feePercent: setting(
    Type.Number({ minimum: 0, maximum: 100 }),
    "fee for a request on a customer's own credential, in percent of its catalogue price; shown as `usage.cost`. The provider bills the owner of the credential directly",
    { default: 0 },
  ),
})

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
    'a client that reads nothing of a running stream for this long is disconnected; a longer time only keeps buffers in memory. What is left of an answer at its end has 10 s or a little more',
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
