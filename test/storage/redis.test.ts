/** A Redis connection while Redis is away. How commands and outages go is with those who send them. */
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import t from 'tap'
import type { Log } from '../../src/base/log/log.ts'
import { openRedis } from '../../src/storage/redis.ts'
import { listening } from '../support/listening.ts'
import { until } from '../support/patience.ts'
import { TestClock } from '../support/test-clock.ts'

interface Library {
  readonly default: { factory(config: object): unknown }
}
const { default: library } = createRequire(import.meta.resolve('@redis/client'))(
  './lib/client/index.js',
) as Library

t.test('a long outage makes no new class of the library for each try', async t => {
  let tries = 0
  const server = createServer(socket => {
    tries++
    socket.destroy()
  })
  const { port } = await listening(server, t)
  let made = 0
  const { factory } = library
  library.factory = config => {
    made++
    return factory.call(library, config)
  }
  t.teardown(() => {
    library.factory = factory
  })
  const clock = new TestClock()
  const hosts: unknown[] = []
  const log = {
    fault: (...[, , , fields]: Parameters<Log['fault']>) => void hosts.push(fields),
    notice: () => undefined,
  }
  // Of different options: the library keeps the class of the last ones only.
  const connections = [1_000, 2_000].map(silenceMs =>
    openRedis({ url: `redis://:s3cret@127.0.0.1:${port}`, clock, log, silenceMs }),
  )
  await until('ten tries', () => {
    clock.advance(100)
    return tries >= 10
  })
  t.equal(made, 2)
  const host = `127.0.0.1:${port}`
  t.same(hosts, [{ host }, { host }], 'one error an outage, with the place and no password')
  for (const connection of connections) {
    t.equal(connection.isReady, false)
    connection.close()
  }
})
