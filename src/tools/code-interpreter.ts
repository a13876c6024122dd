/**
 * Server tool code_interpreter: runs Python of the model in a container of the sandbox. Also serves the native tool of
 * that name where the provider has none, with its items and events.
 */
import type { Config } from '../config/config.ts'
import type { Sandbox } from '../sandbox/sandbox.ts'
import {
  type ContainerUse,
  failureText,
  recordOf,
  refusal,
  refuseFileIds,
  settingsOf,
  settingsPath,
  useContainer,
  type WantedContainer,
  wantedContainer,
} from './container-use.ts'
import type {
  FunctionDeclaration,
  NativeDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolDisplay,
  ToolEntry,
  ToolOutcome,
  ToolProgress,
} from './tool.ts'

const NATIVE = 'code_interpreter'

export interface CodeInterpreterDeps {
  readonly sandbox: Sandbox
  readonly config: Pick<Config, 'tools'>
}

export function createCodeInterpreter({ sandbox, config }: CodeInterpreterDeps): ServerTool {
  return {
    name: 'code_interpreter',
    native: [NATIVE],
    async open(entries, exchange, display) {
      const uses = new Map<RequestedTool, ContainerUse>()
      /** A provider may run a native one itself, on other terms. */
      const prepare = async (entry: ToolEntry): Promise<void> => {
        if (uses.has(entry.tool)) return
        const use = useContainer(sandbox, exchange, wantedOf(entry, config.tools.sandbox.memoryMb))
        await use.check()
        uses.set(entry.tool, use)
      }
      for (const entry of entries) if (entry.tool.type !== NATIVE) await prepare(entry)
      const declare = async (
        entry: ToolEntry,
        hosted: boolean,
      ): Promise<FunctionDeclaration | NativeDeclaration> => {
        if (hosted && entry.tool.type === NATIVE) return { native: entry.tool as NativeDeclaration['native'] }
        await prepare(entry)
        return declaration(entry.tool)
      }
      return {
        declare: place => Promise.all(entries.map(entry => declare(entry, place.hosts(NATIVE)))),
        begun: call =>
          call.tool.type === NATIVE
            ? { type: 'code_interpreter_call', code: codeOf(call) ?? '', outputs: [] }
            : { code: codeOf(call) ?? '', language: 'python' },
        run(call, progress, signal) {
          const use = uses.get(call.tool)
          const code = codeOf(call)
          if (use === undefined || code === null) return failedOutcome('code: must be a text')
          return call.tool.type === NATIVE
            ? runNative(code, use, { display, progress, signal })
            : runPython(code, use, signal)
        },
      }
    },
  }
}

/** `container` is an id, or `{type: auto}` with what it must have; `environment` says it as for the shell. */
function wantedOf(entry: ToolEntry, memoryMb: number): WantedContainer {
  const settings = settingsOf(entry.tool)
  const path = `${settingsPath(entry)}.container`
  const { container } = settings
  if (typeof container === 'string') {
    const environment = { type: 'container_reference', container_id: container }
    return { ...wantedContainer({ ...settings, environment }, path), path }
  }
  const asked = recordOf(container)
  refuseFileIds(asked['file_ids'], `${path}.file_ids`)
  const limit = asked['memory_limit']
  const gigabytes = typeof limit === 'string' ? Number.parseInt(limit, 10) : 0
  if (gigabytes * 1024 > memoryMb) {
    throw refusal(
      `${path}.memory_limit`,
      `a container has ${memoryMb} MB here (setting tools.sandbox.memoryMb); leave memory_limit out`,
    )
  }
  return wantedContainer(settings, settingsPath(entry))
}

function declaration(tool: RequestedTool): FunctionDeclaration {
  return {
    tool,
    name: 'code_interpreter',
    description:
      'Runs Python 3 code in a container without network and returns what it prints. Each run is a new interpreter in /mnt/data; only files below /mnt/data stay for later runs. Packages beyond the standard library may be missing.',
    parameters: {
      type: 'object',
      properties: { code: { type: 'string', description: 'The Python code' } },
      required: ['code'],
      additionalProperties: false,
    },
  }
}

function codeOf({ arguments: { code } }: ToolCall): string | null {
  return typeof code === 'string' ? code : null
}

const NO_BOUNDS = { timeoutMs: null, maxOutputLength: null }
/** As `timeout` tells it, and as a shell tells that a program was killed. */
const LATE = 124
const STOPPED = 137

interface PythonRun {
  readonly containerId: string
  readonly files: Parameters<ToolDisplay['annotate']>[0]
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number
}

async function python(code: string, use: ContainerUse, signal: AbortSignal): Promise<PythonRun> {
  const { containerId, reply, files } = await use.run([{ language: 'python', text: code }], NO_BOUNDS, signal)
  const [output] = reply.outputs
  const late = output?.timedOut === true
  const told = [reply.notice, late ? 'The run took too long and was stopped' : null].find(
    text => text !== null,
  )
  const stderr = told == null ? (output?.stderr ?? '') : `${output?.stderr ?? ''}${told}\n`
  const exitCode = output?.exitCode ?? (late ? LATE : STOPPED)
  return { containerId, files, stdout: output?.stdout ?? '', stderr, exitCode }
}

async function runPython(code: string, use: ContainerUse, signal: AbortSignal): Promise<ToolOutcome> {
  try {
    const { stdout, stderr, exitCode, files, containerId } = await python(code, use, signal)
    const shown = { code, language: 'python', stdout, stderr, exitCode }
    return {
      item: { ...shown, container_id: containerId, ...(files.length === 0 ? {} : { files }) },
      result: JSON.stringify({ stdout, stderr, exitCode }),
    }
  } catch (thrown) {
    return failedOutcome(failureText(thrown, signal))
  }
}

interface NativeShow {
  readonly display: ToolDisplay
  readonly progress: ToolProgress
  readonly signal: AbortSignal
}

async function runNative(
  code: string,
  use: ContainerUse,
  { display, progress, signal }: NativeShow,
): Promise<ToolOutcome> {
  const tell = (name: string, fields: Readonly<Record<string, unknown>> = {}): void =>
    progress({ name: `code_interpreter_call${name}`, fields })
  tell('.in_progress')
  tell('_code.delta', { delta: code })
  tell('_code.done', { code })
  tell('.interpreting')
  try {
    const { stdout, stderr, exitCode, files, containerId } = await python(code, use, signal)
    tell('.completed')
    if (files.length > 0) display.annotate(files)
    const logs = stdout + stderr
    return {
      item: { code, container_id: containerId, outputs: logs === '' ? [] : [{ type: 'logs', logs }] },
      result: JSON.stringify({ stdout, stderr, exitCode }),
    }
  } catch (thrown) {
    return { ...failedOutcome(failureText(thrown, signal)), item: { status: 'failed' } }
  }
}

function failedOutcome(error: string): ToolOutcome {
  return { item: { status: 'incomplete' }, result: JSON.stringify({ error }) }
}
