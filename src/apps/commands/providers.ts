/** `sluice providers`: takes a provider out of service for a time, at all instances. Over HTTP. */
import { PAUSE_MINUTES_MAX, type PauseAnswer } from '../../protocol/management/pauses.ts'
import { CONFIG_OPTION, type Command, type OptionValues, UsageError } from './command.ts'
import { GatewayClient, versioned } from './gateway-client.ts'
import { print } from './outcome.ts'
import { type PortTerms, portAddress } from './port-address.ts'
import { plain, table } from './terminal/text.ts'

const ARGUMENT = 'SLUG'
const OPTIONS = {
  url: { value: 'URL', does: 'address of the gateway; default: the one in the configuration' },
  key: {
    value: 'KEY',
    does: 'management key with the role operator; default: GATEWAY_MANAGEMENT_KEY, or the file that GATEWAY_MANAGEMENT_KEY_FILE names',
  },
  config: CONFIG_OPTION,
} as const

const PORT = {
  part: 'listen',
  defaultPort: 8080,
  key: 'managementKey',
  missing:
    'a management key is missing: pass --key KEY, or set GATEWAY_MANAGEMENT_KEY or GATEWAY_MANAGEMENT_KEY_FILE; sluice keys create --name NAME --management makes one',
  otherKind:
    'this is an API key, but providers are paused with a management key: pass one with --key KEY; sluice keys create --name NAME --management makes one',
} as const satisfies PortTerms

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
    ...OPTIONS,
  },
  async run(options, slug) {
    const minutes = minutesOf(options)
    const { reason } = options
    const body = { minutes, ...(typeof reason === 'string' ? { reason } : {}) }
    const { data } = await ask(options, 'POST', `/providers/${encodeURIComponent(slug)}/pause`, body)
    print(`${plain(data.provider)} is out of service until ${plain(data.until)}.`)
    return 0
  },
}

export const providersResume: Command = {
  name: 'providers resume',
  does: 'put a paused provider into service again',
  argument: ARGUMENT,
  options: OPTIONS,
  async run(options, slug) {
    const { data } = await ask(options, 'POST', `/providers/${encodeURIComponent(slug)}/resume`)
    print(`${plain(data.provider)} is in service again.`)
    return 0
  },
}

export const providersPaused: Command = {
  name: 'providers paused',
  does: 'list the providers that are out of service: until when, by whom and why',
  options: OPTIONS,
  async run(options) {
    const { data } = (await clientOf(options).json('GET', '/pauses')) as { data: readonly PauseAnswer[] }
    if (data.length === 0) print('All providers are in service.')
    else
      for (const line of table(
        [
          ['provider', 'until', 'by', 'reason'],
          ...data.map(each =>
            [each.provider, each.until, each.actor_label, each.reason ?? ''].map(cell => plain(cell)),
          ),
        ],
        new Set(),
      ))
        print(line)
    return 0
  },
}

async function ask(options: OptionValues, method: 'POST', path: string, body?: object) {
  return (await clientOf(options).json(method, path, body)) as { readonly data: PauseAnswer }
}

function clientOf(options: OptionValues): GatewayClient {
  const { url, key } = portAddress(options, PORT)
  return new GatewayClient({ url: versioned(url), key })
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
