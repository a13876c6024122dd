/**
 * Compares the ledger with the usage reports of providers, a day (UTC) at a time. `sluice reconcile` prints the result;
 * the daily service measures it and raises an alert. Main thread and command line.
 */
import { readFile } from 'node:fs/promises'
import { GatewayError, systemCode } from '../../base/errors.ts'
import { ConfigError, Faults } from '../../base/settings/check.ts'
import { priceUsage } from '../../pipeline/accounting/charge.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { Store } from '../../storage/store.ts'
import type { ProviderDayRow } from '../../storage/usage.ts'
import { REPORT_NAMES } from '../config/list-rows.ts'
import { type ReportedUsage, type ReportName, readCsv, readReport } from './reports.ts'

/** A row of `reconcile` in the configuration. */
export interface ReconcileRow {
  /** Slug. */
  readonly provider: string
  readonly keyFile?: string
  readonly csvFile?: string
  readonly report?: ReportName
}

/** One model on one day: the sums of both sides. */
export interface ModelDay {
  /** The id in the catalogue, or the provider's name of a model that is not in the catalogue. */
  readonly model: string
  readonly reported: Sums
  readonly ledger: Sums & { readonly requests: number }
  /** The larger amount minus the smaller one, as a share of the larger one; 0 if both are 0. */
  readonly drift: number
  /** True: the report names tokens but no amount, and the catalogue has no price. The sums leave such a model out. */
  readonly isUnpriced: boolean
}

interface Sums {
  readonly inputTokens: number
  readonly outputTokens: number
  readonly usd: number
}

/** One provider on one day. */
export interface ProviderDay {
  readonly provider: string
  /** YYYY-MM-DD. */
  readonly day: string
  /** The largest difference first. */
  readonly models: readonly ModelDay[]
  readonly reportedUsd: number
  readonly ledgerUsd: number
  /** The sum of the differences of all models, so that none hides another. */
  readonly driftUsd: number
  /** That sum as a share of the larger side; 0 if both are 0. */
  readonly drift: number
}

/** Smaller differences come from rounding, or from requests around midnight. */
const DRIFT_SHARE = 0.005
const DRIFT_USD = 1

export function isDrift({ drift, driftUsd }: Pick<ProviderDay, 'drift' | 'driftUsd'>): boolean {
  return drift > DRIFT_SHARE && driftUsd > DRIFT_USD
}

/** @throws ConfigError with a line for each fault, such as a row without a report */
export function checkReconcile(rows: readonly ReconcileRow[], catalog: Pick<Catalog, 'provider'>): void {
  const faults = new Faults()
  for (const [index, { provider: slug, keyFile, csvFile, report = slug }] of rows.entries()) {
    const path = `reconcile[${index}]`
    const provider = catalog.provider(slug)
    if (provider === undefined) faults.add(`${path}.provider`, 'there is no provider of this name')
    if ((keyFile === undefined) === (csvFile === undefined))
      faults.add(path, 'expected either keyFile (a file with an administration key) or csvFile')
    if (keyFile === undefined || provider === undefined) continue
    if (!isReportName(report))
      faults.add(
        path,
        `the gateway knows no usage report of this provider; set csvFile, or set report to one of: ${REPORT_NAMES.join(', ')}`,
      )
    if (provider.baseUrl === null || provider.baseUrl.includes('{'))
      faults.add(`${path}.provider`, 'its row in providers needs a complete baseUrl')
  }
  faults.throwIfAny()
}

function isReportName(name: string): name is ReportName {
  return (REPORT_NAMES as readonly string[]).includes(name)
}

export interface ReconcileDeps {
  readonly ledger: Pick<Store['ledger'], 'providerDay'>
  readonly catalog: () => Catalog
  readonly client: () => Transport
}

/** @param day YYYY-MM-DD @throws GatewayError, StoreError, or the reason of the signal */
export async function reconcileDay(
  { ledger, catalog, client }: ReconcileDeps,
  row: ReconcileRow,
  day: string,
  signal: AbortSignal,
): Promise<ProviderDay> {
  const reported = await reportOf(catalog(), client, row, day, signal)
  return compare(catalog(), row.provider, day, reported, await ledger.providerDay(row.provider, day))
}

async function reportOf(
  catalog: Catalog,
  client: () => Transport,
  { provider: slug, keyFile, csvFile, report }: ReconcileRow,
  day: string,
  signal: AbortSignal,
): Promise<readonly ReportedUsage[]> {
  if (csvFile !== undefined) return await readCsv(csvFile, day)
  const provider = catalog.provider(slug)
  const name = report ?? slug
  if (keyFile === undefined || provider?.baseUrl == null || !isReportName(name))
    throw new ConfigError(`reconcile: the usage report of ${slug} cannot be requested`)
  const source = { baseUrl: provider.baseUrl, key: await keyIn(keyFile), egress: provider.egress }
  return await readReport(client(), name, source, day, signal)
}

