/**
 * Code shared by the bubblewrap and docker engines: containers whose files are folders of this machine, and one program
 * per run. Main thread.
 */
import { chmod, lstat, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type {
  Code,
  EngineContainer,
  EngineLimits,
  EngineResult,
  EngineRun,
  RunOutput,
  SandboxEngine,
} from './engine.ts'
import { createFolder, type Folder, type User } from './folder.ts'
import { NO_LIMITS, type ProgramEnd, runProgram } from './process-run.ts'
import { type OpenTunnel, openNetwork, type RunNetwork } from './run-network.ts'

interface FolderEngineOptions {
  readonly name: string
  /** Null if code has no network. */
  readonly openTunnel: OpenTunnel | null
  readonly limits: EngineLimits
  readonly folder: string
  /** User of the programs; null for the gateway's user. */
  readonly user: User | null
  /** Owner of the files; null for the gateway's user. */
  readonly owner: User | null
  readonly clock: Clock
  refusal(): Promise<string | null>
  /** The program that runs the code with this time limit. */
  command(
    code: Code,
    source: string,
    timeoutMs: number,
    network: RunNetwork | null,
  ): { readonly file: string; readonly args: readonly string[] }
}

/** Maximum size of one argument in Linux: 128 KiB including the zero at its end. */
const MAX_ARGUMENT_BYTES = 128 * 1024 - 1

export function createFolderEngine(options: FolderEngineOptions): SandboxEngine {
  const root = new RootFolder(options)
  return {
    name: options.name,
    supportsDomains: options.openTunnel !== null,
    refusal: () => options.refusal(),
    async create(id, allowedDomains) {
      const folder = await createFolder(join(await root.path(), id), options.limits, options.owner)
      return createContainer(folder, allowedDomains, options)
    },
    close: () => root.remove(),
  }
}

/** The folder of all containers of this process. Its creation removes the folders of processes that have ended. */
class RootFolder {
  readonly #options: FolderEngineOptions
  #created: Promise<string> | null = null

  constructor(options: FolderEngineOptions) {
    this.#options = options
  }

  path(): Promise<string> {
    this.#created ??= this.#create()
    return this.#created
  }

  async remove(): Promise<void> {
    const folder = await this.#created?.catch(() => null)
    if (folder != null) await rm(folder, { recursive: true, force: true })
  }

  async #create(): Promise<string> {
    const { user, folder } = this.#options
    // Another user cannot pass through the data folder, which is only accessible by the gateway.
    const parent = user === null ? folder : tmpdir()
    await mkdir(parent, { recursive: true, mode: 0o700 })
    for (const name of await readdir(parent)) {
      const path = join(parent, name)
      if (isLeftover(name) && (await lstat(path)).uid === process.getuid?.())
        await rm(path, { recursive: true, force: true })
    }
    const runFolder = await mkdtemp(join(parent, `${FOLDER_PREFIX}${process.pid}-${STARTED_AT_MS}-`))
    await chmod(runFolder, user === null ? 0o700 : 0o711)
    return runFolder
  }
}

const FOLDER_PREFIX = 'sluice-sandbox-'
/** Distinguishes this process from an earlier one with the same id: in an image every gateway is process 1. */
const STARTED_AT_MS = Math.floor(performance.timeOrigin)
/** A socket path may have at most 107 bytes, and the data folder may be anywhere. */
const SOCKET_PREFIX = join(tmpdir(), `${FOLDER_PREFIX}${process.pid}-${STARTED_AT_MS}-net-`)

/** True for the folder of a process that has ended. */
function isLeftover(name: string): boolean {
  const [, pid, started] = /^sluice-sandbox-(\d{1,10})-(\d{1,15})-/.exec(name) ?? []
  if (pid === undefined) return false
  return Number(pid) === process.pid ? Number(started) !== STARTED_AT_MS : !isAlive(Number(pid))
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function createContainer(
  folder: Folder,
  allowedDomains: readonly string[] | null,
  options: FolderEngineOptions,
): EngineContainer {
  const { limits, clock, openTunnel } = options

  async function run(engineRun: EngineRun, signal: AbortSignal): Promise<EngineResult> {
    if (allowedDomains === null || openTunnel === null) return await runCodes(engineRun, null, signal)
    const network = await openNetwork(openTunnel, allowedDomains, options.user, SOCKET_PREFIX)
    try {
      return await runCodes(engineRun, network, signal)
    } finally {
      await network.close()
    }
  }

  async function runCodes(
    { codes, timeoutMs, outputBytes }: EngineRun,
    network: RunNetwork | null,
    signal: AbortSignal,
  ): Promise<EngineResult> {
    const outputs: RunOutput[] = []
    const deadlineAtMs = clock.monotonicMs() + timeoutMs
    for (const code of codes) {
      if (Buffer.byteLength(code.text) > MAX_ARGUMENT_BYTES) {
        outputs.push({
          stdout: '',
          stderr: 'The code is longer than 128 KiB',
          exitCode: 126,
          timedOut: false,
        })
        continue
      }
      const remainingMs = Math.max(1, Math.floor(deadlineAtMs - clock.monotonicMs()))
      const end = await runProgram(
        {
          ...options.command(code, folder.path, remainingMs, network),
          input: [],
          stdoutBytes: outputBytes,
          stderrBytes: outputBytes,
          cutsOutput: true,
          timeoutMs: remainingMs,
          memoryBytes: limits.memoryBytes,
          cpuSeconds: limits.cpuSeconds,
          limits: NO_LIMITS,
          user: options.user,
        },
        clock,
        signal,
      )
      outputs.push(outputOf(end))
      if (!(await folder.fits())) {
        await folder.remove()
        await createFolder(folder.path, limits, options.owner)
        return { outputs, stopped: 'files', lost: 'files' }
      }
      if (end.stopped !== null) {
        const stopped = end.stopped === 'time' ? null : end.stopped
        return { outputs, stopped, lost: null }
      }
    }
    return { outputs, stopped: null, lost: null }
  }

  return {
    run,
    list: () => folder.list(),
    read: path => folder.read(path),
    write: (path, content) => folder.write(path, content),
    bytes: () => folder.bytes(),
    end: () => folder.remove(),
  }
}

function outputOf({ stdout, stderr, exitCode, stopped }: ProgramEnd): RunOutput {
  return {
    stdout: stdout.toString(),
    stderr: stderr.toString(),
    exitCode: stopped === null ? (exitCode ?? 137) : null,
    timedOut: stopped === 'time',
  }
}
