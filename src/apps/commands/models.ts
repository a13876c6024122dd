/** `sluice models`: imports models into the store, and shows which lists of models the store has. */
import { readFileSync } from 'node:fs'
import { systemClock } from '../../base/clock.ts'
import { loadConfig, processEnvironment } from '../../process/config/config.ts'
import { IMPORT_SOURCE, sourceOf } from '../../process/services/catalogue-keeper.ts'
import { configuredParts } from '../../process/wiring/catalog.ts'
import { ImportError, type KnownModel, readModels } from '../../providers/known-models.ts'
import { CONFIG_OPTION, type Command, CommandError, type OptionValues } from './command.ts'
import { auditEntry, withStore } from './keys.ts'
import { complain, configWords, print, printProgress } from './outcome.ts'
import { count } from './terminal/text.ts'

export const modelsImport: Command = {
  name: 'models import',
  does: 'import models from a JSON file in the format of GET /models; they replace those imported earlier',
  argument: 'FILE',
  options: { config: CONFIG_OPTION },
  async run(options, file) {
    const models = modelsOf(file)
    const priced = models.filter(({ pricing }) => pricing !== undefined).length
    printProgress(`${count(models.length)} models read, ${count(priced)} of them with prices`)
    const list = sourceOf(IMPORT_SOURCE, models, systemClock)
    await withStore(options, async store => {
      await store.audited(
        ({ catalogue }) => catalogue.put(list),
        () => auditEntry('models.import', { kind: 'models', id: IMPORT_SOURCE, name: null }),
      )
    })
    printProgress('the models are in the store; running gateways load them within 5 s')
    const servedCount = servedOf(options, models)
    print(`imported ${count(models.length)} models; ${count(servedCount)} of them have a provider here`)
    if (servedCount < models.length)
      complain([
        "models without a provider are not offered: add their author's provider, or a wildcard row (docs/models.md)",
      ])
    return 0
  },
}

export const modelsSources: Command = {
  name: 'models sources',
  does: 'show the lists of models in the store, with their size and date',
  options: { config: CONFIG_OPTION },
  async run(options) {
    await withStore(options, async ({ catalogue }) => {
      for (const { source, models, updatedAt } of await catalogue.list())
        print([source, models, updatedAt].join('\t'))
    })
    return 0
  },
}

/** @throws CommandError with the file and the error in it */
function modelsOf(file: string): readonly KnownModel[] {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (error) {
    throw new CommandError(`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`)
  }
  try {
    return readModels(text)
  } catch (error) {
    if (!(error instanceof ImportError)) throw error
    throw new CommandError(
      error.message
        .split('\n')
        .map(line => `${file}: ${line}`)
        .join('\n'),
    )
  }
}

/** The number of models that have a provider in this configuration. */
function servedOf({ config }: OptionValues, models: readonly KnownModel[]): number {
  const loaded = loadConfig(configWords(config), processEnvironment())
  const knownModels = { imported: models, discovered: new Map<string, readonly KnownModel[]>() }
  const parts = configuredParts(loaded, { simUrl: 'http://127.0.0.1:1', knownModels })
  const offered = new Set(parts.models.map(({ id }) => id))
  return models.filter(({ id }) => offered.has(id)).length
}
