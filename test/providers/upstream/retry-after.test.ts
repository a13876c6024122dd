import t from 'tap'
import { retryAfterSeconds } from '../../../src/providers/upstream/retry-after.ts'
import { TestClock } from '../../support/test-clock.ts'

// Fri, 02 Jan 2026 03:04:05 GMT
const clock = new TestClock(Date.UTC(2026, 0, 2, 3, 4, 5))
const UNIX = clock.nowMs() / 1000

const CASES: readonly (readonly [headers: Record<string, string>, seconds: number | null])[] = [
  [{}, null],
  [{ 'retry-after': '0' }, 0],
  [{ 'retry-after': '7' }, 7],
  [{ 'retry-after': ' 7 ' }, 7],
  [{ 'retry-after': '1.2' }, 2],
  [{ 'retry-after': '86400' }, 86_400],
  [{ 'retry-after': '86401' }, 86_400],
  [{ 'retry-after': '999999999999999' }, 86_400],
  [{ 'retry-after': '9'.repeat(400) }, null],
  [{ 'retry-after': '-5' }, null],
  [{ 'retry-after': '1e3' }, null],
  [{ 'retry-after': '0x10' }, null],
  [{ 'retry-after': 'NaN' }, null],
  [{ 'retry-after': 'Infinity' }, null],
  [{ 'retry-after': '' }, null],
  [{ 'retry-after': 'soon' }, null],
  [{ 'retry-after': '12, 13' }, null],
  [{ 'retry-after': 'Fri, 02 Jan 2026 03:05:05 GMT' }, 60],
  [{ 'retry-after': 'Friday, 02-Jan-26 03:05:05 GMT' }, 60],
  [{ 'retry-after': 'Fri Jan  2 03:05:05 2026' }, 60],
  [{ 'retry-after': 'Fri, 02 Jan 2026 03:04:04 GMT' }, 0],
  [{ 'retry-after': 'Fri, 02 Jan 2099 03:04:04 GMT' }, 86_400],
  [{ 'retry-after': 'Fri, 99 Jan 2026 03:04:04 GMT' }, null],
  [{ 'retry-after': '2026-01-02' }, null],
  [{ 'retry-after-ms': '1500', 'retry-after': '9' }, 2],
  [{ 'retry-after-ms': 'x', 'retry-after': '9' }, 9],
  [{ 'x-ratelimit-reset-requests': '6m0s' }, null],
  [{ 'x-ratelimit-remaining-requests': '3', 'x-ratelimit-reset-requests': '6m0s' }, null],
  [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '6m0s' }, 360],
  [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '1h2m3.5s' }, 3724],
  [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '120ms' }, 1],
  [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '1m30s500ms' }, 91],
  [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': 's' }, null],
  [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '5x' }, null],
  [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '999999h' }, null],
  [
    {
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-reset-requests': '2s',
      'x-ratelimit-remaining-tokens': '0',
      'x-ratelimit-reset-tokens': '9s',
    },
    9,
  ],
  [{ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '30' }, 30],
  [{ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(UNIX + 45) }, 45],
  [{ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String((UNIX + 45) * 1000) }, 45],
  [{ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(UNIX - 45) }, null],
  [{ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(UNIX + 90_000) }, null],
  [
    {
      'anthropic-ratelimit-tokens-remaining': '0',
      'anthropic-ratelimit-tokens-reset': '2026-01-02T03:04:35Z',
    },
    30,
  ],
  [{ 'anthropic-ratelimit-tokens-remaining': '0', 'anthropic-ratelimit-tokens-reset': '2026-01-02' }, null],
  [{ 'retry-after': '4', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '30' }, 4],
]

t.test('whole seconds, rounded up, within a day, and only from what makes sense', t => {
  for (const [headers, seconds] of CASES)
    t.equal(retryAfterSeconds(headers, clock), seconds, JSON.stringify(headers).slice(0, 120))
  t.end()
})
