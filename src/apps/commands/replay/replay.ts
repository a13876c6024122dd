/** `sluice replay`: sends the requests of a capture to another configuration, and shows how the answers differ. */

import { AMOUNT_MAX_USD, toMicroUsd } from '../../../base/money.ts'
import { capturesFolder } from '../../../features/captures/folder.ts'
import { processEnvironment } from '../../../process/config/config.ts'
import type { Config } from '../../../process/config/settings.ts'
import { loadVaultRing } from '../../../providers/credentials/vault-keys.ts'
import { openStore } from '../../../storage/open.ts'
import type { Store } from '../../../storage/store.ts'
import { findCapture, PartReader } from '../captures/captures.ts'
import { type Command, CommandError, type OptionValues, UsageError } from '../command.ts'
import { complain, EXIT_BAD_CONFIGURATION, print } from '../outcome.ts'
import { catalogParts, checkConfig } from '../plan.ts'
import { ProgressBar, percent } from '../terminal/progress-bar.ts'
import { count, counted, plain, shortUsd, table } from '../terminal/text.ts'
import {
  type AnswerFacts,
  answerFacts,
  COMPARED_FIELDS,
  type Comparison,
  compare,
  type ReplaySums,
  sumsOf,
} from './comparison.ts'
import { RecordedProviders } from './recorded-providers.ts'
import { type RecordedRequest, recordedRequest, type SkippedRecord } from './recorded-request.ts'
import { type ReplayedAnswer, ReplayGateway, withProvidersAt } from './replay-gateway.ts'

const EXIT_DIFFERENCES = 1
/** The error types of a request for which the budget leaves nothing. */
const BUDGET_SPENT_ERRORS: ReadonlySet<string> = new Set(['payment_required'])

/** The result, as `--json` prints it. */
interface ReplayResult {
  readonly capture: string
  readonly real: boolean
  readonly sums: ReplaySums
  /** Requests that were not sent because the budget was spent. */
  readonly unsent: number
  readonly skipped: readonly SkippedRecord[]
  readonly requests: readonly Comparison[]
}

export const replay: Command = {
  name: 'replay',
  does: 'send the requests of a capture to another configuration, and show how the answers differ; exit code 1 if they do',
  argument: 'CAPTURE',
  options: {
    config: { value: 'FILE', required: true, does: 'the new configuration file' },
    real: { does: 'call the providers of that file; default: the recorded replies are used instead' },
    budget: { value: 'USD', does: 'the most that --real may spend in USD, for example 0.50' },
    json: { does: 'print one JSON document' },
  },
  async run(options, id) {
    const budget = budgetOf(options)
    const { config } = checkConfig(options['config'])
    const store = await openStore(config.storage.url)
    try {
      const { requests, skipped } = await readCapture(config, store, id)
      if (requests.length === 0) {
        complain([
          `no request of this capture can be sent again${skipped.length === 0 ? ': it has none on this node' : `; the first was left out because ${skipped[0]?.why}`}`,
        ])
        return EXIT_BAD_CONFIGURATION
      }
      const { comparisons, unsent } = await replayRequests(config, store, requests, budget)
      const result: ReplayResult = {
        capture: id,
        real: budget !== null,
        sums: sumsOf(comparisons),
        unsent,
        skipped,
        requests: comparisons,
      }
      if (options['json'] === true) print(JSON.stringify(result))
      else for (const line of resultLines(result)) print(line)
      return result.sums.different > 0 ? EXIT_DIFFERENCES : 0
    } finally {
      await store.close()
    }
  },
}

/** Millionths of USD; null: no provider is asked. @throws UsageError */
function budgetOf({ real, budget }: OptionValues): number | null {
  if (real !== true) {
    if (budget !== undefined)
      throw new UsageError('--budget: is for --real, which asks the providers and costs money')
    return null
  }
  if (budget === undefined)
    throw new UsageError(
      '--real: asks the providers and costs money, so it needs a limit: add --budget USD, for example --budget 0.50',
    )
  const micros = toMicroUsd(Number(budget))
  if (micros === null || micros <= 0)
    throw new UsageError(
      `--budget: must be an amount of USD above 0 and at most ${count(AMOUNT_MAX_USD)}, with up to six decimals`,
    )
  return micros
}

/** @throws UsageError for a capture that is not there or cannot be opened */
async function readCapture(config: Config, store: Store, id: string) {
  const { keys } = loadVaultRing(config)
  const requests: RecordedRequest[] = []
  const skipped: SkippedRecord[] = []
  try {
    const record = await findCapture(store, id)
    const reader = new PartReader(capturesFolder(config.storage.url), keys, record, line => {
      const recorded = recordedRequest(line)
      if (recorded === null) return
      if ('why' in recorded) skipped.push(recorded)
      else requests.push(recorded)
    })
    for (const part of await store.captures.parts(record.id)) await reader.read(part)
  } catch (error) {
    // Exit code 2, because 1 means that answers differ.
    if (error instanceof CommandError) throw new UsageError(error.message)
    throw error
  }
  return { requests, skipped }
}

