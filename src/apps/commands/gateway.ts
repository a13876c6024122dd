/**
 * Early startup: loads the configuration, and starts serve threads that load their code while this thread loads the
 * rest. Kept small, because all of it runs before those threads start.
 */
import { type FoundConfig, findConfig, processEnvironment } from '../../process/config/config.ts'
import { hasCompileCache } from '../../process/start/compile-cache.ts'
import { type EarlyWorkers, startEarly } from '../../process/start/early-workers.ts'
import { lowerHelpers } from '../../process/wiring/operating-system.ts'
import { configWords } from './outcome.ts'

/** Resolves once the gateway listens. The process ends when the gateway has stopped. */
export async function startGateway(file: string | true | undefined): Promise<void> {
  lowerHelpers()
  const words = configWords(file)
  // Copied, because a later reload needs the secrets that are removed after the checks.
  const environment = { ...processEnvironment() }
  const foundConfig = findConfig(words, environment)
  const early = loadEarly(foundConfig)
  try {
    const { serve } = await import('./serving.ts')
    await serve(foundConfig, () => findConfig(words, environment), early)
  } catch (error) {
    // The threads would keep the process alive.
    early?.close()
    throw error
  }
}

/**
 * Starts the serve threads; null if the configuration has faults, or there is no compile cache yet: then they start
 * after all checks, because an invalid configuration must leave no traces.
 */
function loadEarly({ config, faults }: FoundConfig): EarlyWorkers | null {
  if (config === null || !faults.isEmpty || !hasCompileCache(config.storage.url)) return null
  return startEarly(config)
}
