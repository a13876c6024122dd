/** A PostgreSQL server that belongs to the test, on a free port; it can be killed and restarted. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { Test } from 'tap'
import { freePort } from '../support/free-port.ts'

/** Where Debian puts each version; the newest one is used. */
const VERSIONS = '/usr/lib/postgresql'

export interface PostgresServer {
  /** For `openStore`. */
  readonly url: string
  /** Resolves when it answers queries. */
  start(): Promise<void>
  /** SIGKILL to all its processes: what it had committed is there at the next start. */
  kill(): Promise<void>
  /** All its processes stand still; connections stay. */
  freeze(): void
  thaw(): void
}

function binaries(): string | null {
  const versions = existsSync(VERSIONS)
    ? readdirSync(VERSIONS)
        .map(Number)
        .sort((a, b) => b - a)
    : []
  return versions.map(version => join(VERSIONS, String(version), 'bin')).find(existsSync) ?? null
}

/** Why suites that need a server of their own are left out, or false; where all has to run, missing it is a failure. */
export const WITHOUT_POSTGRES_SERVER: string | false =
  process.env['CI'] === 'true' || binaries() !== null ? false : 'the PostgreSQL server is not installed'

/** Not started yet. Ends with the test. */
export async function ownPostgres(t: Pick<Test, 'teardown'>): Promise<PostgresServer> {
  const folder = binaries()
  if (folder === null) throw new Error('the PostgreSQL server is not installed')
  const data = mkdtempSync(join(tmpdir(), 'sluice-postgres-'))
  const owner = account()
  if (owner !== null) chownSync(data, owner.uid, owner.gid)
  const as = owner ?? {}
  execFileSync(join(folder, 'initdb'), ['-D', data, '-U', 'sluice', '-A', 'trust', '--no-sync'], {
    ...as,
    cwd: data,
    stdio: 'ignore',
  })
  const port = await freePort()
  const url = `postgres://sluice@127.0.0.1:${port}/postgres`
  let child: ChildProcess | null = null
  const kill = async (): Promise<void> => {
    const running = child
    child = null
    if (running === null || running.exitCode !== null || running.signalCode !== null) return
    const closed = once(running, 'close')
    // Its children would answer on for a moment: it makes no more of them, then all go.
    running.kill('SIGSTOP')
    const pids = childrenOf(running)
    running.kill('SIGKILL')
    await closed
    signal(pids, 'SIGKILL')
  }
  t.teardown(async () => {
    await kill()
    // Its processes notice, and let go of their files.
    rmSync(data, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  })
  const options = [
    ...['fsync=off', 'max_connections=50', 'shared_buffers=16MB', 'listen_addresses=127.0.0.1'],
    `unix_socket_directories=${data}`,
  ]
  return {
    url,
    kill,
    freeze() {
      child?.kill('SIGSTOP')
      signal(childrenOf(child), 'SIGSTOP')
    },
    thaw() {
      signal(childrenOf(child), 'SIGCONT')
      child?.kill('SIGCONT')
    },
    async start() {
      // It refuses until the last process of the one before is gone.
      for (;;) {
        const words = ['-D', data, '-p', String(port), ...options.flatMap(option => ['-c', option])]
        const started = spawn(join(folder, 'postgres'), words, { ...as, cwd: data, stdio: 'ignore' })
        child = started
        while (started.exitCode === null && !(await answers(url))) await pause()
        if (started.exitCode === null) return
        await pause()
      }
    },
  }
}

function childrenOf(process: ChildProcess | null): readonly number[] {
  if (process === null) return []
  const { pid } = process
  return (readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').match(/\d+/g) ?? []).map(Number)
}

function signal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name)
    } catch {
      // It has ended by itself.
    }
  }
}

/** The server refuses to run as root. */
function account(): { readonly uid: number; readonly gid: number } | null {
  if (process.getuid?.() !== 0) return null
  const id = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }))
  return { uid: id('-u'), gid: id('-g') }
}

async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 1_000 })
  client.on('error', () => undefined)
  try {
    await client.connect()
    await client.query('select 1')
    return true
  } catch {
    return false
  } finally {
    await client.end().catch(() => undefined)
  }
}

const pause = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 20))