async function replayRequests(
  config: Config,
  store: Store,
  requests: readonly RecordedRequest[],
  budget: number | null,
): Promise<{ readonly comparisons: readonly Comparison[]; readonly unsent: number }> {
  const providers = new RecordedProviders()
  await providers.listen()
  const bar = new ProgressBar(process.stderr, processEnvironment())
  let gateway: ReplayGateway | null = null
  try {
    const parts = await catalogParts(config, store, providers.simUrl)
    gateway = await ReplayGateway.start({
      config: budget === null ? { ...config, httpProxy: null, httpsProxy: null } : config,
      parts: budget === null ? withProvidersAt(parts, slug => providers.urlOf(slug)) : parts,
      budget,
    })
    const comparisons: Comparison[] = []
    for (const [index, request] of requests.entries()) {
      bar.show(index / requests.length, [
        { text: percent(index, requests.length), rank: 0 },
        { text: `${count(index)} of ${counted(requests.length, 'request')}`, rank: 1 },
        {
          text: `${count(comparisons.filter(({ differences }) => differences.length > 0).length)} differ`,
          rank: 2,
        },
      ])
      providers.begin(request.calls)
      const answer = await gateway.ask(request.body)
      if (budget !== null && answer.error !== null && BUDGET_SPENT_ERRORS.has(answer.error))
        return { comparisons: comparisons, unsent: requests.length - index }
      comparisons.push(await compareWithRecord(store, request, answer, providers.isSimulated))
    }
    return { comparisons: comparisons, unsent: 0 }
  } finally {
    bar.clear()
    await gateway?.close()
    await providers.close()
  }
}

async function compareWithRecord(
  store: Store,
  request: RecordedRequest,
  answer: ReplayedAnswer,
  isSimulated: boolean,
): Promise<Comparison> {
  const usage = await store.ledger.findOfAny(request.id)
  const from: AnswerFacts = answerFacts(usage, request.output, request.error)
  const to: AnswerFacts = answerFacts(answer.usage, answer.output, answer.error)
  return compare(request.id, isSimulated, from, to)
}

/** Requests that are listed; `--json` has all. */
const MAX_SHOWN_REQUESTS = 50

function resultLines({ real, requests, skipped, sums, unsent }: ReplayResult): readonly string[] {
  const different = requests.filter(({ differences }) => differences.length > 0)
  const rows = different
    .slice(0, MAX_SHOWN_REQUESTS)
    .map(({ generation, differences, from, to }) => [
      `  ${generation}`,
      differences.map(name => differenceOf(name, from, to)).join('; '),
    ])
  const fields = COMPARED_FIELDS.filter(name => sums.by_field[name] > 0)
  return [
    `${counted(sums.requests, 'request')} sent again${real ? ' to the providers' : ', with the recorded replies of the providers'}: ${count(sums.different)} differ${sums.different === 0 ? '' : ` (${fields.map(name => `${name.replace('_', ' ')} ${count(sums.by_field[name])}`).join(', ')})`}.`,
    `Cost: ${shortUsd(sums.cost.from)} -> ${shortUsd(sums.cost.to)}  tokens in: ${fromTo(sums.input_tokens)}  out: ${fromTo(sums.output_tokens)}${real ? `  median ms: ${fromTo(sums.latency_ms)}` : ''}`,
    ...(sums.simulated === 0
      ? []
      : [
          `${counted(sums.simulated, 'request')} went where nothing was recorded: only status, model and provider are compared, and cost and tokens leave them out.`,
        ]),
    ...(unsent === 0
      ? []
      : [
          `${counted(unsent, 'request')} not sent: the budget is spent. Give a larger --budget to send them.`,
        ]),
    ...(skipped.length === 0
      ? []
      : [`${counted(skipped.length, 'request')} left out, the first because ${skipped[0]?.why}.`]),
    ...(rows.length === 0 ? [] : ['', ...table([['  generation', 'differences'], ...rows], new Set())]),
    ...(different.length > MAX_SHOWN_REQUESTS
      ? [`  and ${count(different.length - MAX_SHOWN_REQUESTS)} more; --json lists all`]
      : []),
  ]
}

function fromTo({ from, to }: { readonly from: number; readonly to: number }): string {
  return `${count(from)} -> ${count(to)}`
}

const MAX_TEXT_CHARS = 40

function differenceOf(name: (typeof COMPARED_FIELDS)[number], from: AnswerFacts, to: AnswerFacts): string {
  const value = (answer: AnswerFacts): string => {
    if (name === 'cost') return shortUsd(answer.cost)
    if (name === 'tool_calls') return answer.tool_calls.map(call => call.name).join(',') || 'none'
    return plain(String(answer[name] ?? 'none'), MAX_TEXT_CHARS)
  }
  return `${name.replace('_', ' ')} ${value(from)} -> ${value(to)}`
}
