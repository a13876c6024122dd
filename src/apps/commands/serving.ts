/** The gateway process: checks, launch, first keys, signals, exit codes. */
import { existsSync } from 'node:fs'
import { type ClosableLog, createBufferedLog, createTerminalLog, type LogForm } from '../../base/log/log.ts'
import { type FoundConfig, forgetSecrets, processEnvironment } from '../../process/config/config.ts'
import { type EarlyWorkers, startEarly } from '../../process/start/early-workers.ts'
import { type CheckedStart, checkStart, startFailure } from '../../process/start/start-failure.ts'
import { startWarnings } from '../../process/start/start-warnings.ts'
import { launch, type RunningGateway } from '../../process/threads/launch.ts'
import { complain, EXIT_UNCLEAN } from './outcome.ts'
import { watchConfiguration } from './reload.ts'
import {
  banner,
  firstKeysPath,
  firstKeysText,
  MAKE_KEY,
  type StartInfo,
  writeFirstKeys,
} from './terminal/welcome.ts'
import { version } from './version.ts'

/** Ctrl-C reaches a gateway under npm twice: from the terminal, and from npm. */
const SAME_PRESS_MS = 300

/**
 * Resolves once the gateway listens. If it cannot start after its checks, it ends the process with an exit code.
 * @param early serve threads that are already loading; null: they start after all checks
 * @throws the errors of `checkStart`
 */
export async function serve(
  found: FoundConfig,
  findAgain: () => FoundConfig,
  early: EarlyWorkers | null,
): Promise<void> {
  const checked = checkStart(found)
  forgetSecrets(found)
  const { config } = checked
  const form: LogForm = process.stdout.isTTY ? 'terminal' : 'json'
  const log = openLog(checked, form)
  const warnings = startWarnings(checked)
  for (const warning of warnings) log.warning('config', warning)
  const stopping = new Stopping(log, config.timeouts.drainMs, form)
  stopping.listen()
  let gateway: RunningGateway
  try {
    gateway = await launch(checked, log, form, early ?? startEarly(config))
  } catch (error) {
    await log.close()
    const failure = startFailure(error)
    if (failure === null) throw error
    complain(failure.lines)
    process.exit(failure.exitCode)
  }
  const { url, adminUrl, front } = gateway
  const startInfo: StartInfo = { version: version(), ...checked, file: found.file, url, adminUrl }
  if (form === 'terminal') writeScreen(banner(startInfo))
  // Logged last, because a supervisor that waits for this line may send a signal at once.
  log.listening(url, adminUrl, front, {
    version: startInfo.version,
    file: found.file ?? undefined,
    storage: config.storage.url.startsWith('sqlite:') ? 'sqlite' : 'postgres',
    ...gateway.counts(),
    warnings: warnings.length,
  })
  stopping.onStarted(gateway)
  const takesSignal = form === 'json'
  watchConfiguration({ gateway, config, file: found.file, findAgain, takesSignal, log })
  void gateway.firstKeys.then(keys => showKeys(keys, startInfo, log, form))
}

function openLog({ config: { logLevel } }: CheckedStart, form: LogForm): ClosableLog {
  // A closed terminal or a full disk must not stop the gateway.
  process.stdout.on('error', () => undefined)
  if (form === 'json') return createBufferedLog(logLevel)
  return { ...createTerminalLog(logLevel, process.stdout), close: () => Promise.resolve() }
}

function writeScreen(text: string): void {
  process.stdout.write(text)
}

type Keys = Awaited<RunningGateway['firstKeys']>

/** New keys are shown once: on the terminal, or in a file. Only their hashes are stored. */
function showKeys(keys: Keys, startInfo: StartInfo, log: ClosableLog, form: LogForm): void {
  if (form === 'terminal') {
    writeScreen(keys === null ? `Keys: ${MAKE_KEY}\n\n` : `${firstKeysText(keys, startInfo)}\n`)
    return
  }
  const file = firstKeysPath(startInfo.config)
  if (keys === null) {
    if (existsSync(file))
      log.notice('process', 'the first keys are still in a file; delete it after you have copied them', {
        file,
      })
    return
  }
  try {
    writeFirstKeys(file, firstKeysText(keys, startInfo))
    log.notice('process', 'the first keys were written to a file; delete it after you have copied them', {
      file,
    })
  } catch (error) {
    log.fault(
      'process',
      `cannot write the first keys to a file, so they are lost; create new ones: ${MAKE_KEY}`,
      error,
    )
  }
}

/** Stops the gateway gracefully at the first signal and at once at the second; the third kills the process. */
class Stopping {
  readonly #log: ClosableLog
  readonly #graceMs: number
  readonly #form: LogForm
  #running: RunningGateway | null = null
  #signals = 0
  #lastInterruptMs = Number.NEGATIVE_INFINITY
  #exitCode = 0

  constructor(log: ClosableLog, graceMs: number, form: LogForm) {
    this.#log = log
    this.#graceMs = graceMs
    this.#form = form
  }

  listen(): void {
    process.on('SIGINT', () => this.#onInterrupt())
    process.on('SIGTERM', () => this.#onSignal())
  }

  /** Draining begins after all threads have started: the first one may serve while others start. */
  onStarted(gateway: RunningGateway): void {
    this.#running = gateway
    process.on('uncaughtException', error => {
      this.#log.crash('process', 'the main thread failed; stopping', error)
      this.#exitCode = EXIT_UNCLEAN
      void this.#stop(gateway, this.#graceMs)
    })
    if (this.#signals > 0) this.#drain(gateway)
  }

  #onInterrupt(): void {
    const nowMs = performance.now()
    const isSamePress = nowMs - this.#lastInterruptMs < SAME_PRESS_MS
    this.#lastInterruptMs = nowMs
    if (!isSamePress || processEnvironment()['npm_lifecycle_event'] === undefined) this.#onSignal()
  }

  #onSignal(): void {
    this.#signals++
    if (this.#signals > 2) process.kill(process.pid, 'SIGKILL')
    // A second signal ends running requests at once.
    if (this.#signals > 1) this.#exitCode = EXIT_UNCLEAN
    if (this.#running !== null) this.#drain(this.#running)
  }

  #drain(gateway: RunningGateway): void {
    const isUrgent = this.#signals > 1
    this.#log.notice('process', isUrgent ? 'draining without a grace period' : 'draining')
    if (!isUrgent && this.#form === 'terminal') void this.#showOpenRequests(gateway)
    void this.#stop(gateway, isUrgent ? 0 : this.#graceMs)
  }

  async #showOpenRequests(gateway: RunningGateway): Promise<void> {
    const count = await gateway.openRequests()
    if (count === 0 || this.#signals > 1) return
    const requests = count === 1 ? '1 request is still running' : `${count} requests are still running`
    writeScreen(`\n${requests}, for at most ${this.#graceMs / 1000} s. Press Ctrl-C again to stop now.\n\n`)
  }

  async #stop(gateway: RunningGateway, graceMs: number): Promise<void> {
    const stopped = await gateway.stop(graceMs).catch(error => {
      this.#log.fault('process', 'cannot stop cleanly', error)
      this.#exitCode = EXIT_UNCLEAN
      return true
    })
    this.#log.notice('process', stopped ? 'stopped' : 'a thread did not stop; killing the process')
    await this.#log.close()
    if (stopped) process.exit(this.#exitCode)
    // While a thread is still running, a normal exit would abort with a core dump.
    process.kill(process.pid, 'SIGKILL')
  }
}
