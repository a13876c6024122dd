/** The guarantee of the ledger: whatever moment the process is killed at, what was answered is accounted, once. */
import t from 'tap'
import { killRounds } from '../process/threads/ledger-kill.ts'

const ROUNDS = Number(process.env['ROUNDS'] ?? 200)

t.setTimeout(ROUNDS * 10_000)

t.test(`${ROUNDS} kills under load lose and double no usage record`, async t => {
  const totals = await killRounds(t, ROUNDS)
  t.comment(JSON.stringify(totals))
  t.ok(totals.ended > ROUNDS * 10, 'there was something to lose')
  t.ok(totals.unshipped > 0, 'the kills came before the shipment')
  t.match(totals, { lost: 0, double: 0, wrongCost: 0 })
})
