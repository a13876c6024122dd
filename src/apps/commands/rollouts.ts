/** `sluice rollouts`: lists the rollouts of a gateway, and moves one. Over HTTP. */
import type { RolloutAnswer } from '../../protocol/management/rollouts.ts'
import type { Command } from './command.ts'
import { MANAGEMENT_OPTIONS, printRows, withManagement } from './management-client.ts'
import { print } from './outcome.ts'
import { plain } from './terminal/text.ts'

export const rolloutsList: Command = {
  name: 'rollouts list',
  does: 'list the rollouts: candidate, state, share, and why it is where it is',
  options: MANAGEMENT_OPTIONS,
  run: options =>
    withManagement(options, { command: 'rollouts list', role: 'viewer' }, async client => {
      const { data } = (await client.json('GET', '/rollouts')) as { data: readonly RolloutAnswer[] }
      printRows(
        ['route', 'candidate', 'state', 'share', 'reason'],
        data.map(rollout => [
          rollout.route,
          rollout.candidate,
          rollout.state,
          `${rollout.share} %`,
          rollout.reason,
        ]),
        'No rollouts are in the configuration.',
        new Set([3]),
      )
      return 0
    }),
}

export const rolloutsAdvance = move('advance', 'take the next step of a rollout now; also ends a hold')
export const rolloutsHold = move(
  'hold',
  'keep a rollout at its share; a candidate that is proven worse is still rolled back',
)
export const rolloutsRollback = move('rollback', "send all requests to the route's own targets again")

function move(verb: 'advance' | 'hold' | 'rollback', does: string): Command {
  const command = `rollouts ${verb}`
  return {
    name: command,
    does,
    argument: 'ROUTE',
    options: MANAGEMENT_OPTIONS,
    run: (options, route) =>
      withManagement(options, { command, role: 'operator' }, async client => {
        const path = `/rollouts/${encodeURIComponent(route)}/${verb}`
        const { data } = (await client.json('POST', path)) as { readonly data: RolloutAnswer }
        print(`${plain(data.route)}: ${plain(data.candidate)} is ${plain(data.state)} at ${data.share} %.`)
        return 0
      }),
  }
}
