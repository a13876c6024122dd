/** Ten thousand random walks of money; `test/callers/limits/money-walks.test.ts` has some of them. */
import t from 'tap'
import { moneyWalks } from '../callers/limits/money-walks.ts'

t.setTimeout(1_800_000)
moneyWalks(t, Number(process.env['MONEY_WALKS'] ?? 10_000), { withRedis: true })
