/** The short form of test/heavy/store-kill.test.ts: three kills on each engine. */
import t from 'tap'
import { withoutPostgres } from '../support/postgres.ts'
import { killOnPostgres, killOnSqlite } from './store-kill.ts'

t.test('three kills lose and double nothing on SQLite', async t => {
  await killOnSqlite(t, 3)
})

t.test('three kills lose and double nothing on PostgreSQL', { skip: await withoutPostgres() }, async t => {
  await killOnPostgres(t, 3)
})
