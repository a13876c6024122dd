/** The guarantee of batches: whatever moment the process is killed at, each line ends in exactly one result. */
import t, { type Test } from 'tap'
import { killBatches } from '../support/batch-kill.ts'
import { postgresSchema, withoutPostgres } from '../support/postgres.ts'

const roundsOr = (rounds: number): number => Number(process.env['ROUNDS'] ?? rounds)
const SKIP = await withoutPostgres()

t.setTimeout(7_200_000)

async function holds(t: Test, rounds: number, nodes: 1 | 2, databaseUrl: string | null): Promise<void> {
  const totals = await killBatches(t, { rounds, nodes, databaseUrl })
  t.comment(JSON.stringify(totals))
  t.match(totals, { lost: 0, broken: [], backward: [], unrecorded: 0 })
  t.ok(totals.acknowledged >= rounds, 'there was something to lose')
  t.ok(totals.inFlight > 0, 'kills came while lines ran')
  t.ok(totals.repeated <= totals.inFlight, 'no more was asked twice than what was in flight')
}

t.test('kills on SQLite', async t => {
  await holds(t, roundsOr(200), 1, null)
})

t.test('kills on PostgreSQL', { skip: SKIP }, async t => {
  await holds(t, roundsOr(50), 1, (await postgresSchema(t)).url)
})

t.test('kills of one of two nodes on PostgreSQL', { skip: SKIP }, async t => {
  await holds(t, roundsOr(50), 2, (await postgresSchema(t)).url)
})
