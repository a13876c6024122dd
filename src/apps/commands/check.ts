/**
 * `sluice check`: runs the startup checks that need neither a port, the database nor the file of the master keys, and
 * prints the problems.
 */
import { findConfig, processEnvironment } from '../../process/config/config.ts'
import { type CheckedConfig, checkStart } from '../../process/start/start-failure.ts'
import { startWarnings } from '../../process/start/start-warnings.ts'
import { discovers } from '../../process/wiring/catalog.ts'
import { CONFIG_OPTION, type Command } from './command.ts'
import { complain, configWords, print } from './outcome.ts'
import { counted } from './terminal/text.ts'

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
  const operatorProviders = catalog.providers().filter(({ quirks }) => !quirks.includes('simulated'))
  const slugsWithKey = operatorProviders.flatMap(({ slug, auth, apiKey }) =>
    apiKey !== null && auth !== 'none' ? [slug] : [],
  )
  const slugsWithoutKey = config.providers.flatMap(({ slug }) =>
    catalog.provider(slug)?.auth === 'none' ? [slug] : [],
  )
  const models = catalog
    .models()
    .filter(({ endpoints }) => endpoints.some(({ provider }) => !provider.quirks.includes('simulated')))
  const discoveryText = discovers(config) ? ' and those that providers list' : ''
  return [
    `${counted(slugsWithKey.length, 'provider')} with a key${inParentheses(slugsWithKey)}`,
    ...(slugsWithoutKey.length === 0
      ? []
      : [`${counted(slugsWithoutKey.length, 'provider')} without one${inParentheses(slugsWithoutKey)}`]),
    `${counted(models.length, 'model')}${discoveryText}`,
    `simulator ${operatorProviders.length < catalog.providers().length ? 'on' : 'off'}`,
  ].join(', ')
}

function inParentheses(slugs: readonly string[]): string {
  const firstSlugs = slugs.slice(0, 8).join(', ')
  return slugs.length === 0 ? '' : ` (${firstSlugs}${slugs.length > 8 ? ', …' : ''})`
}
