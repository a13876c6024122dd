#!/usr/bin/env -S node --disable-warning=ExperimentalWarning
/** Process entry: configuration, launch, first keys on the screen, signals, exit codes. */
import { ConfigError, loadConfig, processEnvironment } from './config/config.ts'
import { type ClosableLog, createBufferedLog, createTerminalLog, type LogLevel } from './log/log.ts'
import { lowerHelpers } from './threads/helper-priority.ts'
import { type Launched, launch } from './threads/launch.ts'
import { startFailure } from './threads/start-failure.ts'

const EXIT_BAD_CONFIGURATION = 2
/** Requests may have been cut: by a second signal, or a fault of the supervisor. */
const EXIT_UNCLEAN = 1

async function main(): Promise<void> {
  lowerHelpers()
  const config = readConfig()
  const log = openLog(config.logLevel)
  let launched: Launched | null = null
  let exitCode = 0
  const stop = async (running: Launched, graceMs: number) => {
    const stopped = await running.stop(graceMs).catch(error => {
      log.fault('failed to stop cleanly', error)
      exitCode = EXIT_UNCLEAN
      return true
    })
    if (!stopped) log.notice('a thread did not stop; killing the process')
    await log.close()
    if (stopped) process.exit(exitCode)
    // While a thread is still running, an ordinary exit would abort with a dump of the whole memory.
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
    // A second signal ends running requests at once.
    if (signals > 1) exitCode = EXIT_UNCLEAN
    // The first thread may serve while others start. Draining begins when all have started.
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
    return complain(failure.line, failure.exitCode)
  }
  const running = launched
  process.on('uncaughtException', error => {
    log.fault('supervisor failed', error)
    exitCode = EXIT_UNCLEAN
    void stop(running, config.timeouts.drainMs)
  })
  // Last, because a supervisor that waits for this line may send a signal at once.
  log.listening(running.url, running.adminUrl)
  if (signals > 0) drain(running)
  void running.firstKeys.then(keys => showFirstSteps(running, keys))
}

function openLog(level: LogLevel): ClosableLog {
  // A closed terminal or a full disk must not stop the gateway.
  process.stdout.on('error', () => undefined)
  if (!process.stdout.isTTY) return createBufferedLog(level)
  return { ...createTerminalLog(level, process.stdout), close: () => Promise.resolve() }
}

function readConfig() {
  try {
    return loadConfig(process.argv.slice(2), processEnvironment())
  } catch (error) {
    if (error instanceof ConfigError) complain(error.message, EXIT_BAD_CONFIGURATION)
    throw error
  }
}

function complain(line: string, exitCode: number): never {
  process.stderr.write(`sluice: ${line}\n`)
  process.exit(exitCode)
}

/** Shows new keys once; only their hashes are stored. */
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
