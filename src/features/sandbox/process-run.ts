/**
 * Runs one untrusted program: writes its input, reads bounded output, and kills it and all its child processes when it
 * exceeds a limit. Main thread.
 */
import { spawn } from 'node:child_process'
import type { Clock } from '../../base/clock.ts'
import type { LimitStop } from './engine.ts'
import { killFirst, watchProcess } from './process-watch.ts'

export interface Program {
  readonly file: string
  readonly args: readonly string[]
  readonly input: readonly Uint8Array[]
  /** Maximum bytes of stdout. More end the program, or are dropped if `cutsOutput` is set. */
  readonly stdoutBytes: number
  readonly stderrBytes: number
  readonly cutsOutput: boolean
  readonly timeoutMs: number
  readonly memoryBytes: number
  readonly cpuSeconds: number
  /** Further limits of the kernel. */
  readonly limits: ProgramLimits
  /** Null for the gateway's user. */
  readonly user: { readonly uid: number; readonly gid: number } | null
}

/** Limits that the kernel enforces even after the gateway was killed; null for no limit. */
interface ProgramLimits {
  readonly cpuSeconds: number | null
  readonly fileBytes: number | null
}

export const NO_LIMITS: ProgramLimits = { cpuSeconds: null, fileBytes: null }

/** The shell that sets the limits of a program and starts it with an empty environment. */
export const SHELL = '/bin/sh'
const EMPTY_ENVIRONMENT = '/usr/bin/env -i'
const BLOCK_BYTES = 512

export interface ProgramEnd {
  readonly stdout: Buffer
  readonly stderr: Buffer
  /** Null if a signal ended the program. */
  readonly exitCode: number | null
  readonly stopped: LimitStop | null
}

/** Rejects only with the reason of the signal. */
export function runProgram(program: Program, clock: Clock, signal: AbortSignal): Promise<ProgramEnd> {
  const { promise, resolve, reject } = Promise.withResolvers<ProgramEnd>()
  if (signal.aborted) return Promise.reject(signal.reason as Error)
  const child = spawn(SHELL, ['-c', shellScript(program.limits), SHELL, program.file, ...program.args], {
    // The program gets a process group of its own, so that all of its processes can be killed.
    detached: true,
    env: {},
    cwd: '/',
    stdio: ['pipe', 'pipe', 'pipe'],
    ...(program.user ?? {}),
  })
  let stopped: LimitStop | null = null
  const stop = (reason: LimitStop): void => {
    stopped ??= reason
    endGroup(child.pid)
  }
  const { cutsOutput, stdoutBytes, stderrBytes } = program
  const stdout = new BoundedOutput(stdoutBytes, () => (cutsOutput ? undefined : stop('output')))
  const stderr = new BoundedOutput(stderrBytes, () => undefined)
  child.stdout.on('data', (piece: Buffer) => stdout.add(piece))
  child.stderr.on('data', (piece: Buffer) => stderr.add(piece))
  // The program may end without reading its input.
  child.stdin.on('error', () => undefined)
  const timer = clock.after(program.timeoutMs, () => stop('time'))
  const { pid } = child
  const watch = pid === undefined ? null : watchProcess({ ...program, pid, clock, onExceeded: stop })
  const abort = (): void => endGroup(child.pid)
  signal.addEventListener('abort', abort, { once: true })
  const finish = (exitCode: number | null): void => {
    timer.cancel()
    watch?.close()
    signal.removeEventListener('abort', abort)
    if (signal.aborted) reject(signal.reason as Error)
    else resolve({ stdout: stdout.bytes(), stderr: stderr.bytes(), exitCode, stopped })
  }
  child.once('error', () => {
    stopped ??= 'failed'
    if (child.pid === undefined) finish(null)
  })
  child.once('exit', () => {
    // Other processes of the group would keep the output open.
    endGroup(child.pid)
  })
  child.once('close', code => finish(code))
  if (pid !== undefined) killFirst(pid)
  for (const piece of program.input) child.stdin.write(piece)
  child.stdin.end()
  return promise
}

function shellScript({ cpuSeconds, fileBytes }: ProgramLimits): string {
  const cpu = cpuSeconds === null ? '' : ` && ulimit -t ${Math.ceil(cpuSeconds)}`
  const file = fileBytes === null ? '' : ` && ulimit -f ${Math.ceil(fileBytes / BLOCK_BYTES)}`
  return `ulimit -c 0${cpu}${file} && exec ${EMPTY_ENVIRONMENT} "$@"`
}

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The group has already ended.
  }
}

/** Keeps the first bytes. */
class BoundedOutput {
  readonly #maxBytes: number
  readonly #onFull: () => void
  readonly #pieces: Buffer[] = []
  #bytes = 0

  constructor(maxBytes: number, onFull: () => void) {
    this.#maxBytes = maxBytes
    this.#onFull = onFull
  }

  add(piece: Buffer): void {
    const remaining = this.#maxBytes - this.#bytes
    const output = piece.length > remaining ? piece.subarray(0, remaining) : piece
    if (output.length > 0) this.#pieces.push(Buffer.from(output))
    this.#bytes += output.length
    if (output.length < piece.length) this.#onFull()
  }

  bytes(): Buffer {
    return Buffer.concat(this.#pieces)
  }
}