async function keyIn(path: string): Promise<string> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    const words = `${path}: cannot be read (${systemCode(error) ?? 'unknown'})`
    throw new GatewayError('provider_unavailable', words)
  }
  const key = text.trim()
  if (key === '') throw new GatewayError('provider_unavailable', `${path}: the file is empty`)
  return key
}

/** Compares both sides, model by model. Pure. */
export function compare(
  catalog: Pick<Catalog, 'models' | 'model'>,
  provider: string,
  day: string,
  reported: readonly ReportedUsage[],
  ledger: readonly ProviderDayRow[],
): ProviderDay {
  const endpoints = endpointsOf(catalog, provider, ledger)
  const sides = new Map<string, { reported: Sums; ledger: ModelDay['ledger']; isUnpriced: boolean }>()
  for (const { model, usage, usd, factor } of reported) {
    const endpoint = endpointNamed(endpoints, model)
    const id = endpoint?.modelId ?? model
    const side = sides.get(id) ?? { reported: NO_USAGE, ledger: NO_REQUESTS, isUnpriced: false }
    const prices = endpoint === undefined || endpoint.pricing.isUnknown === true ? null : endpoint.pricing
    const priced = prices === null ? 0 : (priceUsage(usage, prices).total * factor) / PICOS_PER_USD
    sides.set(id, {
      ...side,
      isUnpriced: side.isUnpriced || (usd === null && prices === null),
      reported: {
        inputTokens: side.reported.inputTokens + usage.inputTokens,
        outputTokens: side.reported.outputTokens + usage.outputTokens,
        usd: side.reported.usd + (usd ?? priced),
      },
    })
  }
  for (const { model, requests, inputTokens, outputTokens, cost } of ledger) {
    const side = sides.get(model) ?? { reported: NO_USAGE, isUnpriced: false }
    sides.set(model, {
      ...side,
      ledger: {
        requests,
        inputTokens: Number(inputTokens),
        outputTokens: Number(outputTokens),
        usd: Number(cost) / PICOS_PER_USD,
      },
    })
  }
  const models = [...sides].map(([model, side]) => ({
    model,
    ...side,
    drift: shareOf(differenceOf(side), side.reported.usd, side.ledger.usd),
  }))
  models.sort((first, second) => differenceOf(second) - differenceOf(first))
  const priced = models.filter(({ isUnpriced }) => !isUnpriced)
  const reportedUsd = sumOf(priced, row => row.reported.usd)
  const ledgerUsd = sumOf(priced, row => row.ledger.usd)
  const driftUsd = sumOf(priced, differenceOf)
  return {
    provider,
    day,
    models,
    reportedUsd,
    ledgerUsd,
    driftUsd,
    drift: shareOf(driftUsd, reportedUsd, ledgerUsd),
  }
}

const PICOS_PER_USD = 1e12
const NO_USAGE: Sums = { inputTokens: 0, outputTokens: 0, usd: 0 }
const NO_REQUESTS: ModelDay['ledger'] = { ...NO_USAGE, requests: 0 }

function differenceOf({ reported, ledger }: Pick<ModelDay, 'reported' | 'ledger'>): number {
  return Math.abs(reported.usd - ledger.usd)
}

function shareOf(difference: number, reportedUsd: number, ledgerUsd: number): number {
  const larger = Math.max(reportedUsd, ledgerUsd)
  return larger === 0 ? 0 : Math.min(1, difference / larger)
}

function sumOf<Row>(rows: readonly Row[], amountOf: (each: Row) => number): number {
  return rows.reduce((sum, row) => sum + amountOf(row), 0)
}

/** The provider's endpoints: those in the catalogue, and those that wildcard rows gave to models in the ledger. */
function endpointsOf(
  catalog: Pick<Catalog, 'models' | 'model'>,
  provider: string,
  ledger: readonly ProviderDayRow[],
): readonly Endpoint[] {
  const models = [...catalog.models(), ...ledger.flatMap(({ model }) => catalog.model(model) ?? [])]
  return models.flatMap(({ endpoints }) => endpoints.filter(endpoint => endpoint.provider.slug === provider))
}

/**
 * The endpoint of a reported name. Reports name versions of models (`gpt-5-2025-08-07`), where the catalogue usually
 * names the model (`gpt-5`), or the other way round.
 */
function endpointNamed(endpoints: readonly Endpoint[], name: string): Endpoint | undefined {
  const undated = (text: string): string => text.replace(/[-@](?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$/, '')
  return (
    endpoints.find(({ upstreamModel, modelId }) => upstreamModel === name || modelId === name) ??
    endpoints.find(({ upstreamModel }) => undated(upstreamModel) === undated(name))
  )
}
