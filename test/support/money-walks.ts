/** Runs random walks of money on every kind of counters and every Store; see `money-walk.ts`. */
import { createClient } from '@redis/client'
import fc from 'fast-check'
import type { Test } from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { type FleetOptions, openFleet, run, type Tally, walks } from './money-walk.ts'
import { postgresSchema, withoutPostgres } from './postgres.ts'
import { search } from './property.ts'
import { ownRedis, WITHOUT_REDIS } from './redis-server.ts'

const WITHOUT_POSTGRES = await withoutPostgres()

const STORES = [
  { name: 'SQLite', skip: false, open: async (_: Test) => openStore('sqlite::memory:') },
  {
    name: 'PostgreSQL',
    skip: WITHOUT_POSTGRES,
    open: async (t: Test) => openStore((await postgresSchema(t)).url),
  },
]
const FLEETS = [
  { name: 'one node', nodes: 1, redis: false },
  { name: 'two nodes that share only the Store', nodes: 2, redis: false },
  { name: 'two nodes with one Redis', nodes: 2, redis: true },
] as const

/** `count` walks, shared out over all combinations; `withRedis: false` leaves out those whose counters are in Redis. */
export function moneyWalks(t: Test, count: number, { withRedis }: { readonly withRedis: boolean }): void {
  const fleets = FLEETS.filter(({ redis }) => withRedis || !redis)
  const each = Math.ceil(count / (STORES.length * fleets.length))
  for (const { name, skip, open } of STORES) {
    for (const fleet of fleets) {
      const away = skip !== false ? skip : fleet.redis ? WITHOUT_REDIS : false
      t.test(`${each} walks: ${fleet.name}, ${name}`, { skip: away }, async t => {
        const store = await open(t)
        t.teardown(() => store.close())
        const redis = fleet.redis ? await redisFor(t) : null
        const tally: Tally = { begun: 0, served: 0, paid: 0, busy: 0, losses: 0 }
        // Redis outlives a walk, as its counters have the name of the walk.
        const shared = redis === null ? null : await openFleet({ store, redis, nodes: fleet.nodes })
        t.teardown(() => shared?.close())
        await fc.assert(
          fc.asyncProperty(walks, async walk => {
            if (shared !== null) return run(shared, walk, tally)
            const own = await openFleet({ store, redis: null, nodes: fleet.nodes })
            await run(own, walk, tally).finally(() => own.close())
          }),
          search(each),
        )
        t.ok(tally.served > 0 && tally.paid > 0 && tally.busy > 0, JSON.stringify(tally))
      })
    }
  }
}

async function redisFor(t: Test): Promise<NonNullable<FleetOptions['redis']>> {
  const redis = await ownRedis(t)
  await redis.start()
  const client = createClient({ url: redis.url })
  client.on('error', () => undefined)
  await client.connect()
  t.teardown(() => client.destroy())
  return { url: redis.url, run: (...command) => client.sendCommand(command) }
}
