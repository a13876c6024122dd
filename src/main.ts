#!/usr/bin/env -S node --disable-warning=ExperimentalWarning
/** Process entry: configuration, launch, first steps on the screen, signals, exit codes. */
import { ConfigError, loadConfig, processEnvironment } from './config.ts'
import { createLog } from './log.ts'
import { terminalLines } from './terminal.ts'
import { type Launched, launch } from './threads/launch.ts'
import { startFailure } from './threads/start-failure.ts'

const EXIT_BAD_CONFIGURATION = 2

async function main(): Promise<void> {
  const config = readConfig()
  const log = createLog(config.logLevel, process.stdout.isTTY ? terminalLines(process.stdout) : undefined)
  let launched: Launched
  try {
    launched = await launch(config, log)
  } catch (error) {
    const failure = startFailure(error)
    if (failure === null) throw error
    return complain(failure.line, failure.exitCode)
  }
  log.listening(launched.url, launched.adminUrl)
  showFirstSteps(launched)

  const stop = () => {
    log.notice('draining')
    // A second signal means now.
    process.once('SIGINT', () => process.exit(1))
    process.once('SIGTERM', () => process.exit(1))
    void launched.stop(config.timeouts.drainMs).then(() => process.exit(0))
  }
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
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

/** Shown once, when the keys were made; from then on only their hashes exist. */
function showFirstSteps({ url, firstKeys, simulated }: Launched): void {
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
