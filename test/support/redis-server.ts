/** A Redis of the test's own, on a free port, that can be stopped, frozen and started again. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Test } from 'tap'
import { freePort } from './free-port.ts'

export interface RedisServer {
  readonly url: string
  readonly port: number
  start(): Promise<void>
  kill(): Promise<void>
  freeze(): void
  thaw(): void
}

/** Why suites that need Redis are left out, or false; where everything has to run, missing it is a failure. */
export const WITHOUT_REDIS: string | false =
  process.env['CI'] === 'true' || spawnSync('redis-server', ['--version']).status === 0
    ? false
    : 'redis-server is not installed'

/** Not started yet. Ends with the test. */
export async function ownRedis(t: Pick<Test, 'teardown'>): Promise<RedisServer> {
  const port = await freePort()
  let child: ChildProcess | null = null
  const kill = async (): Promise<void> => {
    const running = child
    child = null
    if (running === null || running.exitCode !== null || running.signalCode !== null) return
    const closed = once(running, 'close')
    running.kill('SIGKILL')
    await closed
  }
  t.teardown(kill)
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    async start() {
      const started = spawn('redis-server', ['--port', String(port), '--save', '', '--bind', '127.0.0.1'], {
        stdio: 'ignore',
      })
      child = started
      while (!(await answers(port))) {
        if (started.exitCode !== null) throw new Error('redis-server did not start')
        await new Promise(resolve => setTimeout(resolve, 10))
      }
    },
    kill,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
  }
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    socket.write('PING\r\n')
    const [reply] = (await once(socket, 'data')) as [Buffer]
    return reply.toString().startsWith('+PONG')
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}
