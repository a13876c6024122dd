/**
 * Reloads the configuration's providers and their keys, models, routes, rollouts and default model, on SIGHUP or when
 * its file, the imported file or the file of a provider's key changes. SIGHUP also reloads the certificate. An invalid
 * file changes nothing. Main thread.
 */
import { statSync, unwatchFile, watchFile } from 'node:fs'
import type { ClosableLog } from '../../base/log/log.ts'
import { ConfigError } from '../../base/settings/check.ts'
import type { FoundConfig } from '../../process/config/config.ts'
import type { Config } from '../../process/config/settings.ts'
import { checkStart, startFailure } from '../../process/start/start-failure.ts'
import { startWarnings } from '../../process/start/start-warnings.ts'
import type { RunningGateway } from '../../process/threads/launch.ts'

interface ReloadDeps {
  readonly gateway: Pick<RunningGateway, 'reconfigure' | 'reloadCertificate' | 'noteReload'>
  readonly config: Config
  /** The configuration file; null without one. */
  readonly file: string | null
  readonly findAgain: () => FoundConfig
  /** False on a terminal, where the signal means that the window was closed, and ends the process. */
  readonly takesSignal: boolean
  readonly log: Pick<ClosableLog, 'notice' | 'warning' | 'fault'>
}

/** Polling detects changes that notifications miss: replaced files, and mounted volumes. */
const POLL_MS = 1_000
/** Settings that can change at run time; every other one needs a restart. */
const RELOADABLE_SETTINGS: ReadonlySet<string> = new Set([
  'providers',
  'models',
  'routes',
  'rollouts',
  'catalogue',
  'defaultModel',
  'providerKeys',
])
/** Parts of the configuration that are not compared. */
const UNCOMPARED_SETTINGS: ReadonlySet<string> = new Set(['vaultKeys'])

/** Returns a function that stops watching. */
export function watchConfiguration(deps: ReloadDeps): () => void {
  const { gateway, config, file, findAgain, takesSignal, log } = deps
  let current = config
  let watched: readonly string[] = []
  const reload = (): void => {
    try {
      const foundConfig = findAgain()
      // The file is being written, or its disk is full. Loading it would remove all models.
      if (file !== null && statSync(file, { throwIfNoEntry: false })?.size === 0)
        throw new ConfigError(`${file}: is empty`)
      const checked = checkStart(foundConfig, { readKeyFile: false, certificate: false })
      const { providers, models, routes } = gateway.reconfigure(checked.config)
      gateway.noteReload(true)
      const needRestart = changedSettings(config, checked.config)
      current = checked.config
      watch()
      for (const warning of startWarnings(checked)) log.warning('config', warning)
      log.notice('config', 'configuration reloaded', {
        providers,
        models,
        routes,
        ...(needRestart.length === 0 ? {} : { needRestart: needRestart.join() }),
      })
    } catch (error) {
      gateway.noteReload(false)
      const failure = startFailure(error)
      if (failure === null) log.fault('config', 'configuration not reloaded', error)
      else for (const line of failure.lines) log.warning('config', `configuration not reloaded: ${line}`)
    }
  }
  const onFileChange = (current: { mtimeMs: number }, previous: { mtimeMs: number }): void => {
    if (current.mtimeMs !== previous.mtimeMs) reload()
  }
  const watch = (): void => {
    const keys = current.providers.flatMap(({ apiKeyFile }) => apiKeyFile ?? [])
    const files = [file, current.catalogue.import, ...keys].filter(path => path !== null)
    for (const path of watched) if (!files.includes(path)) unwatchFile(path, onFileChange)
    for (const path of files) {
      if (!watched.includes(path) && statSync(path, { throwIfNoEntry: false }) !== undefined)
        watchFile(path, { persistent: false, interval: POLL_MS }, onFileChange)
    }
    watched = files
  }
  const onSignal = (): void => {
    gateway.reloadCertificate()
    reload()
  }
  watch()
  if (takesSignal) process.on('SIGHUP', onSignal)
  return () => {
    process.off('SIGHUP', onSignal)
    for (const path of watched) unwatchFile(path, onFileChange)
  }
}

/** Names of settings whose new value is not in effect yet. */
function changedSettings(before: Config, after: Config): readonly string[] {
  return Object.entries(after)
    .filter(([name, value]) => {
      if (RELOADABLE_SETTINGS.has(name) || UNCOMPARED_SETTINGS.has(name)) return false
      return JSON.stringify(value) !== JSON.stringify(before[name as keyof Config])
    })
    .map(([name]) => name)
}
