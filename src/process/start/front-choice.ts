/** Chooses the HTTP front and the number of threads that serve with it, before threads start. Main thread. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { isError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import { coresMinusOne } from '../../base/settings/setting.ts'
import { type FrontName, loadFront } from '../../server/http-libraries.ts'
import type { Config } from '../config/settings.ts'
import { StartError } from '../threads/supervised-thread.ts'

/** The configuration, with the front that was chosen. */
interface ChosenFront {
  readonly config: Config
  readonly front: FrontName
}

/**
 * Loads the front that `listen.front` names. If its sockets cannot share a port on this system, only one thread serves.
 * @param canShare default: tested
 * @throws StartError if it cannot be loaded, or if the configuration requires a shared port
 */
export async function chooseFront(
  config: Config,
  log: Pick<Log, 'notice'>,
  canShare: () => Promise<boolean> = sharesPorts,
): Promise<ChosenFront> {
  const { listen, threads } = config
  const front = await nameOf(listen.front)
  const chosenConfig: Config = { ...config, listen: { ...listen, front } }
  if (front === 'uws' || (threads.serve === 1 && !listen.shared) || (await canShare()))
    return { config: chosenConfig, front }
  const reason = `the node HTTP front cannot share a port on ${process.platform}`
  if (listen.shared) throw new StartError(`listen.shared: must be false, because ${reason}`, false)
  if (threads.serve !== coresMinusOne.default())
    throw new StartError(`threads.serve: must be 1, because ${reason}`, false)
  log.notice(
    'server',
    'serving with one thread, because this HTTP front cannot share its port between threads on this system',
    { front },
  )
  return { config: { ...chosenConfig, threads: { ...threads, serve: 1 } }, front }
}

async function nameOf(choice: Config['listen']['front']): Promise<FrontName> {
  try {
    return (await loadFront(choice)).name
  } catch (error) {
    const code: unknown = isError(error) ? Reflect.get(error, 'code') : undefined
    const [reason] = isError(error) ? error.message.split('\n') : []
    throw new StartError(
      `listen.front: ${choice} cannot be loaded here (${String(code ?? reason)}); set auto or node`,
      false,
    )
  }
}

async function sharesPorts(): Promise<boolean> {
  const probe = createServer()
  try {
    probe.listen({ host: '127.0.0.1', port: 0, reusePort: true })
    await once(probe, 'listening')
    return true
  } catch {
    return false
  } finally {
    probe.close()
  }
}
