/** What the kernel holds for readers that do not read, from its table and from real sockets. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import t from 'tap'
import { unreadBytes } from '../../bench/kernel-queues.ts'

t.test('bytes on their way from a port and bytes that have arrived from it are counted', async t => {
  const line = (local: string, remote: string, queues: string) =>
    `   0: 0100007F:${local} 0100007F:${remote} 01 ${queues} 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1`
  const table = [
    '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt',
    line('1F90', 'C350', '00000010:00000400'),
    line('C350', '1F90', '00000800:00000001'),
    line('C351', '1F91', '00001000:00001000'),
    '',
  ].join('\n')
  t.equal(unreadBytes(0x1f90, table), 0x10 + 0x1)
  t.equal(unreadBytes(1, table), 0)
})

t.test('a client that never reads has all that was sent in its queue', async t => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const client = connect(port, '127.0.0.1')
  const [taken] = await once(server, 'connection')
  t.teardown(() => {
    client.destroy()
    taken.destroy()
    server.close()
  })
  client.pause()
  await new Promise(resolve => taken.write(Buffer.alloc(10_000), resolve))
  t.equal(unreadBytes(port), 10_000)
})
