/**
 * The coding agents that are tried, with exact versions: how each is pointed at a gateway (by the lines of `sluice
 * connect` wherever they reach), how it runs without a terminal, and by which calls it reads, edits and runs.
 */
import { join } from 'node:path'
import { type ScriptedCall, SEARCH } from './provider.ts'

export const TASK = {
  mark: 'TASK-9203',
  prompt:
    'TASK-9203: read notes.txt and more.txt, replace green-4711 by black-4711 in notes.txt, copy it to copy.txt, and say how it went.',
  files: { 'notes.txt': 'the tea is green-4711\n', 'more.txt': 'the cup is blue-0815\n' },
  edited: 'the tea is black-4711\n',
  command: 'cp notes.txt copy.txt && echo copied-5566',
  answer: 'FINISHED-9203: the tea is black.',
  proofs: ['blue-0815', '4711', 'copied-5566'],
} as const

export interface Place {
  readonly home: string
  readonly work: string
  /** Without `/v1`. */
  readonly url: string
  readonly key: string
  readonly model: string
  /** Of the model, in tokens: small ones are for compactions. */
  readonly contextLength: number
}

export const CONTEXT_LENGTH = 200_000
export const SMALL_CONTEXT_LENGTH = 40_000
/** Qwen Code keeps 23,000 tokens free. */
const QWEN_SMALL_CONTEXT = 60_000
/** The prompt is said to have so many tokens when a small context is to be full. */
export const FULL_TOKENS = 38_000

export interface Prepared {
  readonly env: Readonly<Record<string, string>>
  /** Contents by path. */
  readonly files: Readonly<Record<string, string>>
  /** Behind the program. */
  readonly words: readonly string[]
  /** In their place where its last session goes on. */
  readonly again?: readonly string[]
  /** Run before it, once. */
  readonly before?: readonly string[]
}

export interface Compaction {
  /** The reply to this step of the task says that the context is full. */
  readonly step: number
  /** It compacts when a session goes on, not within the first task. */
  readonly isAgain?: boolean
}

export interface Program {
  readonly name: string
  readonly package: string
  readonly version: string
  readonly bin: string
  /** Its row of `sluice connect`. */
  readonly connect: string
  prepare(place: Place, lines: readonly string[]): Prepared
  readonly steps: readonly ((tools: readonly string[], work: string) => readonly ScriptedCall[])[]
  /** Texts of results behind each step, if they are others than those of the task. */
  readonly proofs?: readonly string[]
  /** The scenes in which it plays; absent: those of every program. */
  readonly scenes?: readonly string[]
  /** How it comes to compact its conversation without a terminal; a text: why it never does. */
  readonly compaction: Compaction | string
  /** The provider's signed thoughts have to come back from it, at these formats; elsewhere it has no place for them. */
  readonly keepsThoughts: readonly string[]
}

/** The variables that shell lines export, with the key in its place. */
function exported(lines: readonly string[], { key }: Place): Readonly<Record<string, string>> {
  return Object.fromEntries(
    lines
      .filter(line => line.startsWith('export '))
      .flatMap(line => [...line.matchAll(/(\w+)=(\S+)/g)])
      .map(([, name = '', value = '']) => [name, value.replace('$KEY', key)]),
  )
}

const isSmall = ({ contextLength }: Place): boolean => contextLength < CONTEXT_LENGTH
const text = (lines: readonly string[]): string => `${lines.join('\n')}\n`
const both = (name: string, field: string) => (_: readonly string[], work: string) =>
  ['notes.txt', 'more.txt'].map(file => ({ name, input: { [field]: join(work, file) } }))
const OLD = 'green-4711'
const NEW = 'black-4711'
const SIGNED = ['openai-responses', 'anthropic-messages', 'google-gemini', 'bedrock-converse']

const PATCH = `*** Begin Patch
*** Update File: notes.txt
@@
-the tea is ${OLD}
+the tea is ${NEW}
*** End Patch
`

