/** `sluice alerts test`: sends one test alert to every configured receiver, and prints the answer of each. */

import { isoInstant, systemClock } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import { alertBody } from '../../process/alerts/alert-body.ts'
import { createReceiver, ReceiverError } from '../../process/alerts/receiver.ts'
import { loadConfig, processEnvironment } from '../../process/config/config.ts'
import { CONFIG_OPTION, type Command, CommandError } from './command.ts'
import { configWords, EXIT_FAILED, print } from './outcome.ts'

export const alertsTest: Command = {
  name: 'alerts test',
  does: 'send a test alert to every receiver in the configuration',
  options: { config: CONFIG_OPTION },
  async run({ config: file }) {
    const config = loadConfig(configWords(file), processEnvironment())
    if (config.alerts.length === 0) throw new CommandError('alerts: the configuration has no receivers')
    const nowMs = systemClock.nowMs()
    const event = {
      type: 'test',
      object: { kind: 'gateway', id: 'test', name: 'sluice alerts test', workspaceId: null },
      window: `${nowMs} ${randomText(12)}`,
      data: {},
    } as const
    const body = alertBody(event, config.region, isoInstant(nowMs))
    let failed = 0
    for (const [index, row] of config.alerts.entries()) {
      try {
        const receiver = createReceiver(row, systemClock)
        const result = await receiver.deliver(body)
        if (!result.ok) failed++
        print(`alerts[${index}] ${receiver.host}: ${result.ok ? `status ${result.status}` : result.reason}`)
      } catch (error) {
        if (!(error instanceof ReceiverError)) throw error
        failed++
        print(`alerts[${index}]: ${error.message}`)
      }
    }
    return failed === 0 ? 0 : EXIT_FAILED
  },
}
