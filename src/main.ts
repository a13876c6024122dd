#!/usr/bin/env -S node --disable-warning=ExperimentalWarning
/** Process entry: configuration, launch, first steps on the screen, signals, exit codes. */
import { ConfigError, loadConfig, processEnvironment } from './config/config.ts'
import { type ClosableLog, createBufferedLog, createTerminalLog, type LogLevel } from './log/log.ts'
import { type Launched, launch } from './threads/launch.ts'
import { lowerHelpers } from './threads/operating-system.ts'
import { startFailure } from './threads/start-failure.ts'

const EXIT_BAD_CONFIGURATION = 2
/** Requests may have been aborted: after a second signal, or a fault of the supervisor. */
const EXIT_IN_HASTE = 1

async function main(): Promise<void> {
  lowerHelpers()
  const config = readConfig()
  const log = openLog(config.logLevel)
  let launched: Launched | null = null
  let exitCode = 0
  const stop = async (running: Launched, graceMs: number) => {
    const stopped = await running.stop(graceMs).catch(error => {
      log.fault('did not stop in order', error)
      exitCode = EXIT_IN_HASTE
      return true
    })
    if (!stopped) log.notice('a thread did not stop; killing the process')
    await log.close()
    if (stopped) process.exit(exitCode)
    // With a thread that does not end, an ordinary exit would be an abort, with a dump of all that is in memory.
    process.kill(process.pid, 'SIGKILL')
  }
  let signals = 0
  const drain = (running: Launched) => {
    log.notice(signals > 1 ? 'draining without grace' : 'draining')
    void stop(running, signals > 1 ? 0 : config.timeouts.drainMs)
  }
  const onSignal = () => {
    signals++
    if (signals > 2) process.kill(process.pid, 'SIGKILL')
    // A second signal leaves no grace time: running requests are aborted.
    if (signals > 1) exitCode = EXIT_IN_HASTE
    // The first thread may serve while others start; its requests finish after all have started.
    if (launched !== null) drain(launched)
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
  try {
    launched = await launch(config, log)
  } catch (error) {
    await log.close()
    const failure = startFailure(error)
    if (failure === null) throw error
    return complain(failure.lines, failure.exitCode)
  }
  const running = launched
  process.on('uncaughtException', error => {
    log.fault('supervisor failed', error)
    exitCode = EXIT_IN_HASTE
    void stop(running, config.timeouts.drainMs)
  })
  // Last: after this line a signal may come at any moment.
  log.listening(running.url, running.adminUrl)
  if (signals > 0) drain(running)
  void running.firstKeys.then(keys => showFirstSteps(running, keys))
}

function openLog(level: LogLevel): ClosableLog {
  // A closed terminal or a full disk loses output, but does not stop the gateway.
  process.stdout.on('error', () => undefined)
  if (!process.stdout.isTTY) return createBufferedLog(level)
  return { ...createTerminalLog(level, process.stdout), close: () => Promise.resolve() }
}

function readConfig() {
  try {
    return loadConfig(process.argv.slice(2), processEnvironment())
  } catch (error) {
    if (error instanceof ConfigError) complain(error.faults, EXIT_BAD_CONFIGURATION)
    throw error
  }
}

function complain(lines: readonly string[], exitCode: number): never {
  for (const line of lines) process.stderr.write(`sluice: ${line}\n`)
  process.exit(exitCode)
}

/** Shows new keys once; the store has only their hashes. */
function showFirstSteps({ url, simulated }: Launched, firstKeys: Awaited<Launched['firstKeys']>): void {
  if (firstKeys === null) return
  const model = simulated ? 'sim/echo' : '<vendor>/<model>'
  process.stdout.write(
    [
      '',
      'First keys, shown only now:',
      `  management key  ${firstKeys.managementKey}`,
      `  API key         ${firstKeys.apiKey}`,
      '',
      'Try it:',
      `  curl -N ${url}/v1/responses -H 'Authorization: Bearer ${firstKeys.apiKey}' -H 'Content-Type: application/json' -d '{"model":"${model}","input":"Hello, Sluice!","stream":true}'`,
      '',
      '',
    ].join('\n'),
  )
}

await main()
