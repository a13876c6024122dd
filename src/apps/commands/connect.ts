/** `sluice connect`: prints the settings that point a client at the gateway. */

import { didYouMean } from '../../base/did-you-mean.ts'
import { findConfig, processEnvironment } from '../../process/config/config.ts'
import { checkStart } from '../../process/start/start-failure.ts'
import { CONFIG_OPTION, type Command, type OptionValues, UsageError } from './command.ts'
import { CLIENTS, type ConnectModel } from './connect/clients.ts'
import { addressOf } from './gateway-client.ts'
import { configWords, print } from './outcome.ts'

export const connect: Command = {
  name: 'connect',
  does: 'print the lines that point a client, such as claude-code, at the gateway; without CLIENT, list all clients',
  argument: 'CLIENT',
  isArgumentOptional: true,
  options: {
    url: { value: 'URL', does: 'address of the gateway; default: the one in the configuration' },
    model: {
      value: 'ID',
      does: 'the model to use; default: defaultModel, or the first model that writes text',
    },
    config: CONFIG_OPTION,
  },
  async run(options, name) {
    if (name === '') {
      const width = Math.max(...CLIENTS.map(client => client.name.length))
      for (const { name, title, api } of CLIENTS) print(`${name.padEnd(width)}   ${title}: ${api}`)
      return 0
    }
    const client = CLIENTS.find(candidate => candidate.name === name)
    if (client === undefined) {
      const names = CLIENTS.map(candidate => candidate.name)
      throw new UsageError(
        `CLIENT: there is no such client${didYouMean(name, names) || `; the clients are ${names.join(', ')}`}`,
      )
    }
    const facts = { url: addressOf(options).replace(/\/v1$/, ''), model: modelOf(options) }
    // Comments on stderr, so that they are not part of piped output.
    printLine(`${client.title} (${client.api}): ${client.place}`)
    printLine(`$KEY is an API key: export KEY=$(npx sluice keys create --name ${client.name})`)
    for (const line of client.lines(facts)) print(line)
    for (const note of client.notes(facts)) printLine(note)
    return 0
  },
}

/** @throws UsageError if no model is named and the configuration has none; ConfigError */
function modelOf({ model: id, config }: OptionValues): ConnectModel {
  const foundConfig = findConfig(configWords(config), processEnvironment())
  const { config: settings, catalog } = checkStart(foundConfig, { readKeyFile: false, certificate: false })
  const first = catalog.models().find(({ outputModalities }) => outputModalities.includes('text'))
  const name = typeof id === 'string' ? id : (settings.defaultModel ?? first?.id)
  if (name === undefined) throw new UsageError('--model: is required, because the configuration has no model')
  const model = catalog.model(name)
  if (model !== undefined) return model
  // The provider may list the model, or the model belongs to another gateway.
  return { id: name, contextLength: null, maxOutputTokens: null }
}

function printLine(text: string): void {
  process.stderr.write(`# ${text}\n`)
}
