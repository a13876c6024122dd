/**
 * `sluice top`: shows requests, time to the first token, errors and cost of a running gateway in a terminal. Over HTTP.
 */
import { setTimeout as after } from 'node:timers/promises'
import { processEnvironment } from '../../../process/config/config.ts'
import { type Command, type OptionValues, UsageError } from '../command.ts'
import { withManagementKey } from '../management-client.ts'
import { print } from '../outcome.ts'
import type { PortAddress } from '../port-address.ts'
import { drawsOver } from '../terminal/progress-bar.ts'
import { ADMIN_OPTIONS, AdminFault, adminPortOf, askSummary } from './admin-client.ts'
import { type ScreenStyle, screenOf } from './screen.ts'

const UPDATE_SECONDS = { usual: 2, min: 1, max: 3_600 } as const
/** Width of an output that reports none, such as a file. */
const DEFAULT_COLUMNS = 100
const CLEAR_SCREEN = '\x1b[H\x1b[2J'
/** Switches to the alternate screen and hides the cursor. */
const ENTER_SCREEN = '\x1b[?1049h\x1b[?25l'
const LEAVE_SCREEN = '\x1b[?25h\x1b[?1049l'

export const top: Command = {
  name: 'top',
  does: 'show requests, first token times, errors and costs of a running gateway; stop with Ctrl-C',
  options: {
    once: { does: 'print once and exit; without --json, this is the default if stdout is not a terminal' },
    json: { does: 'one line of JSON for each update, as the admin port returns it' },
    every: { value: 'SECONDS', does: `seconds between two updates; default: ${UPDATE_SECONDS.usual}` },
    ...ADMIN_OPTIONS,
  },
  async run(options) {
    const everyMs = everyMsOf(options)
    return await withManagementKey(options, { command: 'top', role: 'viewer' }, (key, signal) =>
      show({ ...options, ...key }, everyMs, signal),
    )
  },
}

async function show(options: OptionValues, everyMs: number, signal: AbortSignal): Promise<number> {
  const port = adminPortOf(options)
  const { stdout } = process
  const isJson = options['json'] === true
  const isScreen = drawsOver(stdout, processEnvironment())
  if (options['once'] === true || (!isScreen && !isJson)) {
    const summary = await askSummary(port, signal)
    if (isJson) print(JSON.stringify(summary))
    else for (const line of screenOf(summary, { ...styleOf(), rows: Number.POSITIVE_INFINITY })) print(line)
    return 0
  }
  try {
    await (isJson ? printUpdates(port, everyMs, signal) : draw(port, everyMs, signal))
  } catch (error) {
    // Only a signal ends it, so that is no failure.
    if (!signal.aborted) throw error
  }
  return 0
}

function everyMsOf({ every }: OptionValues): number {
  const seconds = every === undefined ? UPDATE_SECONDS.usual : Number(every)
  if (!(seconds >= UPDATE_SECONDS.min && seconds <= UPDATE_SECONDS.max)) {
    throw new UsageError(
      `--every: expects a number of seconds from ${UPDATE_SECONDS.min} to ${UPDATE_SECONDS.max}`,
    )
  }
  return seconds * 1_000
}

async function printUpdates(port: PortAddress, everyMs: number, signal: AbortSignal): Promise<never> {
  for (;;) {
    print(JSON.stringify(await askSummary(port, signal)))
    await after(everyMs, undefined, { signal })
  }
}

/** Redraws in place, and continues after the gateway was unreachable. @throws CommandError */
async function draw(port: PortAddress, everyMs: number, signal: AbortSignal): Promise<never> {
  const { stdout } = process
  // An error of the first request is reported on the normal screen.
  let lines = screenOf(await askSummary(port, signal), styleOf())
  stdout.write(ENTER_SCREEN)
  try {
    for (;;) {
      stdout.write(`${CLEAR_SCREEN}${lines.join('\r\n')}`)
      await after(everyMs, undefined, { signal })
      lines = await nextLines(port, lines, signal)
    }
  } finally {
    stdout.write(LEAVE_SCREEN)
  }
}

async function nextLines(
  port: PortAddress,
  previousLines: readonly string[],
  signal: AbortSignal,
): Promise<string[]> {
  try {
    return screenOf(await askSummary(port, signal), styleOf())
  } catch (error) {
    if (!(error instanceof AdminFault)) throw error
    const { columns } = styleOf()
    const line = `! ${error.message}`
    return [line.length <= columns ? line : `${line.slice(0, columns - 1)}~`, ...previousLines.slice(1)]
  }
}

function styleOf(): ScreenStyle {
  const { columns = DEFAULT_COLUMNS, rows = 24, isTTY } = process.stdout
  return {
    columns: columns > 0 ? columns : DEFAULT_COLUMNS,
    rows,
    colors: isTTY === true && process.stdout.hasColors(),
  }
}
