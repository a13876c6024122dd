/**
 * The bash server tool: runs shell commands. By default the call goes to the client, as Messages clients expect; with
 * the `gateway` engine, it runs in a sandbox container.
 */
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolOutcome,
} from '../../../exchange/server-tool.ts'
import { objectSchema } from '../../../protocol/json/object-schema.ts'
import {
  BAD_COMMANDS,
  boundsOf,
  type ContainerDeps,
  type ContainerUse,
  commandsOf,
  descriptionOf,
  failureText,
  onlyOutput,
  runFields,
  settingsOf,
  settingsPath,
  useContainer,
  wantedContainer,
} from './container-use.ts'

export function createBash(deps: ContainerDeps): ServerTool {
  return {
    name: 'bash',
    async open(entries, exchange) {
      const uses = new Map<RequestedTool, ContainerUse>()
      for (const entry of entries) {
        if (runsHere(entry.tool)) {
          const use = useContainer(
            deps,
            exchange,
            wantedContainer(settingsOf(entry.tool), settingsPath(entry)),
          )
          await use.check()
          uses.set(entry.tool, use)
        }
      }
      return {
        declare: () => entries.map(({ tool }) => declaration(tool, uses.get(tool))),
        firstForm: call => callFields(call),
        leaves: ({ tool, arguments: args }) => !uses.has(tool) && isCommand(args),
        run(call, _, signal) {
          const containerUse = uses.get(call.tool)
          if (containerUse !== undefined) return runBash(call, containerUse, signal)
          const fields = callFields(call)
          return isCommand(call.arguments)
            ? { item: fields, result: '', next: 'end-turn' }
            : failedOutcome(fields, COMMAND_NOT_STRING)
        },
      }
    },
  }
}

function runsHere(tool: RequestedTool): boolean {
  const { engine } = settingsOf(tool)
  return engine === 'gateway' || engine === 'openrouter'
}

function declaration(tool: RequestedTool, use: ContainerUse | undefined): FunctionDeclaration {
  const location = runsHere(tool)
    ? ' in a container. Python is there as python3. Each command starts in /mnt/data in a new shell; only files below /mnt/data stay for later calls'
    : ''
  return {
    tool,
    name: 'bash',
    ...descriptionOf(`Runs a bash command${location}.`, use),
    parameters: objectSchema([], {
      command: { type: 'string', description: 'The command' },
      commands: {
        type: 'array',
        items: { type: 'string' },
        description: 'Several commands, one after the other',
      },
      restart: { type: 'boolean', description: 'True: start a new shell, without a command' },
      timeout_ms: { type: 'integer', description: 'Milliseconds that it may take' },
      max_output_length: { type: 'integer', description: 'Characters of its output' },
    }),
  }
}

function callFields(call: ToolCall): Readonly<Record<string, unknown>> {
  const command = commandsOf(call.arguments)?.join('\n')
  return {
    call_id: call.callId,
    arguments: JSON.stringify(call.arguments),
    ...(command === undefined ? {} : { command }),
  }
}

/** True if a client can run the call. */
function isCommand(args: ToolCall['arguments']): boolean {
  return args['restart'] === true || commandsOf(args) !== null
}

const COMMAND_NOT_STRING = 'command: must be a string'

async function runBash(call: ToolCall, use: ContainerUse, signal: AbortSignal): Promise<ToolOutcome> {
  const fields = callFields(call)
  const commands = commandsOf(call.arguments)
  if (commands === null) {
    // Each call has a new shell anyway.
    if (call.arguments['restart'] === true) return outcomeOf(fields, { stdout: '', stderr: '', exitCode: 0 })
    return failedOutcome(fields, call.arguments['commands'] === undefined ? COMMAND_NOT_STRING : BAD_COMMANDS)
  }
  try {
    const code = { language: 'shell', text: commands.join('\n') } as const
    const containerRun = await use.run([code], boundsOf(call.arguments), signal)
    const { stdout, stderr, exitCode, timedOut } = onlyOutput(containerRun)
    return outcomeOf(
      { ...fields, ...runFields(containerRun) },
      { stdout, stderr: timedOut ? stderr + TIMED_OUT_LINE : stderr, exitCode },
      containerRun.reply.notice,
    )
  } catch (thrown) {
    return failedOutcome(fields, failureText(thrown, signal))
  }
}

const TIMED_OUT_LINE = 'The command took too long and was stopped\n'

interface BashResult {
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number
}

function outcomeOf(
  fields: Readonly<Record<string, unknown>>,
  result: BashResult,
  notice: string | null = null,
): ToolOutcome {
  const failure = notice === null ? {} : { error: notice }
  return { item: { ...fields, ...result, ...failure }, result: JSON.stringify({ ...result, ...failure }) }
}

function failedOutcome(fields: Readonly<Record<string, unknown>>, error: string): ToolOutcome {
  return { item: { ...fields, error, status: 'failed' }, result: JSON.stringify({ error }) }
}
