/** `sluice reconcile`: compares the ledger with the usage reports of providers, and prints both by model. */
import { type Clock, isoInstant, systemClock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { loadConfig, processEnvironment } from '../../process/config/config.ts'
import type { Config } from '../../process/config/settings.ts'
import {
  isDrift,
  type ProviderDay,
  type ReconcileRow,
  reconcileDay,
} from '../../process/reconcile/reconcile.ts'
import { CatalogueKeeper } from '../../process/services/catalogue-keeper.ts'
import { CATALOG_READING, needsSim } from '../../process/wiring/catalog.ts'
import { catalogOf } from '../../providers/catalog.ts'
import { unpackCatalogue } from '../../providers/shared-catalogue.ts'
import { createTransports, proxiesOf } from '../../providers/upstream/egress.ts'
import type { Store } from '../../storage/store.ts'
import { CONFIG_OPTION, type Command, CommandError, type OptionValues, UsageError } from './command.ts'
import { withStore } from './keys.ts'
import { complain, configWords, EXIT_BAD_CONFIGURATION, EXIT_FAILED, print } from './outcome.ts'
import { ProgressBar } from './terminal/progress-bar.ts'
import { count, plain, shortUsd, table } from './terminal/text.ts'

const MAX_DAYS = 90
const DAY_MS = 86_400_000

export const reconcile: Command = {
  name: 'reconcile',
  does: "compare the ledger with the providers' usage reports; exit code 1 if a day differs by more than 0.5 % and 1 USD",
  options: {
    provider: { value: 'SLUG', does: 'only this provider; default: every row of reconcile' },
    csv: { value: 'FILE', does: 'read the report of --provider from a CSV file' },
    day: { value: 'YYYY-MM-DD', does: 'the last day to compare (UTC); default: yesterday' },
    days: { value: 'N', does: `how many days to compare, up to ${MAX_DAYS}; default: 1` },
    json: { does: 'print one line of JSON for each provider and day' },
    config: CONFIG_OPTION,
  },
  async run(options) {
    const config = loadConfig(configWords(options['config']), processEnvironment())
    const rows = rowsOf(options, config)
    const days = daysOf(options, systemClock)
    const results: ProviderDay[] = []
    const failures: string[] = []
    await withStore(options, async store => {
      const bar = new ProgressBar(process.stderr, processEnvironment())
      const { deps, close } = await openDeps(config, store)
      const { signal } = new AbortController()
      try {
        for (const [index, { row, day }] of rows.flatMap(row => days.map(day => ({ row, day }))).entries()) {
          bar.show(index / (rows.length * days.length), [{ text: `${row.provider} ${day}`, rank: 0 }])
          try {
            results.push(await reconcileDay(deps, row, day, signal))
          } catch (error) {
            if (!(error instanceof GatewayError)) throw error
            failures.push(`${row.provider} ${day}: ${error.message}`)
          }
        }
      } finally {
        bar.end()
        await close()
      }
    })
    for (const result of results)
      for (const line of resultLines(result, options['json'] === true)) print(line)
    if (failures.length > 0) {
      complain(failures)
      return EXIT_BAD_CONFIGURATION
    }
    return results.some(isDrift) ? EXIT_FAILED : 0
  },
}

/** @throws UsageError, CommandError */
function rowsOf({ provider, csv }: OptionValues, { reconcile: rows }: Config): readonly ReconcileRow[] {
  if (csv !== undefined) {
    if (typeof provider !== 'string') throw new UsageError('--csv: needs --provider SLUG')
    return [{ provider, csvFile: String(csv) }]
  }
  const matchingRows = provider === undefined ? rows : rows.filter(row => row.provider === provider)
  if (matchingRows.length === 0)
    throw new CommandError(
      typeof provider === 'string'
        ? `reconcile: the configuration has no row for ${plain(provider, 64)}; add one, or name a report with --csv FILE`
        : 'reconcile: the configuration has no rows; add one with a provider and a keyFile, or use --provider and --csv',
    )
  return matchingRows
}

/** The days, oldest first. @throws UsageError */
function daysOf({ day, days = '1' }: OptionValues, clock: Clock): readonly string[] {
  const number = Number(days)
  if (!Number.isInteger(number) || number < 1 || number > MAX_DAYS)
    throw new UsageError(`--days: expects a number from 1 to ${MAX_DAYS}`)
  const yesterday = isoInstant(clock.nowMs() - DAY_MS).slice(0, 10)
  const last = day === undefined ? yesterday : String(day)
  const lastMs = /^\d{4}-\d{2}-\d{2}$/.test(last) ? Date.parse(last) : Number.NaN
  if (Number.isNaN(lastMs)) throw new UsageError('--day: expects a date such as 2026-11-28')
  if (last > yesterday)
    throw new UsageError('--day: this day is not over yet (UTC); its report is incomplete')
  return Array.from({ length: number }, (_, index) =>
    isoInstant(lastMs - (number - 1 - index) * DAY_MS).slice(0, 10),
  )
}

async function openDeps(config: Config, store: Store) {
  const log = { fault: () => undefined, notice: () => undefined, exchange: () => undefined }
  const client = createTransports({ clock: systemClock, log, ...config.upstream, proxies: proxiesOf(config) })
  const keeper = new CatalogueKeeper({
    reading: CATALOG_READING,
    config,
    simUrl: needsSim(config) ? 'http://127.0.0.1:1' : null,
    store,
    createClient: () => client,
    clock: systemClock,
    log,
    onChange: () => undefined,
  })
  // The lists of models in the database, without asking providers for new ones.
  await keeper.refresh()
  const catalog = catalogOf(unpackCatalogue(keeper.packed).parts)
  return {
    deps: { ledger: store.ledger, catalog: () => catalog, client: () => client },
    async close() {
      await keeper.close()
      await client.close()
    },
  }
}

function resultLines(result: ProviderDay, asJson: boolean): readonly string[] {
  if (asJson) return [JSON.stringify(result)]
  const { provider, day, models, reportedUsd, ledgerUsd, drift } = result
  const head = `${provider} ${day}: reported ${shortUsd(reportedUsd)}, ledger ${shortUsd(ledgerUsd)}, drift ${percent(drift)}`
  if (models.length === 0) return [`${head}; no usage`]
  const rows = models.map(({ model, reported, ledger, drift: share, isUnpriced }) => [
    plain(model, 60),
    count(reported.inputTokens + reported.outputTokens),
    count(ledger.inputTokens + ledger.outputTokens),
    isUnpriced ? '-' : shortUsd(reported.usd),
    shortUsd(ledger.usd),
    isUnpriced ? 'no price' : percent(share),
  ])
  const names = ['model', 'reported tokens', 'ledger tokens', 'reported', 'ledger', 'drift']
  return [head, ...table([names, ...rows], new Set([1, 2, 3, 4, 5])).map(line => `  ${line}`)]
}

function percent(share: number): string {
  return `${(share * 100).toFixed(2)} %`
}
