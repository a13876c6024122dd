/** Runs commands of the product as separate processes, and returns their output and exit status. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Test } from 'tap'
import { CLI, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './product.ts'

interface CommandOutcome {
  /** Null if a signal ended it. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

interface RunningCommand {
  readonly child: ChildProcess
  readonly ended: Promise<CommandOutcome>
  stdout(): string
  stderr(): string
  /** Resolves when it has written this to one of both. */
  wrote(what: RegExp): Promise<void>
}

interface CommandOptions {
  /** Without this it has the path alone. */
  readonly environment?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Gives it a terminal of so many columns; stdout and stderr are then one. */
  readonly columns?: number
}

/** Starts a command, and kills it with the test. */
export function startCommand(
  t: Pick<Test, 'teardown'>,
  words: readonly string[],
  { environment = {}, cwd, columns }: CommandOptions = {},
): RunningCommand {
  const command = [process.execPath, ...PRODUCT_FLAGS, CLI, ...words]
  const [program = '', ...rest] =
    columns === undefined
      ? command
      : ['script', '-qefc', `stty cols ${columns} rows 24; exec ${command.join(' ')}`, '/dev/null']
  const child = spawn(program, rest, {
    ...(cwd === undefined ? {} : { cwd }),
    env: { ...PRODUCT_ENVIRONMENT, ...environment },
  })
  t.teardown(() => child.kill('SIGKILL'))
  let [stdout, stderr] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
    child.emit('more')
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
    child.emit('more')
  })
  const closed = once(child, 'close')
  const has = (what: RegExp) => what.test(stdout) || what.test(stderr)
  return {
    child,
    ended: closed.then(([code]) => ({ code: code as number | null, stdout, stderr })),
    stdout: () => stdout,
    stderr: () => stderr,
    async wrote(what) {
      while (!has(what)) {
        const isOver = await Promise.race([once(child, 'more').then(() => false), closed.then(() => true)])
        if (isOver && !has(what)) throw new Error(`ended without ${what}: ${stdout}${stderr}`)
      }
    },
  }
}

/** Runs a command to its end. */
export function runCommand(
  t: Pick<Test, 'teardown'>,
  words: readonly string[],
  options?: CommandOptions,
): Promise<CommandOutcome> {
  return startCommand(t, words, options).ended
}
