/** The type of a command, and the parser of its arguments. Error messages name the option, never its value. */
import { parseArgs } from 'node:util'
import { didYouMean } from '../../base/did-you-mean.ts'

/** An option of a command: `--name VALUE`, or `--name` alone. */
export interface Option {
  /** Placeholder for its value in the usage; absent for an option without a value. */
  readonly value?: string
  readonly required?: boolean
  /** May be repeated; its text then has one line for each value. */
  readonly repeats?: true
  readonly does: string
}

/** The options on the command line: the text of those with a value, true for the others. */
export type OptionValues = Readonly<Record<string, string | true>>

/** A command in the table of commands. */
export interface Command {
  readonly name: string
  readonly does: string
  /** Placeholder of the required argument; absent: the command has none. */
  readonly argument?: string
  readonly isArgumentOptional?: true
  readonly options: Readonly<Record<string, Option>>
  /**
   * Resolves to the exit code.
   * @param argument empty for a command without one
   * @throws UsageError, or CommandError
   */
  run(options: OptionValues, argument: string): Promise<number>
}

/** The command line is invalid; one line per error. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** The command failed. One sentence with the reason and, usually, what to do. Exit code 1. */
export class CommandError extends Error {
  override readonly name: string = 'CommandError'
}

/** The parsed command line for one of the commands. */
export type ParsedLine =
  | {
      readonly action: 'help'
      readonly command: Command | null
      /** The commands to list if `command` is null: those that begin with the given word, or all. */
      readonly candidates: readonly Command[]
    }
  | { readonly action: 'version' }
  | {
      readonly action: 'run'
      readonly command: Command
      readonly options: OptionValues
      readonly argument: string
    }

export const CONFIG_OPTION: Option = {
  value: 'FILE',
  does: 'the configuration file; default: GATEWAY_CONFIG',
}

/** Options of every command. */
const COMMON_OPTIONS: Readonly<Record<string, Option>> = {
  help: { does: 'show this help' },
  version: { does: 'show the version' },
}

/** @throws UsageError with all errors */
export function parseCommandLine(words: readonly string[], commands: readonly Command[]): ParsedLine {
  const split = splitWords(words, commands)
  if (split.version) return { action: 'version' }
  if (split.help) {
    const beginning = split.command === null ? split.positionals.join(' ') : ''
    const among = commands.filter(({ name }) => name.startsWith(`${beginning} `))
    return { action: 'help', command: split.command, candidates: among.length === 0 ? commands : among }
  }
  const { command, positionals, options } = split
  if (command === null) throw new UsageError(unknownCommand(positionals, commands))
  const [argument = '', ...surplus] = command.argument === undefined ? ['', ...positionals] : positionals
  const faults = [
    ...(command.argument === undefined || command.isArgumentOptional === true || argument !== ''
      ? []
      : [`${command.argument}: is missing; usage: sluice ${command.name} ${command.argument}`]),
    ...surplus.map(
      word => `${safe(word)}: unknown argument of sluice ${command.name}${fileHint(word, command)}`,
    ),
    ...options.flatMap(option => optionFault(option, command)),
    ...Object.entries(command.options)
      .filter(([name, { required }]) => required === true && !options.some(option => option.name === name))
      .map(([name, { value }]) => `--${name}: is required; usage: --${name} ${value ?? ''}`.trimEnd()),
  ]
  if (faults.length > 0) throw new UsageError(faults.join('\n'))
  return {
    action: 'run',
    command,
    argument,
    options: optionValues(options, command),
  }
}

/** A repeated option has its last value or, if it `repeats`, all values, one a line. */
function optionValues(options: readonly OptionToken[], command: Command): OptionValues {
  const values: Record<string, string | true> = {}
  for (const { name, value = true } of options) {
    const before = command.options[name]?.repeats === true ? values[name] : undefined
    values[name] = typeof before === 'string' ? `${before}\n${value}` : value
  }
  return values
}

interface OptionToken {
  /** As written, with its dashes and without a value. */
  readonly spelling: string
  readonly name: string
  readonly value: string | undefined
}

interface SplitWords {
  readonly command: Command | null
  /** Words that do not belong to an option. */
  readonly positionals: readonly string[]
  readonly options: readonly OptionToken[]
  readonly help: boolean
  readonly version: boolean
}

