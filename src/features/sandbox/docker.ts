/**
 * The docker engine: the same contract, through the command line of a container runtime. Each program is one `docker
 * run` without network, with a read-only root and the folder of the container's files. Main thread.
 */
import type { Clock } from '../../base/clock.ts'
import { codeCommand, programAt } from './bubblewrap.ts'
import { type Code, DATA_FOLDER, type EngineLimits, type SandboxEngine } from './engine.ts'
import { createFolderEngine } from './folder-engine.ts'
import { NO_LIMITS, runProgram } from './process-run.ts'

/** An image with bash and Python. */
export const IMAGE_NAME = 'python:3.13-slim-bookworm'
const MAX_PROCESSES = 64
const MAX_OPEN_FILES = 256
const PROBE_TIMEOUT_MS = 10_000
const PROBE_MEMORY_BYTES = 256 * 1024 * 1024
/** User of the code if the gateway runs as root. */
const NOBODY_ID = 65_534

interface DockerOptions {
  readonly limits: EngineLimits
  readonly folder: string
  readonly clock: Clock
}

export function createDocker({ limits, folder, clock }: DockerOptions): SandboxEngine {
  const docker = programAt('docker') ?? programAt('podman')
  const uid = process.getuid?.() ?? NOBODY_ID
  const user = uid === 0 ? NOBODY_ID : uid

  async function refusal(): Promise<string | null> {
    if (docker === null) return 'the docker engine needs the docker or podman program on this machine'
    const { exitCode } = await runProgram(
      {
        file: docker,
        args: ['image', 'inspect', IMAGE_NAME],
        input: [],
        stdoutBytes: 0,
        stderrBytes: 0,
        cutsOutput: true,
        timeoutMs: PROBE_TIMEOUT_MS,
        memoryBytes: PROBE_MEMORY_BYTES,
        cpuSeconds: limits.cpuSeconds,
        limits: NO_LIMITS,
        user: null,
      },
      clock,
      new AbortController().signal,
    )
    return exitCode === 0 ? null : `the docker engine needs a running daemon with the ${IMAGE_NAME} image`
  }

  return createFolderEngine({
    name: 'docker',
    openTunnel: null,
    limits,
    folder,
    user: null,
    owner: uid === 0 ? { uid: user, gid: user } : null,
    clock,
    refusal,
    command: (code, source, timeoutMs) => ({
      file: docker ?? 'docker',
      args: dockerArguments({ limits, source, user, timeoutMs }, code),
    }),
  })
}

interface DockerTerms {
  readonly limits: EngineLimits
  readonly source: string
  /** User and group id of the code. */
  readonly user: number
  readonly timeoutMs: number
}

/**
 * The arguments of `docker` for one run. The container does not end with the program `docker`, so `timeout` ends it
 * within a second after its time limit. Pure.
 */
export function dockerArguments({ limits, source, user, timeoutMs }: DockerTerms, code: Code): string[] {
  const { cpuSeconds, memoryBytes, fileBytes } = limits
  const scratchBytes = Math.floor(memoryBytes / 4)
  return [
    ...['run', '--rm', '--init', '--pull', 'never', '--network', 'none', '--ipc', 'none', '--read-only'],
    ...['--cap-drop', 'ALL', '--security-opt', 'no-new-privileges', '--user', `${user}:${user}`],
    ...[
      '--memory',
      String(memoryBytes),
      '--memory-swap',
      String(memoryBytes),
      '--pids-limit',
      String(MAX_PROCESSES),
    ],
    ...['--cpus', '1', '--ulimit', `cpu=${cpuSeconds}`, '--ulimit', `fsize=${fileBytes}`],
    ...['--ulimit', `nofile=${MAX_OPEN_FILES}`, '--ulimit', 'core=0', '--hostname', 'sandbox'],
    ...['/tmp', '/home/user'].flatMap(path => ['--tmpfs', `${path}:rw,nosuid,nodev,size=${scratchBytes}`]),
    ...['--mount', `type=bind,source=${source},target=${DATA_FOLDER}`, '--workdir', DATA_FOLDER],
    ...['--env', 'HOME=/home/user', '--env', 'LANG=C.UTF-8', '--log-driver', 'none', IMAGE_NAME],
    ...['timeout', '--signal=KILL', String(Math.ceil(timeoutMs / 1000))],
    ...codeCommand(code),
  ]
}
