import t from 'tap'
import { chargeOf, limitUsageOf } from '../../../src/callers/limits/spending.ts'

const sum = { requests: 2, inputTokens: 0n, outputTokens: 0n, cost: 1_100n, byokCost: 100n }

t.test('of what ran on own credentials the fee alone is charged', async t => {
  t.equal(chargeOf(sum, 0), 1_000n)
  t.equal(chargeOf(sum, 5), 1_005n)
  t.equal(chargeOf(sum, 2.5), 1_002n, 'never more than asked')
  t.equal(
    chargeOf({ ...sum, cost: sum.cost * 10n ** 18n, byokCost: sum.byokCost * 10n ** 18n }, 0.1),
    1_000_100n * 10n ** 15n,
  )
})

t.test('towards a limit they count in full when the key says so', async t => {
  t.equal(limitUsageOf({ includeByokInLimit: false }, sum, 5), 1_005n)
  t.equal(limitUsageOf({ includeByokInLimit: true }, sum, 0), 1_100n)
  t.equal(limitUsageOf({ includeByokInLimit: true }, sum, 5), 1_105n)
})
