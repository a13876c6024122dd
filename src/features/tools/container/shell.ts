/**
 * The shell server tool: runs the model's commands in a sandbox container. Also serves the native `shell` and
 * `local_shell`, with the items of the native tool; a `shell` whose environment is `local` is left to the client.
 */
import { refuseField } from '../../../base/errors.ts'
import { itemId } from '../../../base/ids.ts'
import { recordOrEmpty } from '../../../base/json.ts'
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
} from '../../../exchange/server-tool.ts'
import { DIALECT_ABILITIES } from '../../../protocol/dialect-abilities.ts'
import { objectSchema } from '../../../protocol/json/object-schema.ts'
import type { RunOutput } from '../../sandbox/engine.ts'
import {
  BAD_COMMANDS,
  boundsOf,
  type ContainerDeps,
  type ContainerUse,
  commandsOf,
  descriptionOf,
  failureText,
  KILLED_EXIT_CODE,
  runFields,
  settingsOf,
  settingsPath,
  useContainer,
  wantedContainer,
} from './container-use.ts'

const NATIVE_TYPES = ['shell', 'local_shell']

export function createShell(deps: ContainerDeps): ServerTool {
  return {
    name: 'shell',
    native: NATIVE_TYPES,
    async open(entries, exchange, display) {
      if (!DIALECT_ABILITIES[exchange.dialect].toolItems) {
        const path = entries[0]?.path ?? 'tools'
        throw refuseField(
          `${path}.type`,
          'the shell tool works with /responses and /messages, not with chat completions',
        )
      }
      const uses = new Map<RequestedTool, ContainerUse>()
      for (const entry of entries) {
        const use = useContainer(deps, exchange, wantedContainer(settingsOf(entry.tool), settingsPath(entry)))
        uses.set(entry.tool, use)
        // A provider may run a native tool itself.
        if (!isNative(entry.tool)) await use.check()
      }
      const checkedTools = new Set<RequestedTool>()
      const declare = async (
        { tool }: ToolEntry,
        hosts: (type: string) => boolean,
      ): Promise<ToolDeclaration> => {
        if (isNative(tool) && hosts(tool.type)) return { native: tool as NativeDeclaration['native'] }
        if (isNative(tool) && !runsAtClient(tool) && !checkedTools.has(tool)) {
          const refusal = (await uses.get(tool)?.refusal()) ?? null
          if (refusal !== null) return { tool, missing: refusal }
        }
        checkedTools.add(tool)
        return declaration(tool, uses.get(tool))
      }
      return {
        declare: endpoint => Promise.all(entries.map(entry => declare(entry, type => endpoint.hosts(type)))),
        firstForm: call => callFields(call),
        leaves: ({ tool }) => !uses.has(tool) || runsAtClient(tool),
        run: (call, _, signal) => {
          const use = uses.get(call.tool)
          if (use === undefined || runsAtClient(call.tool)) return clientOutcome(call)
          return runShell(call, use, display, signal)
        },
      }
    },
  }
}

function isNative({ type }: RequestedTool): boolean {
  return NATIVE_TYPES.includes(type)
}

/** True for a native tool that asks for the client's machine. */
function runsAtClient(tool: RequestedTool): boolean {
  return tool.type === 'shell' && recordOrEmpty(tool['environment'])['type'] === 'local'
}

const DESCRIPTION =
  'Runs shell commands (bash) in a container, one after the other. Python is there as python3. Each command starts in /mnt/data in a new shell; only files below /mnt/data stay for later calls.'

function declaration(tool: RequestedTool, use: ContainerUse | undefined): FunctionDeclaration {
  return {
    tool,
    name: tool.type === 'local_shell' ? 'local_shell' : 'shell',
    ...descriptionOf(DESCRIPTION, runsAtClient(tool) ? undefined : use),
    parameters: objectSchema(['commands'], {
      commands: { type: 'array', items: { type: 'string' }, description: 'Commands, run in this order' },
      timeout_ms: { type: 'integer', description: 'Milliseconds for all commands together' },
      max_output_length: { type: 'integer', description: 'Characters of the output of each command' },
    }),
  }
}

function actionOf({ arguments: args }: ToolCall) {
  const { timeoutMs, maxOutputLength } = boundsOf(args)
  return {
    commands: commandsOf(args) ?? [],
    ...(timeoutMs === null ? {} : { timeout_ms: timeoutMs }),
    ...(maxOutputLength === null ? {} : { max_output_length: maxOutputLength }),
  }
}

function callFields(call: ToolCall): Readonly<Record<string, unknown>> {
  const type = isNative(call.tool) ? { type: 'shell_call' } : {}
  return { ...type, call_id: call.callId, action: actionOf(call) }
}

function clientOutcome(call: ToolCall): ToolOutcome {
  return { item: callFields(call), result: '', next: 'end-turn' }
}

async function runShell(
  call: ToolCall,
  use: ContainerUse,
  display: ToolDisplay,
  signal: AbortSignal,
): Promise<ToolOutcome> {
  const commands = commandsOf(call.arguments)
  if (commands === null) return failedOutcome(call, BAD_COMMANDS)
  const bounds = boundsOf(call.arguments)
  try {
    const codes = commands.map(text => ({ language: 'shell', text }) as const)
    const containerRun = await use.run(codes, bounds, signal)
    const { reply, files } = containerRun
    const output = reply.outputs.map(outputOf)
    const failure = reply.notice === null ? {} : { error: reply.notice }
    const itemFields = { ...runFields(containerRun), ...failure }
    const result = JSON.stringify({ output, ...failure, files: files.map(({ filename }) => filename) })
    if (!isNative(call.tool)) return { item: { ...callFields(call), output, ...itemFields }, result }
    display.item({
      type: 'shell_call_output',
      id: itemId('st'),
      call_id: call.callId,
      output,
      max_output_length: bounds.maxOutputLength,
      status: 'completed',
      ...itemFields,
    })
    return { item: callFields(call), result }
  } catch (thrown) {
    return failedOutcome(call, failureText(thrown, signal))
  }
}

/** Native items cannot contain a failure. */
function failedOutcome(call: ToolCall, error: string): ToolOutcome {
  const fields = isNative(call.tool) ? { status: 'incomplete' } : { status: 'failed', error }
  return { item: { ...callFields(call), ...fields }, result: JSON.stringify({ error }) }
}

function outputOf({ stdout, stderr, exitCode, timedOut }: RunOutput) {
  const outcome =
    exitCode === null && timedOut
      ? { type: 'timeout' }
      : { type: 'exit', exit_code: exitCode ?? KILLED_EXIT_CODE }
  return { stdout, stderr, outcome }
}
