/** `sluice providers`: takes a provider out of service for a time, at all instances. Over HTTP. */
import { PAUSE_MINUTES_MAX, type PauseAnswer } from '../../protocol/management/pauses.ts'
import { type Command, type OptionValues, UsageError } from './command.ts'
import { MANAGEMENT_OPTIONS, printRows, withManagement } from './management-client.ts'
import { print } from './outcome.ts'
import { plain } from './terminal/text.ts'

const ARGUMENT = 'SLUG'
export const providersPause: Command = {
  name: 'providers pause',
  does: 'take a provider out of service for a time: no new request goes to it, at any instance',
  argument: ARGUMENT,
  options: {
    for: {
      value: 'TIME',
      required: true,
      does: 'such as 30m, 2h or 1d, up to 7d; then it is in service again',
    },
    reason: { value: 'TEXT', does: 'why, for lists and the console' },
    ...MANAGEMENT_OPTIONS,
  },
  async run(options, slug) {
    const minutes = minutesOf(options)
    const { reason } = options
    const body = { minutes, ...(typeof reason === 'string' ? { reason } : {}) }
    return await withManagement(options, { command: 'providers pause', role: 'operator' }, async client => {
      const path = `/providers/${encodeURIComponent(slug)}/pause`
      const { data } = (await client.json('POST', path, body)) as { readonly data: PauseAnswer }
      print(`${plain(data.provider)} is out of service until ${plain(data.until)}.`)
      return 0
    })
  },
}

export const providersResume: Command = {
  name: 'providers resume',
  does: 'put a paused provider into service again',
  argument: ARGUMENT,
  options: MANAGEMENT_OPTIONS,
  run: (options, slug) =>
    withManagement(options, { command: 'providers resume', role: 'operator' }, async client => {
      const path = `/providers/${encodeURIComponent(slug)}/resume`
      const { data } = (await client.json('POST', path)) as { readonly data: PauseAnswer }
      print(`${plain(data.provider)} is in service again.`)
      return 0
    }),
}

export const providersPaused: Command = {
  name: 'providers paused',
  does: 'list the providers that are out of service: until when, by whom and why',
  options: MANAGEMENT_OPTIONS,
  run: options =>
    withManagement(options, { command: 'providers paused', role: 'viewer' }, async client => {
      const { data } = (await client.json('GET', '/pauses')) as { data: readonly PauseAnswer[] }
      printRows(
        ['provider', 'until', 'by', 'reason'],
        data.map(pause => [pause.provider, pause.until, pause.actor_label, pause.reason ?? '']),
        'All providers are in service.',
      )
      return 0
    }),
}

const UNIT_MINUTES: Readonly<Record<string, number>> = { m: 1, h: 60, d: 24 * 60 }

/** @throws UsageError */
function minutesOf(options: OptionValues): number {
  const [, number, unit = ''] = /^(\d{1,5})([mhd])$/.exec(String(options['for'])) ?? []
  const minutes = Number(number) * (UNIT_MINUTES[unit] ?? Number.NaN)
  if (!(minutes >= 1 && minutes <= PAUSE_MINUTES_MAX))
    throw new UsageError('--for: expects a time such as 30m, 2h or 1d, up to 7d')
  return minutes
}
