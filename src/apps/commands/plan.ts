/** `sluice plan`: what another configuration would change, and how it would have routed the latest requests. */
import { isoInstant, systemClock } from '../../base/clock.ts'
import { findConfig, processEnvironment } from '../../process/config/config.ts'
import type { Config } from '../../process/config/settings.ts'
import { type Differences, differencesOf } from '../../process/plan/differences.ts'
import { Forecast, type ForecastResult } from '../../process/plan/forecast.ts'
import { type Snapshot, snapshotOf } from '../../process/plan/snapshot.ts'
import { CatalogueKeeper } from '../../process/services/catalogue-keeper.ts'
import { checkStart } from '../../process/start/start-failure.ts'
import { CATALOG_READING, needsSim } from '../../process/wiring/catalog.ts'
import { type Catalog, type CatalogParts, catalogOf } from '../../providers/catalog.ts'
import { unpackCatalogue } from '../../providers/shared-catalogue.ts'
import { openStore } from '../../storage/open.ts'
import type { Store } from '../../storage/store.ts'
import { type Command, type OptionValues, UsageError } from './command.ts'
import { complain, configWords, EXIT_BAD_CONFIGURATION, print } from './outcome.ts'
import { count, counted, plain, shortUsd, table } from './terminal/text.ts'

const DEFAULT_HOURS = 24
const MAX_HOURS = 24 * 90
const HOUR_MS = 3_600_000
const EXIT_CHANGES = 1

/** The result, as `--json` prints it. */
export interface Plan extends Differences {
  readonly forecast: ForecastResult
}

export const plan: Command = {
  name: 'plan',
  does: 'show what a configuration would change, and how it would route the latest requests; exit code 1 if anything changes',
  options: {
    config: { value: 'FILE', required: true, does: 'the new configuration file' },
    against: {
      value: 'FILE',
      does: 'the file to compare with; default: what the gateway on this database was last started or reloaded with',
    },
    hours: {
      value: 'N',
      does: `how many hours of requests to route again, up to ${MAX_HOURS}; default: ${DEFAULT_HOURS}`,
    },
    json: { does: 'print one JSON document' },
  },
  async run(options) {
    const hours = hoursOf(options)
    const { config } = checkConfig(options['config'])
    const against = options['against'] === undefined ? null : checkConfig(options['against'])
    const store = await openStore((against?.config ?? config).storage.url)
    try {
      const catalog = await catalogueOf(config, store)
      const before = await snapshotBefore(against?.config ?? null, store)
      if (before === null) {
        complain([
          'no gateway has started on this database yet: name the file to compare with: --against FILE',
        ])
        return EXIT_BAD_CONFIGURATION
      }
      const forecast = new Forecast(catalog, before, config.routing.loadBalancing)
      const since = isoInstant(systemClock.nowMs() - hours * HOUR_MS)
      await store.ledger.scan(since, records => {
        for (const record of records) forecast.add(record)
      })
      const result: Plan = {
        ...differencesOf(before, snapshotOf(config, catalog)),
        forecast: forecast.result,
      }
      if (options['json'] === true) print(JSON.stringify(result))
      else for (const line of planLines(result, hours)) print(line)
      return hasChanges(result) ? EXIT_CHANGES : 0
    } finally {
      await store.close()
    }
  },
}

/** @throws ConfigError with all faults */
export function checkConfig(file: string | true | undefined) {
  return checkStart(findConfig(configWords(file), processEnvironment()), {
    readKeyFile: false,
    certificate: false,
  })
}

/** @throws UsageError */
function hoursOf({ hours }: OptionValues): number {
  if (hours === undefined) return DEFAULT_HOURS
  const value = Number(hours)
  if (!Number.isFinite(value) || value <= 0 || value > MAX_HOURS)
    throw new UsageError(`--hours: must be a number above 0 and at most ${MAX_HOURS}`)
  return value
}

async function catalogueOf(config: Config, store: Store): Promise<Catalog> {
  return catalogOf(await catalogParts(config, store))
}

