/** Exit codes and output of the command line. */
import { writeFileSync } from 'node:fs'
import { systemCode } from '../../base/errors.ts'
import { CommandError } from './command.ts'

/** Bad configuration or command line; in some commands also an input that cannot be read or used. */
export const EXIT_BAD_CONFIGURATION = 2
/** Requests may have been cut off: by a second signal, or a fault of the supervisor. */
export const EXIT_UNCLEAN = 1
/** A command failed, the watched batch did, or something that is compared or tested is not as it should be. */
export const EXIT_FAILED = 1

/** Lines on stderr, each with the program's name. */
export function complain(lines: readonly string[]): void {
  for (const line of lines) process.stderr.write(`sluice: ${line}\n`)
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

/** Progress goes to stderr, so that scripts read only the result. */
export function printProgress(line: string): void {
  process.stderr.write(`${line}\n`)
}

/** Writes a file that only its owner can read. @throws CommandError */
export function writePrivateFile(path: string, content: string): void {
  try {
    writeFileSync(path, content, { mode: 0o600 })
  } catch (error) {
    throw new CommandError(`${path}: cannot be written (${systemCode(error) ?? 'unknown'})`)
  }
}

/** `--config` and its value, for loading the configuration. */
export function configWords(config: string | true | undefined): readonly string[] {
  return typeof config === 'string' ? ['--config', config] : []
}
