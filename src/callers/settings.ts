/** Settings of the limits of API keys. Pure. */
import { Type } from '@sinclair/typebox'
import { group, PerMinute, setting } from '../base/settings/setting.ts'

export const quotasSettings = group({
  requestsPerMinute: setting(
    PerMinute,
    'requests of one API key per clock minute, including failed ones; further ones are rejected with 429. A key can have [a limit of its own](rate-limits.md). null: no limit',
    { default: null },
  ),
  tokensPerMinute: setting(
    PerMinute,
    'input and output tokens of one API key per clock minute, reserved when the request is admitted and corrected by its usage. A key can have a limit of its own. null: no limit',
    { default: null },
  ),
  nodes: setting(
    Type.Integer({ minimum: 1, maximum: 10_000 }),
    'number of instances that share the limits. Without Redis, or while it is unavailable, each instance may use the last known balance divided by this number',
    { default: 1 },
  ),
})
