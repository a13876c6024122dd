/** A Redis server that belongs to the test, on a free port; it can be stopped, frozen and restarted. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Test } from 'tap'
import { freePort } from './free-port.ts'
import { pause } from './stream-probe.ts'

const START_TRIES = 50

export interface RedisServer {
  /** Asked for, it stays: the server is then started there and nowhere else. */
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
  let port = await freePort()
  /** Somebody relies on the port. */
  let isTold = false
  const tell = (): number => {
    isTold = true
    return port
  }
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
    get url() {
      return `redis://127.0.0.1:${tell()}`
    },
    get port() {
      return tell()
    },
    async start() {
      // Somebody else may have taken the port meanwhile; whoever tries out ports has it for a moment only.
      for (let tries = 0; tries < START_TRIES; tries++) {
        const words = ['--port', String(port), '--save', '', '--bind', '127.0.0.1']
        const started = spawn('redis-server', words, { stdio: 'ignore' })
        child = started
        while (started.exitCode === null && !(await answers(port, started.pid ?? 0))) await pause(10)
        if (started.exitCode === null) return
        if (isTold) await pause(100)
        else port = await freePort()
      }
      throw new Error('redis-server did not start')
    },
    kill,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
  }
}

/** Whether this very process answers there, and not the Redis of another test. */
async function answers(port: number, pid: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    socket.write('INFO server\r\n')
    let text = ''
    for await (const bytes of socket) {
      text += String(bytes)
      const found = /^process_id:(\d+)\r$/m.exec(text)?.[1]
      if (found !== undefined) return Number(found) === pid
    }
    return false
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}
