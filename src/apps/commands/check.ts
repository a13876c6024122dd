/** `sluice check`: runs every startup check without opening anything, and prints the problems. */
import { findConfig, processEnvironment } from '../../process/config/config.ts'
import { type CheckedConfig, checkStart } from '../../process/start/start-failure.ts'
import { startWarnings } from '../../process/start/start-warnings.ts'
import { discovers } from '../../process/wiring/catalog.ts'
import { CONFIG_OPTION, type Command } from './command.ts'
import { complain, configWords, print } from './outcome.ts'

export const check: Command = {
  name: 'check',
  does: 'check a configuration without starting',
  options: { config: CONFIG_OPTION },
  async run({ config: file }) {
    const checked = checkStart(findConfig(configWords(file), processEnvironment()), { readKeyFile: false })
    complain(startWarnings(checked).map(warning => `warning: ${warning}`))
    print(`the configuration is valid: ${summary(checked)}`)
    return 0
  },
}

/**
 * For example `1 provider with a key (openai), 2 models, simulator off`. Counts the operator's rows, not the built-in
 * ones.
 */
function summary({ config, catalog }: CheckedConfig): string {
  const own = catalog.providers().filter(({ quirks }) => !quirks.includes('simulated'))
  const keyed = own.flatMap(({ slug, auth, apiKey }) => (apiKey !== null && auth !== 'none' ? [slug] : []))
  const open = config.providers.flatMap(({ slug }) => (catalog.provider(slug)?.auth === 'none' ? [slug] : []))
  const models = catalog
    .models()
    .filter(({ endpoints }) => endpoints.some(({ provider }) => !provider.quirks.includes('simulated')))
  const listed = discovers(config) ? ' and those that providers list' : ''
  return [
    `${counted(keyed, 'provider')} with a key${named(keyed)}`,
    ...(open.length === 0 ? [] : [`${counted(open, 'provider')} without one${named(open)}`]),
    `${counted(models, 'model')}${listed}`,
    `simulator ${own.length < catalog.providers().length ? 'on' : 'off'}`,
  ].join(', ')
}

function counted(things: readonly unknown[], noun: string): string {
  return `${things.length} ${noun}${things.length === 1 ? '' : 's'}`
}

function named(slugs: readonly string[]): string {
  const shown = slugs.slice(0, 8).join(', ')
  return slugs.length === 0 ? '' : ` (${shown}${slugs.length > 8 ? ', …' : ''})`
}
