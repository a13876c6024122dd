/** A thousand requests whose clients time out and ask again, at two instances: a thousand runs, a thousand bills. */
import t from 'tap'
import { withoutPostgres } from '../support/postgres.ts'
import { WITHOUT_REDIS } from '../support/redis-server.ts'
import { retryAtTwoNodes } from '../support/retries.ts'

const REQUESTS = 1_000

t.test(
  `${REQUESTS} requests are sent in 1 to 5 rounds to two instances`,
  { skip: WITHOUT_REDIS || (await withoutPostgres()), timeout: 600_000 },
  t => retryAtTwoNodes(t, REQUESTS),
)
