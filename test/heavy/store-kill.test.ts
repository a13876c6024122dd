/** The promises of the store of batches: whatever moment a process is killed at, they are kept. */
import t from 'tap'
import { killOnPostgres, killOnSqlite } from '../storage/store-kill.ts'
import { withoutPostgres } from '../support/postgres.ts'

const ROUNDS = Number(process.env['STORE_KILL_ROUNDS'] ?? 40)

t.setTimeout(ROUNDS * 20_000)

t.test(`${ROUNDS} kills lose and double nothing on SQLite`, async t => {
  await killOnSqlite(t, ROUNDS)
})

t.test(
  `${ROUNDS} kills lose and double nothing on PostgreSQL`,
  { skip: await withoutPostgres() },
  async t => {
    await killOnPostgres(t, ROUNDS)
  },
)
