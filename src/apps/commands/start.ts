/** `sluice start`: starts the gateway. */
import { CONFIG_OPTION, type Command } from './command.ts'

export const start: Command = {
  name: 'start',
  does: 'start the gateway',
  options: { config: CONFIG_OPTION },
  async run({ config }) {
    // Loaded here, so that other commands start faster.
    const { startGateway } = await import('./gateway.ts')
    await startGateway(config)
    return 0
  },
}