/** Codex has one of three tools for commands, by model and version. */
function shell(tools: readonly string[], command: string): ScriptedCall {
  if (tools.includes('exec_command')) return { name: 'exec_command', input: { cmd: command } }
  if (tools.includes('shell_command')) return { name: 'shell_command', input: { command } }
  return { name: 'shell', input: { command: ['bash', '-lc', command] } }
}

const codexSteps: Program['steps'] = [
  tools => [shell(tools, 'cat notes.txt'), shell(tools, 'cat more.txt')],
  tools =>
    tools.includes('apply_patch')
      ? [{ name: 'apply_patch', input: PATCH }]
      : [shell(tools, `sed -i s/${OLD}/${NEW}/ notes.txt && cat notes.txt`)],
  tools => [shell(tools, TASK.command)],
]

function codex(name: string, isSocket: boolean): Program {
  return {
    name,
    package: '@openai/codex',
    version: '0.171.0',
    bin: 'codex',
    connect: 'codex',
    prepare: ({ home, key }, lines) => ({
      env: { KEY: key, CODEX_HOME: join(home, '.codex') },
      files: {
        '.codex/config.toml': text(lines.filter(line => isSocket || !line.startsWith('supports_websockets'))),
      },
      words: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', TASK.prompt],
    }),
    steps: codexSteps,
    compaction: { step: 1 },
    keepsThoughts: SIGNED,
  }
}

const TEA_SERVER = join(import.meta.dirname, 'tea-server.ts')
/** Of an MCP server: Codex offers a search in place of its tools, and runs it itself. */
const TEA_TOOL = 'count_cups'

/** Codex with a search for tools, which it has only for models that its catalogue says can use one. */
const codexSearch: Program = {
  ...codex('codex-search', false),
  prepare(place, lines) {
    const prepared = codex('codex-search', false).prepare(place, lines)
    const catalogue = join(place.home, '.codex/models.json')
    const config = text([
      `model_catalog_json = ${JSON.stringify(catalogue)}`,
      ...lines.filter(line => !line.startsWith('supports_websockets')),
      '[features]',
      'tool_search_always_defer_mcp_tools = true',
      '[mcp_servers.tea]',
      `command = ${JSON.stringify(process.execPath)}`,
      `args = ["--disable-warning=ExperimentalWarning", ${JSON.stringify(TEA_SERVER)}]`,
    ])
    const files = {
      '.codex/config.toml': config,
      '.codex/models.json': JSON.stringify({ models: [codexModel(place)] }),
    }
    return { ...prepared, files }
  },
  steps: [
    () => [{ name: SEARCH, input: { query: 'cups of tea' } }],
    tools => [{ name: tools.find(name => name.endsWith(TEA_TOOL)) ?? TEA_TOOL, input: { shelf: 'long' } }],
    ...codexSteps.slice(1),
  ],
  proofs: [TEA_TOOL, 'cups-3307', '4711', 'copied-5566'],
  scenes: ['task'],
}

function codexModel({ model, contextLength }: Place): object {
  return {
    slug: model,
    display_name: model,
    description: 'A model that searches for tools',
    default_reasoning_level: 'medium',
    supported_reasoning_levels: [{ effort: 'medium', description: 'medium' }],
    shell_type: 'shell_command',
    visibility: 'list',
    supported_in_api: true,
    priority: 1,
    base_instructions: 'You are a coding agent.',
    supports_reasoning_summaries: true,
    default_reasoning_summary: 'none',
    support_verbosity: false,
    apply_patch_tool_type: 'freeform',
    truncation_policy: { mode: 'tokens', limit: 10_000 },
    supports_parallel_tool_calls: true,
    supports_search_tool: true,
    context_window: contextLength,
    experimental_supported_tools: [],
  }
}

