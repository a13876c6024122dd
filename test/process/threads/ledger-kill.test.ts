/** The short form of test/heavy/ledger-kill.test.ts: the guarantee of the ledger, five kills. */
import t from 'tap'
import { killRounds } from './ledger-kill.ts'

t.test('five kills under load lose and double no usage record', async t => {
  const totals = await killRounds(t, 5)
  t.comment(JSON.stringify(totals))
  t.ok(totals.ended >= 50, 'there was something to lose')
  t.match(totals, { lost: 0, double: 0, wrongCost: 0 })
})
