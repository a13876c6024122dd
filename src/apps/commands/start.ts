/** `sluice start`: starts the gateway. */
import { CONFIG_OPTION, type Command } from './command.ts'

export const start: Command = {
  name: 'start',
  does: 'start the gateway',
  options: { config: CONFIG_OPTION },
  async run({ config }) {
    // Other commands do without most of the product, and so start sooner.
    const { startGateway } = await import('./gateway.ts')
    await startGateway(config)
    return 0
  },
}
