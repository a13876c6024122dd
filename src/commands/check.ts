/** `sluice check`: makes all checks that a start makes before it opens anything, and prints the faults. */
import { findConfig, processEnvironment } from '../config/config.ts'
import { discovers } from '../threads/build-catalog.ts'
import { checkStart } from '../threads/start-failure.ts'
import { startWarnings } from '../threads/start-warnings.ts'
import { CONFIG_OPTION, type Command } from './command.ts'
import { complain, configWords, print } from './outcome.ts'

export const check: Command = {
  name: 'check',
  does: 'check a configuration without starting',
  options: { config: CONFIG_OPTION },
  async run({ config: file }) {
    const checked = checkStart(findConfig(configWords(file), processEnvironment()), { createKeyFile: false })
    complain(startWarnings(checked).map(warning => `warning: ${warning}`))
    const { catalog } = checked
    const more = discovers(checked.config) ? ', and those that providers tell' : ''
    print(
      `configuration is good: ${catalog.providers().length} providers, ${catalog.models().length} models${more}`,
    )
    return 0
  },
}
