/** Settings of routing, accounting and customers' own credentials. Pure. */
import { Type } from '@sinclair/typebox'
import { group, oneOf, setting } from '../base/settings/setting.ts'
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
