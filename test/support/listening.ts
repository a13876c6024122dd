/** A server of a test on a free port of this machine. */
import { once } from 'node:events'
import type { Server as HttpServer } from 'node:http'
import type { AddressInfo, Server } from 'node:net'
import type { Test } from 'tap'

/** @param t the test with whose end the server and its connections end; without it, the caller closes the server */
export async function listening(
  server: Server & { closeAllConnections?: () => void },
  t?: Pick<Test, 'teardown'>,
  host = '127.0.0.1',
): Promise<{ readonly port: number; readonly url: string }> {
  server.listen(0, host)
  await once(server, 'listening')
  t?.teardown(() => {
    server.close()
    server.closeAllConnections?.()
  })
  const { port } = server.address() as AddressInfo
  return { port, url: `http://127.0.0.1:${port}` }
}

/** Ends a server and its connections; resolves when it has closed. */
export async function closing(server: HttpServer): Promise<void> {
  server.closeAllConnections()
  await new Promise(done => server.close(done))
}
