/** The transcripts of a process with Redis, as its settings start them. */
import { randomBytes } from 'node:crypto'
import t from 'tap'
import { loadConfig } from '../../../src/process/config/config.ts'
import { startTranscripts } from '../../../src/process/threads/transcripts.ts'
import { isEarlierClaim } from '../../../src/storage/transcripts/transcripts.ts'
import { until } from '../../support/patience.ts'
import { ownRedis, WITHOUT_REDIS } from '../../support/redis-server.ts'
import { TestClock } from '../../support/test-clock.ts'

const turn = () => new Promise<void>(resolve => setImmediate(resolve))

t.test(
  'a name is waited for longer than a counter: Redis that answers late does not make a second run',
  { skip: WITHOUT_REDIS },
  async t => {
    const redis = await ownRedis(t)
    await redis.start()
    const standard = loadConfig([], {})
    const config = { ...standard, redis: { ...standard.redis, url: redis.url } }
    const keys = [{ id: 'k', secret: randomBytes(32) }]
    const instance = () => {
      const clock = new TestClock()
      const { store, close } = startTranscripts(config, keys, clock)
      t.teardown(close)
      let claims = 0
      const claim = (name: string) =>
        store.claim(
          {
            id: `${name}-${randomBytes(4).toString('hex')}@once`,
            keyHash: 'hash',
            name,
            digest: 'd',
            unreadMs: 10_000,
            keptMs: 600_000,
          },
          () => undefined,
        )
      return { clock, claim, next: () => `name-${++claims}` }
    }
    const [one, two] = [instance(), instance()]
    let name = ''
    await until('both at Redis', async () => {
      name = one.next()
      await one.claim(name)
      return isEarlierClaim(await two.claim(name))
    })
    name = one.next()
    t.notOk(isEarlierClaim(await one.claim(name)))
    redis.freeze()
    const late = two.claim(name)
    two.clock.advance(config.redis.silenceMs * 10)
    for (let turns = 0; turns < 5; turns++) await turn()
    redis.thaw()
    t.ok(isEarlierClaim(await late), 'the other instance has the name')
  },
)