function splitWords(words: readonly string[], commands: readonly Command[]): SplitWords {
  // The command decides if a word is the value of the preceding option, so it is found first.
  const count = words.findIndex(word => word.startsWith('-'))
  const leading = count === -1 ? words : words.slice(0, count)
  const command = commandOf(leading, commands)
  const knownOptions = { ...COMMON_OPTIONS, ...command?.options }
  const { tokens } = parseArgs({
    args: [...words],
    options: {
      ...Object.fromEntries(
        Object.entries(knownOptions).map(([name, { value }]) => [
          name,
          { type: value === undefined ? ('boolean' as const) : ('string' as const) },
        ]),
      ),
      help: { type: 'boolean', short: 'h' },
    },
    strict: false,
    tokens: true,
  })
  // The word after an unknown option is probably its value, and no second fault.
  const isUnknown = (index: number) => {
    const token = tokens[index]
    return token?.kind === 'option' && token.value === undefined && !Object.hasOwn(knownOptions, token.name)
  }
  const positionals = tokens.flatMap((token, index) =>
    token.kind === 'positional' && !isUnknown(index - 1) ? [token.value] : [],
  )
  const options = tokens.flatMap(token =>
    token.kind === 'option' ? [{ spelling: token.rawName, name: token.name, value: token.value }] : [],
  )
  const hasFlag = (name: string) => options.some(option => option.name === name && option.value === undefined)
  return {
    command,
    positionals: command === null ? positionals : positionals.slice(command.name.split(' ').length),
    options,
    help: hasFlag('help'),
    version: hasFlag('version'),
  }
}

/** The command whose name begins the words; null: none. */
export function commandOf(words: readonly string[], commands: readonly Command[]): Command | null {
  return commands.find(({ name }) => name.split(' ').every((part, index) => words[index] === part)) ?? null
}

function unknownCommand(words: readonly string[], commands: readonly Command[]): string {
  const [first] = words
  if (first === undefined) return 'a command is missing; sluice --help lists them'
  const names = commands.map(({ name }) => name)
  const beginnings = names.filter(name => name.startsWith(`${first} `))
  if (words.length === 1 && beginnings.length > 0) {
    return `${first}: is not a complete command; the commands are: ${beginnings.join(', ')}`
  }
  const shownWords = words.slice(0, 2).map(safe).join(' ')
  const hint = didYouMean(words.slice(0, 2).join(' '), names) || didYouMean(first, names)
  return `${shownWords}: there is no such command${hint || '; sluice --help lists them'}`
}

function optionFault({ spelling, name, value }: OptionToken, { name: command, options }: Command): string[] {
  const option = Object.hasOwn(options, name) ? options[name] : undefined
  if (option === undefined) {
    const names = [...Object.keys(options), ...Object.keys(COMMON_OPTIONS)].map(option => `--${option}`)
    return [`${safe(spelling)}: unknown option of sluice ${command}${didYouMean(spelling, names)}`]
  }
  if (option.value === undefined) return value === undefined ? [] : [`--${name}: does not take a value`]
  return value === undefined || value === '' || value.startsWith('--')
    ? [`--${name}: expects ${option.value}`]
    : []
}

/** A word without an option is usually a file: npm removes `--config` if `--` is missing before it. */
function fileHint(word: string, { options }: Command): string {
  return 'config' in options ? `; to name a configuration file, use --config ${safe(word)}` : ''
}

/** A word without what may be the value of a secret. */
function safe(word: string): string {
  const [name = ''] = word.split('=')
  return /^sk-/.test(name) ? '(a key)' : name
}

/** The help text of a command; null: the list of these commands. */
export function usage(command: Command | null, commands: readonly Command[]): string {
  return command === null ? usageOfAll(commands) : usageOf(command)
}

function usageOfAll(commands: readonly Command[]): string {
  const rows = commands.map(command => [line(command), command.does] as const)
  return [
    'usage:',
    ...columns(rows),
    '',
    'Every command takes --help and --version, and reads the environment variables of the gateway.',
    '',
  ].join('\n')
}

function usageOf(command: Command): string {
  const options = { ...command.options, ...COMMON_OPTIONS }
  return [
    `usage: ${line(command)}`,
    '',
    `  ${command.does}`,
    '',
    ...columns(Object.entries(options).map(([name, option]) => [optionText(name, option), option.does])),
    '',
  ].join('\n')
}

/** In longer lines, optional parts are only listed below. */
const USAGE_MAX_CHARS = 80

function line({ name, argument, isArgumentOptional, options }: Command): string {
  const rows = Object.entries(options)
  const required = rows
    .filter(([, row]) => row.required === true)
    .map(([option, row]) => optionText(option, row))
  const optional = rows
    .filter(([, row]) => row.required !== true)
    .map(([option, row]) => `[${optionText(option, row)}]`)
  const words = [
    'sluice',
    name,
    ...(argument === undefined ? [] : [isArgumentOptional ? `[${argument}]` : argument]),
    ...required,
  ]
  const fullLine = [...words, ...optional].join(' ')
  return fullLine.length <= USAGE_MAX_CHARS ? fullLine : [...words, '[options]'].join(' ')
}

function optionText(name: string, { value }: Option): string {
  return value === undefined ? `--${name}` : `--${name} ${value}`
}

function columns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([first]) => first.length))
  return rows.map(([first, second]) => `  ${first.padEnd(width)}   ${second}`)
}
