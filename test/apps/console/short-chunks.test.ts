/** Bodies that the admin port gets in chunks of one byte: the console refuses them, and nothing else reads them. */
import t from 'tap'
import { startConsoleWorld } from '../../support/console-world.ts'
import { RawClient } from '../../support/raw-http.ts'

t.test('a body in chunks of one byte', async t => {
  const world = await startConsoleWorld(t)
  for (const [method, path, status, message] of [
    ['POST', '/console/data/api/keys', 400, /after 1000 chunks, their mean length must be at least 64 bytes/],
    ['POST', '/console/data/nothing', 405, /Method not allowed/],
    ['GET', '/healthz', 200, /"ok"/],
    ['POST', '/healthz', 405, /method not allowed/],
  ] as const) {
    await t.test(`${method} ${path}: ${status}, and the connection closes`, async t => {
      const client = new RawClient(Number(new URL(world.gateway.adminUrl).port))
      // The body does not end: only the gateway closes the connection.
      await client.send(
        `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${world.managementKey}\r\n` +
          'Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n' +
          '1\r\nx\r\n'.repeat(1_500),
      )
      await client.untilClosed()
      t.match(client.text, new RegExp(`^HTTP/1.1 ${status} `))
      t.match(client.text, message)
    })
  }
})
