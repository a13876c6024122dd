/** All checks, in the order in which they run: checks that may harm the gateway come last. */
import type { Check } from '../check.ts'
import { CHAOS_CHECKS } from './chaos.ts'
import { ERROR_CHECKS } from './errors.ts'
import { FRAMING_CHECKS } from './framing.ts'
import { REPLY_CHECKS } from './replies.ts'
import { SDK_CHECKS } from './sdk.ts'
import { STREAM_CHECKS } from './streams.ts'
import { UPSTREAM_CHECKS } from './upstream.ts'

export const CHECKS: readonly Check[] = [
  ...REPLY_CHECKS,
  ...STREAM_CHECKS,
  ...ERROR_CHECKS,
  ...FRAMING_CHECKS,
  ...SDK_CHECKS,
  ...UPSTREAM_CHECKS,
  ...CHAOS_CHECKS,
]
