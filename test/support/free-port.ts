/** Free ports for servers that must be given their port. */
import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * A port below those that the system hands out by itself: it has to stay free until its server is started, and while
 * that is stopped. Of the others, whoever keeps calling a port that nobody listens on may be given that very port for
 * its own end: it is then connected to itself, and the server cannot have the port.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000)
    const probe = createServer()
    try {
      probe.listen(port, '127.0.0.1')
      await once(probe, 'listening')
      return port
    } catch {
      // Taken: another one.
    } finally {
      probe.close()
    }
  }
}
