/**
 * The code_interpreter server tool: runs the model's Python code in a sandbox container. Also serves the native tool of
 * that name, with its items and events, if the provider has none or the request names files of the workspace.
 */
import { isFileId } from '../../../base/ids.ts'
import { recordOrEmpty, texts } from '../../../base/json.ts'
import type {
  FunctionDeclaration,
  NativeDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolDeclaration,
  ToolDisplay,
  ToolEntry,
  ToolOutcome,
  ToolProgress,
} from '../../../exchange/server-tool.ts'
import { objectSchema } from '../../../protocol/json/object-schema.ts'
import {
  allowedDomains,
  type ContainerDeps,
  type ContainerUse,
  descriptionOf,
  failureText,
  onlyOutput,
  runFields,
  settingsOf,
  settingsPath,
  useContainer,
  type WantedContainer,
  wantedContainer,
} from './container-use.ts'

const NATIVE_TYPE = 'code_interpreter'

export function createCodeInterpreter(deps: ContainerDeps): ServerTool {
  return {
    name: 'code_interpreter',
    native: [NATIVE_TYPE],
    async open(entries, exchange, display) {
      const uses = new Map<RequestedTool, ContainerUse>()
      /**
       * Rejects if a tool cannot run here. For a native tool, which a provider may run, it returns the reason instead.
       */
      const prepare = async (entry: ToolEntry): Promise<string | null> => {
        if (uses.has(entry.tool)) return null
        const use = useContainer(deps, exchange, wantedOf(entry))
        if (entry.tool.type === NATIVE_TYPE) {
          const refusal = await use.refusal()
          if (refusal !== null) return refusal
        } else await use.check()
        uses.set(entry.tool, use)
        return null
      }
      for (const entry of entries) if (entry.tool.type !== NATIVE_TYPE) await prepare(entry)
      const declare = async (entry: ToolEntry, hosted: boolean): Promise<ToolDeclaration> => {
        // No provider can read files of the workspace.
        if (hosted && entry.tool.type === NATIVE_TYPE && !wantedOf(entry).fileIds.some(isFileId))
          return { native: entry.tool as NativeDeclaration['native'] }
        const refusal = await prepare(entry)
        if (refusal !== null) return { tool: entry.tool, missing: refusal }
        return declaration(entry.tool, uses.get(entry.tool))
      }
      return {
        declare: endpoint => Promise.all(entries.map(entry => declare(entry, endpoint.hosts(NATIVE_TYPE)))),
        firstForm: call =>
          call.tool.type === NATIVE_TYPE
            ? { type: 'code_interpreter_call', code: codeOf(call) ?? '', outputs: [] }
            : { code: codeOf(call) ?? '', language: 'python' },
        run(call, progress, signal) {
          const use = uses.get(call.tool)
          const code = codeOf(call)
          if (use === undefined || code === null) return failedOutcome('code: must be a string')
          return call.tool.type === NATIVE_TYPE
            ? runNative(code, use, { display, progress, signal })
            : runPython(code, use, signal)
        },
      }
    },
  }
}

/**
 * `container` is an id, or `{type: auto}` with its requirements; `environment` has the form of the shell tool. Any
 * `memory_limit` is accepted: a container has the memory of the setting, and the model is told how much that is.
 */
function wantedOf(entry: ToolEntry): WantedContainer {
  const settings = settingsOf(entry.tool)
  const path = `${settingsPath(entry)}.container`
  const { container } = settings
  if (typeof container === 'string') {
    const environment = { type: 'container_reference', container_id: container }
    return { ...wantedContainer({ ...settings, environment }, path), path }
  }
  const base = wantedContainer(settings, settingsPath(entry))
  const fields = recordOrEmpty(container)
  const fileIds = texts(fields['file_ids'])
  const domains = allowedDomains(fields['network_policy'], `${path}.network_policy`)
  if (fileIds.length === 0 && domains === null) return base
  const terms = domains === null ? base.terms : { ...base.terms, allowedDomains: domains }
  return {
    ...base,
    terms,
    path,
    ...(fileIds.length === 0 ? {} : { fileIds, filesPath: `${path}.file_ids` }),
  }
}

const DESCRIPTION =
  'Runs Python 3 code in a container and returns what it prints. Each run is a new interpreter in /mnt/data; only files below /mnt/data stay for later runs. Packages beyond the standard library may be missing.'

function declaration(tool: RequestedTool, use: ContainerUse | undefined): FunctionDeclaration {
  return {
    tool,
    name: 'code_interpreter',
    ...descriptionOf(DESCRIPTION, use),
    parameters: objectSchema(['code'], { code: { type: 'string', description: 'The Python code' } }),
  }
}

function codeOf({ arguments: { code } }: ToolCall): string | null {
  return typeof code === 'string' ? code : null
}

const NO_BOUNDS = { timeoutMs: null, maxOutputLength: null }

async function runCode(code: string, use: ContainerUse, signal: AbortSignal) {
  const containerRun = await use.run([{ language: 'python', text: code }], NO_BOUNDS, signal)
  const { stdout, stderr, exitCode, timedOut } = onlyOutput(containerRun)
  const notice = containerRun.reply.notice ?? (timedOut ? 'The run took too long and was stopped' : null)
  return {
    done: containerRun,
    printed: { stdout, stderr: notice === null ? stderr : `${stderr}${notice}\n`, exitCode },
  }
}

async function runPython(code: string, use: ContainerUse, signal: AbortSignal): Promise<ToolOutcome> {
  try {
    const { done: containerRun, printed } = await runCode(code, use, signal)
    return {
      item: { code, language: 'python', ...printed, ...runFields(containerRun) },
      result: JSON.stringify(printed),
    }
  } catch (thrown) {
    return failedOutcome(failureText(thrown, signal))
  }
}

interface NativeOutput {
  readonly display: ToolDisplay
  readonly progress: ToolProgress
  readonly signal: AbortSignal
}

async function runNative(
  code: string,
  use: ContainerUse,
  { display, progress, signal }: NativeOutput,
): Promise<ToolOutcome> {
  const report = (name: string, fields: Readonly<Record<string, unknown>> = {}): void =>
    progress({ name: `code_interpreter_call${name}`, fields })
  report('.in_progress')
  report('_code.delta', { delta: code })
  report('_code.done', { code })
  report('.interpreting')
  try {
    const { done: containerRun, printed } = await runCode(code, use, signal)
    const { containerId, files } = containerRun
    report('.completed')
    if (files.length > 0) display.annotate(files)
    const logs = printed.stdout + printed.stderr
    return {
      item: { code, container_id: containerId, outputs: logs === '' ? [] : [{ type: 'logs', logs }] },
      result: JSON.stringify(printed),
    }
  } catch (thrown) {
    return { ...failedOutcome(failureText(thrown, signal)), item: { status: 'failed' } }
  }
}

function failedOutcome(error: string): ToolOutcome {
  return { item: { status: 'incomplete' }, result: JSON.stringify({ error }) }
}
