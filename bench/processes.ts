/**
 * Starts and ends the processes of a bench: pinned to a core, with enough file descriptors, and with their output in
 * files or read line by line. A process is identified and ended by its process id only.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createWriteStream, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { availableParallelism, homedir } from 'node:os'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'

/** Which core each part runs on; null: nothing is pinned. */
export interface Cores {
  readonly proxy: number | null
  readonly upstream: number | null
  readonly load: number | null
  /** Task workers that are kept busy; the load's core where there is none to spare. */
  readonly tasks: number | null
}

/** 5,000 streams through a proxy are 10,000 descriptors. The hard limit of the machine may be lower. */
const FILES_WANTED = 65_536
const STOP_MS = 3_000

export function chooseCores(): Cores {
  const count = availableParallelism()
  if (count < 2 || !has('taskset')) return { proxy: null, upstream: null, load: null, tasks: null }
  return { proxy: 0, load: 1, upstream: count > 2 ? 2 : 1, tasks: count > 3 ? 3 : 1 }
}

/** Whether a command of this name can be run. */
export function has(command: string): boolean {
  return pathOf(command) !== null
}

/** Debian keeps servers outside a user's PATH. */
export function pathOf(command: string): string | null {
  const script = `PATH="$PATH:/usr/sbin:/sbin" command -v "${command}"`
  try {
    return execFileSync('sh', ['-c', script], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
  } catch {
    return null
  }
}

/** What a command says of itself, its first line. */
export function said(command: string, words: readonly string[]): string {
  const script = '"$@" 2>&1'
  try {
    const text = execFileSync('sh', ['-c', script, 'sh', command, ...words], { encoding: 'utf8' })
    return text.split('\n', 1)[0]?.trim() ?? ''
  } catch {
    return 'unknown'
  }
}

export interface Running {
  readonly pid: number
  readonly child: ChildProcess
  /** Lines of standard output, unless it goes to a file. */
  readonly lines: Interface | null
  /** Ends the process and waits for it; kills it when it takes too long. */
  stop(): Promise<void>
}

export interface Start {
  readonly core: number | null
  /** File of its standard error, and of its standard output unless that is read by lines. */
  readonly log: string
  readonly readLines: boolean
  readonly cwd?: string
  readonly environment?: Readonly<Record<string, string>>
}

const running = new Set<Running>()
let over = false

/** Whether a signal has ended the bench: what it measured until then is no run. */
export function isBeingEnded(): boolean {
  return over
}

/** @throws Error once a signal has ended the bench */
export function start(command: string, words: readonly string[], how: Start): Running {
  if (over) throw new Error('the bench is being ended')
  const limit = `ulimit -n ${FILES_WANTED} 2>/dev/null || ulimit -n "$(ulimit -Hn)"; exec "$@"`
  const pin = how.core === null ? [] : ['taskset', '-c', String(how.core)]
  const child = spawn('sh', ['-c', limit, 'sh', ...pin, command, ...words], {
    stdio: ['pipe', 'pipe', 'pipe'],
    ...(how.cwd === undefined ? {} : { cwd: how.cwd }),
    env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '/', ...how.environment },
  })
  const log = createWriteStream(how.log, { flags: 'a' })
  child.stderr.pipe(log)
  if (!how.readLines) child.stdout.pipe(log)
  // A reader that is gone shows in the exit, which everybody waits for.
  child.stdin.on('error', () => undefined)
  const exited = once(child, 'exit')
  const one: Running = {
    pid: child.pid ?? 0,
    child,
    lines: how.readLines ? createInterface({ input: child.stdout }) : null,
    async stop() {
      running.delete(one)
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGTERM')
        const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
        await exited
        clearTimeout(timer)
      }
      log.end()
    },
  }
  running.add(one)
  exited.then(
    () => running.delete(one),
    () => running.delete(one),
  )
  return one
}

/** Ends everything at a signal, and the process with it; what is still under way can start nothing more. */
export function endOnSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      over = true
      stopAll().finally(() => process.exit(130))
    })
  }
}

/** Ends everything that was started here. */
export async function stopAll(): Promise<void> {
  await Promise.all([...running].reverse().map(one => one.stop()))
}

/** The next line for which `take` gives a value. @throws Error when the process ends first, with the end of its log */
export async function lineOf<T>(
  one: Running,
  log: string,
  timeoutMs: number,
  take: (line: string) => T | null,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      done()
      reject(new Error(`${why}: ${lastLines(log)}`))
    }
    const onLine = (line: string): void => {
      const value = take(line)
      if (value === null) return
      done()
      resolve(value)
    }
    const onExit = (): void => fail('it ended')
    const timer = setTimeout(() => fail(`silent for ${timeoutMs} ms`), timeoutMs)
    const done = (): void => {
      clearTimeout(timer)
      one.lines?.off('line', onLine)
      one.child.off('exit', onExit)
    }
    one.lines?.on('line', onLine)
    one.child.on('exit', onExit)
  })
}

function lastLines(log: string): string {
  try {
    return readFileSync(log, 'utf8').trim().split('\n').slice(-3).join(' | ')
  } catch {
    return ''
  }
}

/** Ports of 127.0.0.1 that were free a moment ago, for servers that cannot choose one themselves. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer().listen(0, '127.0.0.1')
      await once(server, 'listening')
      return server
    }),
  )
  const ports = servers.map(server => {
    const address = server.address()
    return typeof address === 'object' && address !== null ? address.port : 0
  })
  await Promise.all(servers.map(server => new Promise(resolve => server.close(resolve))))
  return ports
}

/** A folder of the user's cache for what a bench fetches once. */
export function cacheFolder(name: string): string {
  return join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'sluice-bench', name)
}
