/**
 * The command line: finds the command for the arguments, runs it, and prints its errors. Public entry point of this
 * module.
 */
import { processEnvironment } from '../../process/config/config.ts'
import { CommandError, parseCommandLine, UsageError, usage } from './command.ts'
import { complain, EXIT_BAD_CONFIGURATION, EXIT_FAILED } from './outcome.ts'
import { start } from './start.ts'
import { commandsFor } from './table.ts'
import { version } from './version.ts'

/** Runs the command; resolves to the exit code. A started gateway keeps running afterwards. */
export async function run(words: readonly string[]): Promise<number> {
  try {
    const commands = await commandsFor(words)
    if (words.length === 0) {
      process.stderr.write(usage(null, commands))
      return EXIT_BAD_CONFIGURATION
    }
    const npmHint = npmOptionHint(words)
    if (npmHint !== null) throw new UsageError(npmHint)
    const read = parseCommandLine(words, commands)
    // A reader that stops early, such as head, is not an error. The gateway itself writes its log in another way.
    if (words[0] !== start.name) process.stdout.on('error', () => process.exit(EXIT_FAILED))
    if (read.action === 'run') return await read.command.run(read.options, read.argument)
    process.stdout.write(read.action === 'help' ? usage(read.command, read.candidates) : `${version()}\n`)
    return 0
  } catch (error) {
    if (error instanceof UsageError) {
      complain(error.message.split('\n'))
      return EXIT_BAD_CONFIGURATION
    }
    if (error instanceof CommandError) {
      complain(error.message.split('\n'))
      return EXIT_FAILED
    }
    const { startFailure } = await import('../../process/start/start-failure.ts')
    const failure = startFailure(error)
    if (failure === null) throw error
    complain(failure.lines)
    return failure.exitCode
  }
}

/** With `npm start --config FILE`, npm consumes the option, and passes on only the file name. */
function npmOptionHint([command, ...rest]: readonly string[]): string | null {
  const { npm_lifecycle_event: script, npm_config_config: value } = processEnvironment()
  if (command !== 'start' || script !== 'start' || value === undefined) return null
  if (rest.some(word => word.startsWith('--config'))) return null
  const file = value === 'true' || value === '' ? (rest.find(word => !word.startsWith('-')) ?? 'FILE') : value
  return `--config: npm took this option for one of its own; use npm start -- --config ${file}`
}
