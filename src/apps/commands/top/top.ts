/**
 * `sluice top`: shows requests, time to the first token, errors and cost of a running gateway in a terminal. Over HTTP.
 */
import { setTimeout as after } from 'node:timers/promises'
import { processEnvironment } from '../../../process/config/config.ts'
import { CONFIG_OPTION, type Command, type OptionValues, UsageError } from '../command.ts'
import { withManagementKey } from '../management-client.ts'
import { print } from '../outcome.ts'
import type { PortAddress } from '../port-address.ts'
import { drawsOver } from '../terminal/progress-bar.ts'
import { ADMIN_OPTIONS, AdminFault, adminPortOf, askSummary } from './admin-client.ts'
import { type ScreenStyle, screenOf } from './screen.ts'

const EVERY = { usual: 2, min: 1, max: 3_600 } as const
/** Width of an output that reports none, such as a file. */
const USUAL_COLUMNS = 100
const CLEAR = '\x1b[H\x1b[2J'
/** Switches to the alternate screen and hides the cursor. */
const ENTER = '\x1b[?1049h\x1b[?25l'
const LEAVE = '\x1b[?25h\x1b[?1049l'

export const top: Command = {
  name: 'top',
  does: 'show requests, first token times, errors and costs of a running gateway; stop with Ctrl-C',
  options: {
    once: { does: 'print once and exit; this is the default if stdout is not a terminal' },
    json: { does: 'one line of JSON for each update, as the admin port returns it' },
    every: { value: 'SECONDS', does: `seconds between two updates; default: ${EVERY.usual}` },
    ...ADMIN_OPTIONS,
    config: CONFIG_OPTION,
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
    await (isJson ? tellJson(port, everyMs, signal) : draw(port, everyMs, signal))
  } catch (error) {
    // Only a signal ends it, so that is no failure.
    if (!signal.aborted) throw error
  }
  return 0
}

function everyMsOf({ every }: OptionValues): number {
  const seconds = every === undefined ? EVERY.usual : Number(every)
  if (!(seconds >= EVERY.min && seconds <= EVERY.max)) {
    throw new UsageError(`--every: expects a number of seconds from ${EVERY.min} to ${EVERY.max}`)
  }
  return seconds * 1_000
}

async function tellJson(port: PortAddress, everyMs: number, signal: AbortSignal): Promise<never> {
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
  stdout.write(ENTER)
  try {
    for (;;) {
      stdout.write(`${CLEAR}${lines.join('\r\n')}`)
      await after(everyMs, undefined, { signal })
      lines = await nextLines(port, lines, signal)
    }
  } finally {
    stdout.write(LEAVE)
  }
}

async function nextLines(
  port: PortAddress,
  before: readonly string[],
  signal: AbortSignal,
): Promise<string[]> {
  try {
    return screenOf(await askSummary(port, signal), styleOf())
  } catch (error) {
    if (!(error instanceof AdminFault)) throw error
    const { columns } = styleOf()
    const line = `! ${error.message}`
    return [line.length <= columns ? line : `${line.slice(0, columns - 1)}~`, ...before.slice(1)]
  }
}

function styleOf(): ScreenStyle {
  const { columns = USUAL_COLUMNS, rows = 24, isTTY } = process.stdout
  return {
    columns: columns > 0 ? columns : USUAL_COLUMNS,
    rows,
    colors: isTTY === true && process.stdout.hasColors(),
  }
}
