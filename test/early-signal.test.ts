/** A signal that comes while the gateway is still starting, as from an orchestrator that changed its mind. */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import t from 'tap'
import { MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './support/product.ts'

t.test('a gateway that is told to stop while it starts ends in order, not by the signal', async t => {
  // A database that takes connections and never answers: whoever connects to it is starting, and goes on for a while.
  const sockets: Socket[] = []
  const database = createServer(socket => {
    sockets.push(socket.on('error', () => undefined))
  }).listen(0, '127.0.0.1')
  await once(database, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    database.close()
  })
  const { port } = database.address() as AddressInfo
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, MAIN], {
    cwd: t.testdir(),
    env: {
      ...PRODUCT_ENVIRONMENT,
      GATEWAY_PORT: '0',
      GATEWAY_ADMIN_PORT: '0',
      GATEWAY_VAULT_KEYS: `k1:${randomBytes(32).toString('base64')}`,
      DATABASE_URL: `postgres://somebody@127.0.0.1:${port}/gateway`,
    },
  })
  t.teardown(() => child.kill('SIGKILL'))
  let stdout = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  database.once('connection', () => child.kill('SIGTERM'))
  const [code, signal] = await once(child, 'close')
  t.same([code, signal], [0, null])
  const told = [...stdout.matchAll(/"msg":"(listening|draining)"/g)].map(([, message]) => message)
  t.same(told, ['listening', 'draining'])
})
