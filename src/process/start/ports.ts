/** The ports of a gateway: chooses the public one, opens the admin port, and explains why a port is unavailable. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import type { Config } from '../config/settings.ts'
import { type AdminServer, startAdmin } from '../threads/admin.ts'
import { StartError } from '../threads/supervised-thread.ts'

/**
 * Chooses the port to serve on. It is first bound exclusively: threads share their port, and would share it with
 * another program unnoticed, unless the operator wants sharing; and a free port (0) has to be the same for all threads.
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
    throw cannotListen('listen', host, port, error)
  } finally {
    probe.close()
  }
}

/** The variables that select another port. */
const PORT_VARIABLES = {
  listen: { host: 'GATEWAY_HOST', port: 'GATEWAY_PORT' },
  admin: { host: 'GATEWAY_ADMIN_HOST', port: 'GATEWAY_ADMIN_PORT' },
} as const

function cannotListen(
  group: keyof typeof PORT_VARIABLES,
  host: string,
  port: number,
  error: unknown,
): StartError {
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown'
  const isTaken = code === 'EADDRINUSE'
  const field = isTaken || code === 'EACCES' ? 'port' : 'host'
  const reason = isTaken ? `: another program is using it (${code})` : ` (${code})`
  const remedy = `set ${group}.${field} or ${PORT_VARIABLES[group][field]}`
  return new StartError(`${group}.${field}: cannot listen on ${host}:${port}${reason}; ${remedy}`, isTaken)
}

/** @throws StartError */
export async function openAdmin(
  config: Config,
  sources: Parameters<typeof startAdmin>[1],
): Promise<AdminServer> {
  const { host, port, hosts } = config.admin
  const { publicUrl: consoleUrl } = config.console
  const allowedHosts = consoleUrl === null ? hosts : [...hosts, new URL(consoleUrl).hostname]
  try {
    return await startAdmin({ host, port, hosts: allowedHosts }, sources)
  } catch (error) {
    throw cannotListen('admin', host, port, error)
  }
}

/** The address of the public port, without a path. */
export function publicUrl(host: string, port: number, isSecure: boolean): string {
  return `${isSecure ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`
}

/** An address of this machine, if the gateway listens on all addresses. */
export function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1'
  return host === '::' ? '::1' : host
}