const googleSteps = (edit: string): Program['steps'] => [
  both('read_file', 'file_path'),
  (_, work) => [
    {
      name: edit,
      input: {
        file_path: join(work, 'notes.txt'),
        old_string: OLD,
        new_string: NEW,
        ...(edit === 'replace' ? { instruction: 'Make the tea black', allow_multiple: false } : {}),
      },
    },
  ],
  () => [
    {
      name: 'run_shell_command',
      input: { command: TASK.command, description: 'copies', is_background: false },
    },
  ],
]

export const PROGRAMS: readonly Program[] = [
  {
    name: 'claude-code',
    package: '@anthropic-ai/claude-code',
    version: '2.1.332',
    bin: 'claude',
    connect: 'claude-code',
    prepare: (place, lines) => ({
      env: {
        ...exported(lines, place),
        DISABLE_AUTOUPDATER: '1',
        IS_SANDBOX: '1',
        // Else it takes an unknown model for one of a million tokens, and never for one of less than 100,000.
        ...(isSmall(place)
          ? { CLAUDE_CODE_AUTO_COMPACT_WINDOW: '100000', CLAUDE_AUTOCOMPACT_PCT_OVERRIDE: '30' }
          : {}),
      },
      files: {},
      words: ['-p', TASK.prompt, '--dangerously-skip-permissions'],
    }),
    steps: [
      both('Read', 'file_path'),
      (_, work) => [
        { name: 'Edit', input: { file_path: join(work, 'notes.txt'), old_string: OLD, new_string: NEW } },
      ],
      () => [{ name: 'Bash', input: { command: TASK.command, description: 'Copies the note' } }],
    ],
    compaction: { step: 1 },
    keepsThoughts: SIGNED,
  },
  codex('codex', false),
  codex('codex-websocket', true),
  codexSearch,
  {
    name: 'gemini-cli',
    package: '@google/gemini-cli',
    version: '0.61.0',
    bin: 'gemini',
    connect: 'gemini-cli',
    prepare: (place, lines) => ({
      env: { ...exported(lines, place), GEMINI_CLI_TRUST_WORKSPACE: 'true' },
      files: {
        '.gemini/settings.json': JSON.stringify({
          security: { auth: { selectedType: 'gemini-api-key' } },
          // Of the million tokens that it takes every model for.
          ...(isSmall(place)
            ? {
                model: { compressionThreshold: 0.005 },
                modelConfigs: {
                  customAliases: { 'chat-compression-default': { modelConfig: { model: place.model } } },
                },
              }
            : {}),
          privacy: { usageStatisticsEnabled: false },
          general: { disableAutoUpdate: true, enableAutoUpdate: false },
        }),
      },
      words: ['-p', TASK.prompt, '--yolo'],
      again: ['--resume', 'latest', '-p', TASK.prompt, '--yolo'],
    }),
    steps: googleSteps('replace'),
    // It sums up what is before the last prompt, so not within the first task.
    compaction: { step: 3, isAgain: true },
    keepsThoughts: ['google-gemini'],
  },
  {
    name: 'opencode',
    package: 'opencode-ai',
    version: '1.18.33',
    bin: 'opencode',
    connect: 'opencode',
    prepare: ({ key, model, work }, lines) => ({
      env: {
        KEY: key,
        OPENCODE_DISABLE_AUTOUPDATE: 'true',
        OPENCODE_DISABLE_MODELS_FETCH: 'true',
        OPENCODE_DISABLE_LSP_DOWNLOAD: 'true',
      },
      files: { [join(work, 'opencode.json')]: text(lines) },
      words: ['run', '--model', `sluice/${model}`, TASK.prompt],
    }),
    steps: [
      both('read', 'filePath'),
      (_, work) => [
        { name: 'edit', input: { filePath: join(work, 'notes.txt'), oldString: OLD, newString: NEW } },
      ],
      () => [{ name: 'bash', input: { command: TASK.command, description: 'Copies the note' } }],
    ],
    compaction: { step: 1 },
    keepsThoughts: [],
  },
  {
    name: 'qwen-code',
    package: '@qwen-code/qwen-code',
    version: '0.24.4',
    bin: 'qwen',
    connect: 'qwen-code',
    prepare: (place, lines) => ({
      env: exported(lines, place),
      files: {
        '.qwen/settings.json': JSON.stringify({
          security: { auth: { selectedType: 'openai' } },
          model: {
            generationConfig: {
              contextWindowSize: isSmall(place) ? QWEN_SMALL_CONTEXT : place.contextLength,
            },
          },
          privacy: { usageStatisticsEnabled: false },
          general: { disableAutoUpdate: true, enableAutoUpdate: false },
        }),
      },
      words: ['-p', TASK.prompt, '--yolo'],
    }),
    steps: googleSteps('edit'),
    compaction: { step: 1 },
    keepsThoughts: [],
  },
  {
    name: 'continue',
    package: '@continuedev/cli',
    version: '1.5.47',
    bin: 'cn',
    connect: 'continue',
    prepare: ({ home, key }, lines) => ({
      env: { CONTINUE_TELEMETRY_ENABLED: '0', CONTINUE_CLI_TEST: '0' },
      files: { '.continue/config.yaml': text(lines), '.continue/.env': `KEY=${key}\n` },
      words: ['-p', TASK.prompt, '--auto', '--config', join(home, '.continue/config.yaml')],
    }),
    steps: [
      both('Read', 'filepath'),
      (tools, work) => [
        tools.includes('MultiEdit')
          ? {
              name: 'MultiEdit',
              input: {
                file_path: join(work, 'notes.txt'),
                edits: [{ old_string: OLD, new_string: NEW }],
              },
            }
          : {
              name: 'Edit',
              input: { file_path: join(work, 'notes.txt'), old_string: OLD, new_string: NEW },
            },
      ],
      () => [{ name: 'Bash', input: { command: TASK.command } }],
    ],
    // It asks for a summary if it is told so, and goes on.
    compaction:
      'it shortens what it reads: a prompt never has as many bytes as a full context has tokens, and such usage is not believed',
    keepsThoughts: [],
  },
  {
    name: 'cline',
    package: 'cline',
    version: '3.0.65',
    bin: 'cline',
    connect: 'cline',
    prepare: ({ key, model }, lines) => ({
      env: { CLINE_TELEMETRY_DISABLED: '1' },
      files: {},
      before: (lines[0] ?? '').replace('$KEY', key).split(' ').slice(1),
      words: ['-P', 'openai', '-m', model, '--auto-approve', 'true', TASK.prompt],
    }),
    steps: [
      (_, work) =>
        ['notes.txt', 'more.txt'].map(file => ({
          name: 'read_files',
          input: { files: [{ path: join(work, file) }] },
        })),
      (_, work) => [
        { name: 'editor', input: { path: join(work, 'notes.txt'), old_text: OLD, new_text: NEW } },
      ],
      () => [{ name: 'run_commands', input: { commands: [TASK.command] } }],
    ],
    compaction:
      'it takes each model for one of 128,000 tokens, and compacts by its own count of them, which this task does not reach',
    keepsThoughts: [],
  },
  {
    name: 'pi',
    package: '@mariozechner/pi-coding-agent',
    version: '0.73.1',
    bin: 'pi',
    connect: 'pi',
    prepare: ({ key, model }, lines) => ({
      env: { KEY: key, PI_OFFLINE: '1', PI_TELEMETRY: '0' },
      files: { '.pi/agent/models.json': text(lines) },
      words: ['-p', '--provider', 'sluice', '--model', model, TASK.prompt],
    }),
    steps: [
      both('read', 'path'),
      (_, work) => [
        {
          name: 'edit',
          input: { path: join(work, 'notes.txt'), edits: [{ oldText: OLD, newText: NEW }] },
        },
      ],
      () => [{ name: 'bash', input: { command: TASK.command } }],
    ],
    compaction: 'it did not compact in trials, neither at the end of the task nor before the next prompt',
    keepsThoughts: [],
  },
]
