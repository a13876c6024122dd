/**
 * The bubblewrap engine: each program runs in its own namespaces, with a read-only `/usr` of this machine and without
 * network. If the container has an allow-list, its only connection is the socket of a proxy in the gateway. Main
 * thread.
 */
import { accessSync, constants } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import { type Code, DATA_FOLDER, type EngineLimits } from './engine.ts'
import type { User } from './folder.ts'
import { createFolderEngine } from './folder-engine.ts'
import { NO_LIMITS, runProgram } from './process-run.ts'
import { type OpenTunnel, PROXY_FOLDER, PROXY_PORT, RELAY } from './run-network.ts'

/** Folders with programs; independent of environment variables. */
const PROGRAM_FOLDERS = ['/usr/bin', '/usr/local/bin', '/bin']
/** Maximum processes and threads of one run. */
const MAX_PROCESSES = 64
const MAX_OPEN_FILES = 256
/** User and group id of the code, as the code itself sees them. */
const INNER_ID = '1000'
/** `nobody`, because the system does not limit the processes of root. */
const OUTER_ID = 65_534
const PROBE_TIMEOUT_MS = 5_000
const PROXY_URL = `http://127.0.0.1:${PROXY_PORT}`
const MIN_PROBE_MEMORY_BYTES = 64 * 1024 * 1024

interface BubblewrapOptions {
  readonly limits: EngineLimits
  /** Folder for the files of containers. */
  readonly folder: string
  readonly clock: Clock
  /** Null if no container has a network. */
  readonly openTunnel: OpenTunnel | null
}

export function createBubblewrap({ limits, folder, clock, openTunnel }: BubblewrapOptions) {
  const bwrap = programAt('bwrap')
  const prlimit = programAt('prlimit')
  const user: User | null = process.getuid?.() === 0 ? { uid: OUTER_ID, gid: OUTER_ID } : null

  async function refusal(): Promise<string | null> {
    if (bwrap === null)
      return 'the bubblewrap engine needs the bwrap program on this machine: install the bubblewrap package'
    if (prlimit === null)
      return 'the bubblewrap engine needs the prlimit program on this machine: install the util-linux package'
    const code: Code = { language: 'shell', text: 'test "$(id -u)" = 1000' }
    const args = bubblewrapArguments({ prlimit, limits, source: null }, code)
    const { exitCode } = await runProgram(
      {
        file: bwrap,
        args,
        input: [],
        stdoutBytes: 0,
        stderrBytes: 0,
        cutsOutput: true,
        timeoutMs: PROBE_TIMEOUT_MS,
        memoryBytes: Math.max(limits.memoryBytes, MIN_PROBE_MEMORY_BYTES),
        cpuSeconds: limits.cpuSeconds,
        limits: NO_LIMITS,
        user,
      },
      clock,
      new AbortController().signal,
    )
    return exitCode === 0 ? null : 'bwrap cannot create user namespaces on this machine'
  }

  return createFolderEngine({
    name: 'bubblewrap',
    // The relay inside is a Python program.
    openTunnel: programAt('python3') === null ? null : openTunnel,
    limits,
    folder,
    user,
    owner: user,
    clock,
    refusal,
    command: (code, source, _timeoutMs, network) => ({
      file: bwrap ?? 'bwrap',
      args: bubblewrapArguments(
        { prlimit: prlimit ?? 'prlimit', limits, source, network: network?.folder ?? null },
        code,
      ),
    }),
  })
}

interface BubblewrapTerms {
  readonly prlimit: string
  readonly limits: EngineLimits
  /** Folder of the container's files; null for a run without files. */
  readonly source: string | null
  /** Folder with the proxy's socket; absent or null without a network. */
  readonly network?: string | null
}

/** Certificates that programs need for TLS; they do not exist on every machine. */
const CERTIFICATES = ['/etc/ssl/certs', '/etc/pki/tls/certs', '/etc/pki/ca-trust/extracted']
const PROXY_VARIABLES = ['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY']

/** The arguments of `bwrap` for one run. Pure. */
export function bubblewrapArguments(
  { prlimit, limits, source, network = null }: BubblewrapTerms,
  code: Code,
): string[] {
  const { cpuSeconds, memoryBytes, fileBytes } = limits
  const memory = String(memoryBytes)
  const scratchBytes = String(Math.floor(memoryBytes / 4))
  return [
    ...['--unshare-user', '--unshare-all', '--disable-userns', '--die-with-parent', '--new-session'],
    ...['--uid', INNER_ID, '--gid', INNER_ID, '--hostname', 'sandbox', '--cap-drop', 'ALL'],
    ...['--ro-bind', '/usr', '/usr'],
    ...['bin', 'sbin', 'lib', 'lib64'].flatMap(name => ['--symlink', `usr/${name}`, `/${name}`]),
    // Programs such as `awk` are links to this folder.
    ...['--ro-bind-try', '/etc/alternatives', '/etc/alternatives', '--proc', '/proc', '--dev', '/dev'],
    ...['/dev/shm', '/tmp', '/home/user'].flatMap(path => ['--size', scratchBytes, '--tmpfs', path]),
    ...(source === null ? ['--dir', DATA_FOLDER] : ['--bind', source, DATA_FOLDER]),
    ...(network === null ? [] : ['--ro-bind', network, PROXY_FOLDER]),
    ...(network === null ? [] : CERTIFICATES.flatMap(path => ['--ro-bind-try', path, path])),
    ...['--remount-ro', '/dev', '--remount-ro', '/', '--chdir', DATA_FOLDER, '--clearenv'],
    ...['--setenv', 'PATH', '/usr/local/bin:/usr/bin:/bin', '--setenv', 'HOME', '/home/user'],
    ...['--setenv', 'LANG', 'C.UTF-8', '--setenv', 'USER', 'user'],
    ...(network === null ? [] : PROXY_VARIABLES.flatMap(name => ['--setenv', name, PROXY_URL])),
    '--',
    ...[prlimit, `--as=${memory}`, `--cpu=${cpuSeconds}`, `--fsize=${fileBytes}`, `--nproc=${MAX_PROCESSES}`],
    ...[`--nofile=${MAX_OPEN_FILES}`, '--core=0', '--memlock=0', '--msgqueue=0', '--'],
    ...(network === null ? [] : ['python3', '-c', RELAY]),
    ...codeCommand(code),
  ]
}

/** The program that runs the code. */
export function codeCommand({ language, text }: Code): string[] {
  return language === 'shell' ? ['bash', '-c', text] : ['python3', '-c', text]
}

/** The path of a program; null if it is not installed on this machine. */
export function programAt(name: string): string | null {
  for (const folder of PROGRAM_FOLDERS) {
    try {
      accessSync(join(folder, name), constants.X_OK)
      return join(folder, name)
    } catch {
      // Not in this folder.
    }
  }
  return null
}