/**
 * The catalogue with the lists of models in the database. Asks no provider.
 * @param simUrl the simulated provider, if the configuration wants one
 */
export async function catalogParts(
  config: Config,
  store: Store,
  simUrl = 'http://127.0.0.1:1',
): Promise<CatalogParts> {
  const keeper = new CatalogueKeeper({
    reading: CATALOG_READING,
    config,
    simUrl: needsSim(config) ? simUrl : null,
    store,
    createClient: () => {
      throw new Error('a plan asks no provider')
    },
    clock: systemClock,
    log: { notice: () => undefined },
    onChange: () => undefined,
  })
  await keeper.refresh()
  const { parts } = unpackCatalogue(keeper.packed)
  await keeper.close()
  return parts
}

/** The configuration to compare with. Null: none is named, and the database has none yet. */
async function snapshotBefore(against: Config | null, store: Store): Promise<Snapshot | null> {
  if (against !== null) return snapshotOf(against, await catalogueOf(against, store))
  const document = await store.configurations.find()
  return document === null ? null : (JSON.parse(document) as Snapshot)
}

function hasChanges({ settings, models, routes, forecast }: Plan): boolean {
  const { added, removed, repriced } = models
  const lists = [settings, added, removed, repriced, routes]
  return (
    lists.some(list => list.length > 0) ||
    forecast.moved + forecast.refused > 0 ||
    forecast.changes.length > 0
  )
}

function planLines(result: Plan, hours: number): readonly string[] {
  const { settings, models, routes, forecast } = result
  const nameLine = (title: string, list: readonly string[]): string[] =>
    list.length === 0
      ? []
      : [
          `${title}: ${list.slice(0, MAX_SHOWN_NAMES).join(', ')}${list.length > MAX_SHOWN_NAMES ? `, and ${count(list.length - MAX_SHOWN_NAMES)} more` : ''}`,
        ]
  const changes = [
    ...settings.map(({ path, from, to }) => `  ${path}: ${valueText(from)} -> ${valueText(to)}`),
    ...nameLine('  models added', models.added),
    ...nameLine('  models removed', models.removed),
    ...models.repriced.map(
      ({ model, provider, from, to }) =>
        `  price of ${model} at ${provider}: ${prices(from)} -> ${prices(to)}`,
    ),
    ...routes.map(({ route, change }) => `  route ${route}: ${change}`),
  ]
  return [
    changes.length === 0 ? 'The configuration changes nothing.' : 'The configuration changes:',
    ...changes,
    '',
    ...forecastLines(forecast, hours),
  ]
}

const MAX_SHOWN_NAMES = 20

function forecastLines({ requests, moved, refused, unpriced, cost, changes }: ForecastResult, hours: number) {
  const span = hours === 1 ? 'the last hour' : `the last ${hours} hours`
  if (requests === 0) return [`No request of ${span} is in the ledger.`]
  const rows = changes.map(change => [
    `  ${change.generation}`,
    `${change.model_from} (${change.provider_from})`,
    change.model_to === null ? 'refused' : `${change.model_to} (${change.provider_to})`,
    shortUsd(change.cost_from),
    change.cost_to === null ? (change.model_to === null ? '-' : 'unknown') : shortUsd(change.cost_to),
  ])
  const head = ['  generation', 'from', 'to', 'cost', 'new cost']
  return [
    `Of ${counted(requests, 'request')} of ${span}, ${count(moved)} would go elsewhere and ${count(refused)} would be refused.`,
    `Cost: ${shortUsd(cost.from)} -> ${shortUsd(cost.to)}${unpriced === 0 ? '' : `, without ${counted(unpriced, 'request')} whose new price is not known`}`,
    ...(rows.length === 0 ? [] : ['', 'Largest changes:', ...table([head, ...rows], new Set([3, 4]))]),
  ]
}

function prices({ prompt, completion }: Readonly<Record<string, string | null>>): string {
  return prompt == null ? 'unknown' : `$${prompt} in, $${completion} out`
}

function valueText(value: unknown): string {
  return value === null ? 'not set' : plain(JSON.stringify(value), 80)
}
