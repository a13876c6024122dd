/**
 * The child process of the embedded engine: reads one request, runs its code in a shell with in-memory files and no
 * network, writes one reply, and exits. confine.ts is loaded first. Child process of the sandbox.
 */
import { types } from 'node:util'
import { Bash, type IFileSystem } from 'just-bash'
import { type Code, DATA_FOLDER } from '../engine.ts'
import { filePath } from '../paths.ts'
import { type ChildOutput, type ChildRequest, type FileEntry, readRequest, writeFrame } from './frames.ts'

const ENVIRONMENT = { HOME: '/home/user', USER: 'user', LANG: 'C.UTF-8' }
/** Space for files of the code itself and of Python, besides the container's files. */
const OTHER_FILE_BYTES = 32 * 1024 * 1024
/** More than the longest run can do, because time limits loops already. */
const MAX_REPETITIONS = 2_000_000

async function main(): Promise<void> {
  const { request, entries } = readRequest(await standardInput())
  const bash = createShell(request)
  for (const folder of ['/tmp', ENVIRONMENT.HOME, DATA_FOLDER])
    await bash.fs.mkdir(folder, { recursive: true })
  await putEntries(bash.fs, entries)
  const outputs: ChildOutput[] = []
  const deadlineAtMs = performance.now() + request.timeoutMs
  for (const code of request.codes) {
    const remainingMs = Math.max(1, Math.floor(deadlineAtMs - performance.now()))
    const output = await runCode(bash, code, remainingMs, request.outputBytes)
    outputs.push(output)
    if (output.timedOut) break
  }
  const files = await takeEntries(bash.fs, request)
  for (const piece of writeFrame({ outputs }, files)) process.stdout.write(piece)
}

async function standardInput(): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of process.stdin) pieces.push(piece as Buffer)
  return Buffer.concat(pieces)
}

function createShell({ timeoutMs, outputBytes, fileBytes }: ChildRequest): Bash {
  return new Bash({
    python: true,
    cwd: DATA_FOLDER,
    env: ENVIRONMENT,
    executionLimitProfile: 'hardened',
    executionLimits: {
      maxExecutionTimeMs: timeoutMs,
      maxPythonTimeoutMs: timeoutMs,
      maxSqliteTimeoutMs: timeoutMs,
      maxOutputSize: outputBytes,
      maxFileSystemBytes: fileBytes + OTHER_FILE_BYTES,
      maxCommandCount: MAX_REPETITIONS,
      maxLoopIterations: MAX_REPETITIONS,
      maxAwkIterations: MAX_REPETITIONS,
      maxSedIterations: MAX_REPETITIONS,
      maxJqIterations: MAX_REPETITIONS,
    },
  })
}

async function runCode(
  bash: Bash,
  code: Code,
  remainingMs: number,
  outputBytes: number,
): Promise<ChildOutput> {
  const startMs = performance.now()
  const deadline = AbortSignal.timeout(remainingMs)
  try {
    const { stdout, stderr, exitCode } = await (code.language === 'shell'
      ? bash.exec(code.text, { rawScript: true, signal: deadline })
      : bash.exec('python3 -', { stdin: code.text, signal: deadline }))
    const timedOut = exitCode === 124 && performance.now() - startMs >= remainingMs - 50
    return { stdout: cutText(stdout, outputBytes), stderr: cutText(stderr, outputBytes), exitCode, timedOut }
  } catch (thrown) {
    const isLate = deadline.aborted
    const stderr = isLate
      ? ''
      : cutText(String(types.isNativeError(thrown) ? thrown.message : thrown), outputBytes)
    return { stdout: '', stderr, exitCode: isLate ? 124 : 1, timedOut: isLate }
  }
}

function cutText(text: string, bytes: number): string {
  const encoded = Buffer.from(text)
  return encoded.length <= bytes ? text : encoded.subarray(0, bytes).toString()
}

async function putEntries(fs: IFileSystem, entries: readonly FileEntry[]): Promise<void> {
  for (const { path, kind, mode, changedMs, target, content } of entries) {
    const fullPath = `${DATA_FOLDER}/${path}`
    if (kind === 'folder') await fs.mkdir(fullPath, { recursive: true })
    else if (kind === 'link') await fs.symlink(target, fullPath)
    else await fs.writeFile(fullPath, content)
    if (kind === 'link') continue
    await fs.chmod(fullPath, mode)
    await fs.utimes(fullPath, new Date(changedMs), new Date(changedMs))
  }
}

/** The entries, folders before their contents; null if they are too many or too large. */
async function takeEntries(
  fs: IFileSystem,
  { files, fileBytes }: ChildRequest,
): Promise<readonly FileEntry[] | null> {
  const entries: FileEntry[] = []
  const folders = ['']
  let bytes = 0
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const name of await fs.readdir(`${DATA_FOLDER}/${folder}`)) {
      const path = folder === '' ? name : `${folder}/${name}`
      if (filePath(path) !== path) continue
      const fullPath = `${DATA_FOLDER}/${path}`
      const { isSymbolicLink, isDirectory, mode, mtime } = await fs.lstat(fullPath)
      const kind = isSymbolicLink ? 'link' : isDirectory ? 'folder' : 'file'
      const content = kind === 'file' ? await fs.readFileBuffer(fullPath) : new Uint8Array()
      const target = kind === 'link' ? await fs.readlink(fullPath) : ''
      bytes += content.length
      if (kind === 'folder') folders.push(path)
      entries.push({
        path,
        kind,
        mode: mode & 0o777,
        changedMs: Math.max(0, mtime.getTime()),
        target,
        content,
      })
      if (entries.length > files || bytes > fileBytes) return null
    }
  }
  return entries
}

await main()
