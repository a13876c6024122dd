/**
 * The embedded engine: each run is a separate Node process with a shell, Python and in-memory files, and no access to
 * this machine. Files of a container are kept here between runs. Main thread.
 */
import { existsSync, realpathSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Clock } from '../../../base/clock.ts'
import type {
  ContainerFile,
  EngineContainer,
  EngineLimits,
  EngineResult,
  EngineRun,
  RunOutput,
  SandboxEngine,
} from '../engine.ts'
import { type ProgramEnd, runProgram, SHELL } from '../process-run.ts'
import { canWatch } from '../process-watch.ts'
import {
  type ChildOutput,
  type ChildRequest,
  type FileEntry,
  readReply,
  replyMaxBytes,
  writeFrame,
} from './frames.ts'

/** The package that runs shell and Python. It is optional, and installed by the operator. */
const PACKAGE_NAME = 'just-bash'
/** Scripts are ignored because they compile two dependencies that are not needed. */
const INSTALL_COMMAND = `npm install --ignore-scripts ${PACKAGE_NAME}@3.4`
/** Time for starting and ending, in addition to the code's time. */
const START_AND_END_MS = 4_000
/** Share of the JavaScript heap in the child's memory. */
const HEAP_SHARE = 0.4
const MIB = 1024 * 1024

export function createEmbedded(
  limits: EngineLimits,
  clock: Clock,
  hasPackage = (): boolean => packageEntry() !== null,
): SandboxEngine {
  return {
    name: 'embedded',
    supportsDomains: false,
    async refusal() {
      if (!canWatch() || !existsSync(SHELL))
        return 'the embedded engine needs /proc and /bin/sh to limit its processes, and this machine lacks at least one of them'
      return hasPackage()
        ? null
        : `the embedded engine needs the ${PACKAGE_NAME} package next to the gateway: ${INSTALL_COMMAND}`
    },
    create: async () => createContainer(limits, clock),
    close: async () => undefined,
  }
}

/** Options and file of the child process. Its file ends in `.ts` if the gateway runs from its sources. */
export function childArguments(memoryBytes: number): string[] {
  const extension = import.meta.url.endsWith('.ts') ? '.ts' : '.js'
  const file = (name: string): string => fileURLToPath(new URL(`${name}${extension}`, import.meta.url))
  return [
    '--permission',
    '--allow-worker',
    ...readablePaths().map(path => `--allow-fs-read=${path}`),
    `--max-old-space-size=${Math.floor((memoryBytes * HEAP_SHARE) / MIB)}`,
    '--disable-proto=delete',
    '--disable-warning=SecurityWarning',
    '--disable-warning=ExperimentalWarning',
    '--no-addons',
    '--import',
    file('./confine'),
    file('./child'),
  ]
}

/** The code of the child: the `sandbox` folder, and the packages next to its own. */
function readablePaths(): string[] {
  const folder = dirname(dirname(fileURLToPath(import.meta.url)))
  const entry = packageEntry()
  if (entry === null) throw new TypeError(`${PACKAGE_NAME} is not installed`)
  const packages = entry.slice(0, entry.lastIndexOf(`${sep}${PACKAGE_NAME}${sep}`))
  return [join(packages, sep), join(folder, sep), join(folder, '../../../package.json')]
}

/** The main file of the package; null if it is not installed. */
function packageEntry(): string | null {
  try {
    return realpathSync(createRequire(import.meta.url).resolve(PACKAGE_NAME))
  } catch {
    return null
  }
}

function createContainer(limits: EngineLimits, clock: Clock): EngineContainer {
  let entries: readonly FileEntry[] = []
  const bytes = (): number => entries.reduce((sum, { content }) => sum + content.length, 0)

  async function run(engineRun: EngineRun, signal: AbortSignal): Promise<EngineResult> {
    const request: ChildRequest = { ...engineRun, fileBytes: limits.fileBytes, files: limits.files }
    const end = await runProgram(
      {
        file: process.execPath,
        args: childArguments(limits.memoryBytes),
        input: writeFrame(request, entries),
        stdoutBytes: replyMaxBytes(request),
        stderrBytes: 0,
        cutsOutput: false,
        timeoutMs: engineRun.timeoutMs + START_AND_END_MS,
        memoryBytes: limits.memoryBytes,
        cpuSeconds: limits.cpuSeconds,
        limits: { cpuSeconds: limits.cpuSeconds + 1, fileBytes: 0 },
        user: null,
      },
      clock,
      signal,
    )
    const reply = end.stopped === null ? readReply(end.stdout, request) : null
    if (reply === null) return stoppedResult(end)
    if (reply.entries === null)
      return { outputs: reply.outputs.map(outputOf), stopped: 'files', lost: 'changes' }
    entries = reply.entries
    return { outputs: reply.outputs.map(outputOf), stopped: null, lost: null }
  }

  return {
    run,
    bytes,
    list: async () => entries.flatMap(entry => (entry.kind === 'file' ? [fileOf(entry)] : [])),
    read: async path => entries.find(entry => entry.path === path && entry.kind === 'file')?.content ?? null,
    async write(path, content) {
      const otherEntries = entries.filter(entry => entry.path !== path)
      const total = otherEntries.reduce((sum, entry) => sum + entry.content.length, content.length)
      if (
        total > limits.fileBytes ||
        otherEntries.length >= limits.files ||
        !isUnoccupied(otherEntries, path)
      )
        return false
      const copy = Buffer.from(content)
      entries = [
        ...otherEntries,
        ...missingFolders(otherEntries, path, clock.nowMs()),
        { path, kind: 'file', mode: 0o644, changedMs: clock.nowMs(), target: '', content: copy },
      ]
      return true
    },
    async end() {
      entries = []
    },
  }
}

function stoppedResult({ stopped }: ProgramEnd): EngineResult {
  // A child that ends without a complete reply has crashed, usually because its heap was full.
  return { outputs: [], stopped: stopped ?? 'memory', lost: 'changes' }
}

/** Code that was stopped has no exit code. */
function outputOf(output: ChildOutput): RunOutput {
  return output.timedOut ? { ...output, exitCode: null } : output
}

function fileOf({ path, content, changedMs }: FileEntry): ContainerFile {
  return { path, bytes: content.length, changedMs }
}

/** True if no file or link is in the place of a folder of the path, and no folder in the place of the file. */
function isUnoccupied(entries: readonly FileEntry[], path: string): boolean {
  return entries.every(
    entry =>
      !(entry.path === path || entry.path.startsWith(`${path}/`)) &&
      (entry.kind === 'folder' || !path.startsWith(`${entry.path}/`)),
  )
}

function missingFolders(entries: readonly FileEntry[], path: string, nowMs: number): FileEntry[] {
  const parts = path.split('/').slice(0, -1)
  const folders = parts.map((_, index) => parts.slice(0, index + 1).join('/'))
  return folders
    .filter(folder => !entries.some(entry => entry.path === folder))
    .map(folder => ({
      path: folder,
      kind: 'folder',
      mode: 0o755,
      changedMs: Math.floor(nowMs),
      target: '',
      content: Buffer.alloc(0),
    }))
}
