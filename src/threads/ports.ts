/** The ports of a gateway: the public one is chosen before threads share it, the admin one is opened. Main thread. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import type { Config } from '../config/config.ts'
import { type AdminServer, startAdmin } from './admin.ts'
import { StartError } from './supervised-thread.ts'

/**
 * The port to serve on. Bound exclusively first, because threads share theirs and would share it with another program
 * unnoticed, unless the operator wants sharing; and because a free one (0) has to be the same for all.
 * @throws StartError
 */
export async function choosePort({ listen: { host, port, shared } }: Config): Promise<number> {
  if (shared && port !== 0) return port
  const probe = createServer()
  try {
    probe.listen({ host, port, exclusive: true })
    await once(probe, 'listening')
    return (probe.address() as AddressInfo).port
  } catch (error) {
    throw cannotListen('listen.port', host, port, error)
  } finally {
    probe.close()
  }
}

function cannotListen(field: string, host: string, port: number, error: unknown): StartError {
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown'
  return new StartError(`${field}: cannot listen on ${host}:${port} (${code})`, code === 'EADDRINUSE')
}

export async function openAdmin(
  config: Config,
  sources: Parameters<typeof startAdmin>[2],
): Promise<AdminServer> {
  const { host, port } = config.admin
  try {
    return await startAdmin(host, port, sources)
  } catch (error) {
    throw cannotListen('admin.port', host, port, error)
  }
}
