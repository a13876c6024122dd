/** A Redis connection while Redis is away. How commands and outages go is with those who send them. */
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { type AddressInfo, createServer } from 'node:net'
import t from 'tap'
import { openRedis } from '../../src/storage/redis.ts'
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
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
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
  let faults = 0
  const log = { fault: () => faults++, notice: () => undefined }
  // Of different options: the library keeps the class of the last ones only.
  const connections = [1_000, 2_000].map(silenceMs =>
    openRedis({ url: `redis://127.0.0.1:${port}`, clock, log, silenceMs }),
  )
  await until('ten tries', () => {
    clock.advance(100)
    return tries >= 10
  })
  t.equal(made, 2)
  t.equal(faults, 2, 'one error an outage')
  for (const connection of connections) {
    t.equal(connection.isReady, false)
    connection.close()
  }
})
