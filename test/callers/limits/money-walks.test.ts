/**
 * The rules of money, in random walks: spent and reserved money never exceeds a limit, a refusal is 402 where waiting
 * cannot help and 429 where it can, and after the end nothing is reserved and the counters have what the ledger has.
 * Walks with Redis, which take turns that no clock of a test decides, are in `test/heavy/money-walks.test.ts`.
 */
import t from 'tap'
import { moneyWalks } from './money-walks.ts'

t.setTimeout(600_000)
moneyWalks(t, 200, { withRedis: false })
