/** Exit codes and output of the command line. */

/** Bad configuration or command line. */
export const EXIT_BAD_CONFIGURATION = 2
/** Requests may have been cut off: by a second signal, or a fault of the supervisor. */
export const EXIT_UNCLEAN = 1
/** A command failed, or the watched batch did. */
export const EXIT_FAILED = 1

/** Lines on stderr, each with the program's name. */
export function complain(lines: readonly string[]): void {
  for (const line of lines) process.stderr.write(`sluice: ${line}\n`)
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

/** `--config` and its value, for loading the configuration. */
export function configWords(config: string | true | undefined): readonly string[] {
  return typeof config === 'string' ? ['--config', config] : []
}
