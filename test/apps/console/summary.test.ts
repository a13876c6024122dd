/** The summary of the first view: what is wrong now. */
import t from 'tap'
import type { RequestRow, RowAttempt } from '../../../src/apps/console/request-row.ts'
import { failingProviders } from '../../../src/apps/console/summary.ts'

const SINCE = '2026-01-01T00:00:00.000Z'
const attempt = (provider: string, status: number | null, error: string | null): RowAttempt => ({
  provider,
  status,
  error,
  cause: null,
})
const good = (provider: string) => attempt(provider, null, null)
const down = (provider: string) => attempt(provider, null, 'provider_unavailable')
/** Oldest first. */
const rows = (...all: readonly (readonly RowAttempt[])[]): RequestRow[] =>
  all.map((attempts, at) => ({ at: `2026-01-01T00:00:${10 + at}.000Z`, attempts }) as RequestRow)
const failing = (...all: readonly (readonly RowAttempt[])[]) =>
  Object.fromEntries(failingProviders(rows(...all), SINCE))

t.test(
  'a provider that failed in its last three attempts is named, also where another one served',
  async t => {
    const served = [down('a'), good('b')]
    t.same(failing(served, served), {})
    t.same(failing(served, served, served), { a: 3 })
    t.same(failing([good('a')], served, served, served, [good('b')]), { a: 3 })
    t.same(failing([down('a'), down('a'), down('a')]), { a: 3 }, 'tries of one request')
  },
)

t.test('one that answered since is well, and so is one that refused what a caller sent', async t => {
  const served = [down('a'), good('b')]
  t.same(failing(served, served, served, [good('a')]), {})
  t.same(failing(served, served, [attempt('a', 400, 'invalid_request')], served), {})
  t.same(failing(...Array.from({ length: 4 }, () => [attempt('a', 429, 'rate_limit_exceeded')])), { a: 4 })
})

t.test('what is older than the window does not count', async t => {
  const all = rows([down('a')], [down('a')], [down('a')])
  t.same(Object.fromEntries(failingProviders(all, '2026-01-01T00:00:11.000Z')), {})
})
