/** Tests a gateway: explores it, runs checks one by one within the request budget, and reports. Public entry point. */
import { type Clock, isoInstant } from '../../base/clock.ts'
import type { Check, CheckVerdict } from './check.ts'
import { CHAOS_CHECKS } from './checks/chaos.ts'
import { clientChecks } from './checks/clients.ts'
import { CONTINUED_CHECKS } from './checks/continued.ts'
import { ERROR_CHECKS } from './checks/errors.ts'
import { FRAMING_CHECKS } from './checks/framing.ts'
import { HABIT_CHECKS } from './checks/habits.ts'
import { RECEIVER_CHECKS } from './checks/receivers.ts'
import { REPLY_CHECKS } from './checks/replies.ts'
import { RETRY_CHECKS } from './checks/retries.ts'
import { SDK_CHECKS } from './checks/sdk.ts'
import { STREAM_CHECKS } from './checks/streams.ts'
import { UPSTREAM_CHECKS } from './checks/upstream.ts'
import { provedClient } from './clients/clients.ts'
import type { ProvedClientName } from './clients/names.ts'
import { DIALECTS, type Dialect, responses } from './dialects.ts'
import { isNoAnswer } from './faults.ts'
import { CPU_SENDS, cpuPerEvent, firstEventSends, firstEvents } from './figures.ts'
import { FaultProvider } from './provider.ts'
import { type ProveLimits, Ration, RationSpent } from './ration.ts'
import { type CheckResult, cleaned, type ProveReport, REPORT_SCHEMA, statusFor, summaryOf } from './report.ts'
import { type Header, scrubber } from './secrets.ts'
import { ProveFault, type SurveyResult, survey, surveyModel } from './survey.ts'
import { SAMPLE_COUNT, Samples, Tester, type TesterDeps } from './tester.ts'

export interface ProveOptions {
  /** Without a trailing slash. */
  readonly url: string
  readonly key: string
  readonly headers: readonly Header[]
  /** Null: the first of the gateway's list. */
  readonly model: string | null
  readonly limits: ProveLimits
  /** The gateway's provider; its creator must close it. */
  readonly provider: FaultProvider | null
  /** Ids of checks, or their prefixes; `figures` for the measurements. Null: all. */
  readonly only: readonly string[] | null
  /** The client whose traffic replaces all other checks. */
  readonly client: ProvedClientName | null
  readonly restartCommand: string | null
  /** A second valid API key; null: there is none. */
  readonly secondKey: string | null
  /** Address of the provider behind the gateway. */
  readonly directUrl: string | null
  readonly pid: number | null
  /** Version of this package. */
  readonly version: string
  /** Removes control characters for terminals. */
  readonly plain: (text: string, maxChars: number) => string
  readonly clock: Clock
  readonly silenceMs?: number
}

export { FaultProvider, ProveFault, RationSpent }

interface ProveListener {
  /** Called before the first check. */
  begins(plan: ProvePlan): void
  /** Called after each check. @param share of all checks, 0 to 1 */
  onResult(result: CheckResult, share: number): void
}

export interface ProvePlan {
  readonly model: string
  readonly dialects: readonly string[]
  readonly checks: number
  /** About how many requests all checks and measurements send. */
  readonly requests: number
}

const DEFAULT_SILENCE_MS = 30_000
/** Maximum length of a text in the report. */
const TEXT_MAX_CHARS = 3_000

interface PlannedCheck {
  readonly check: Check
  readonly dialect: Dialect
  /** The reason why it is skipped; null: it runs. */
  readonly why: string | null
}

/** @throws ProveFault, RationSpent */
export async function prove(options: ProveOptions, listener: ProveListener): Promise<ProveReport> {
  const { clock } = options
  const ration = new Ration(options.limits, clock)
  const startMs = clock.nowMs()
  const scrub = scrubber([options.key, options.secondKey ?? ''], options.headers)
  const clean = (text: string): string => options.plain(scrub(text), TEXT_MAX_CHARS)
  const client = options.client === null ? null : provedClient(options.client)
  const surveyed = await (client === null ? survey : surveyModel)({
    target: {
      url: options.url,
      key: options.key,
      headers: options.headers,
      model: options.model ?? '',
      maxTokensField: 'max_tokens',
    },
    ration,
    clock,
    provider: options.provider,
    restartCommand: options.restartCommand,
    secondKey: options.secondKey,
    silenceMs: options.silenceMs ?? DEFAULT_SILENCE_MS,
  }).catch(error => {
    // The error contains text of the gateway.
    throw error instanceof ProveFault ? new ProveFault(clean(error.message)) : error
  })
  const plan = planOf(client === null ? CHECKS : clientChecks(client), surveyed, options)
  const sends = plan.reduce((sum, { check, why }) => sum + (why === null ? check.sends : 0), 0)
  const samples = surveyed.dialects.length * SAMPLE_COUNT
  listener.begins({
    model: clean(surveyed.deps.target.model),
    dialects: client === null ? surveyed.dialects.map(({ title }) => title) : [client.title],
    checks: plan.filter(({ why }) => why === null).length,
    requests: sends + samples + figureSends(surveyed, options),
  })
  const checks: CheckResult[] = []
  for (const [index, planned] of plan.entries()) {
    const result = cleaned(await runCheck(planned, surveyed), clean)
    checks.push(result)
    listener.onResult(result, (index + 1) / plan.length)
  }
  const figures = await figuresOf(surveyed, options)
  return {
    schema: REPORT_SCHEMA,
    sluice: options.version,
    at: isoInstant(startMs),
    url: clean(options.url),
    model: clean(surveyed.deps.target.model),
    ...(client === null ? {} : { client: client.title }),
    dialects: surveyed.dialects.map(({ name }) => name),
    ration: { ...options.limits, sent: ration.sent, spentMs: Math.round(ration.spentMs) },
    summary: summaryOf(checks),
    checks,
    figures: cleaned(figures, clean),
  }
}

function isWanted(id: string, { only }: ProveOptions): boolean {
  return only === null || only.some(name => id === name || id.startsWith(`${name}.`))
}

function planOf(
  checks: readonly Check[],
  { dialects, absent, deps }: SurveyResult,
  options: ProveOptions,
): PlannedCheck[] {
  const skipReason = (check: Check): string | null => {
    const isScripted = check.needs === 'provider' || check.needs === 'second-key'
    if (isScripted && deps.provider === null) return 'not run: start with --provider-port'
    if (check.needs === 'second-key' && deps.secondKey === null) return 'not run: start with --second-key'
    if (check.needs === 'restart' && options.restartCommand === null)
      return 'not run: start with --restart-command'
    return null
  }
  const [first = responses] = dialects
  return checks
    .filter(({ id }) => isWanted(id, options))
    .flatMap((check): PlannedCheck[] => {
      if (check.dialects === null) return [{ check, dialect: first, why: skipReason(check) }]
      return DIALECTS.filter(({ name }) => check.dialects?.includes(name)).map(dialect => {
        const why = absent.find(entry => entry.dialect === dialect)?.why
        return {
          check,
          dialect,
          why: why === undefined ? skipReason(check) : `not offered here: ${why}`,
        }
      })
    })
}

async function runCheck(
  { check, dialect, why }: PlannedCheck,
  { deps, samples }: SurveyResult,
): Promise<CheckResult> {
  const tester = new Tester(deps, samples)
  const before = deps.ration.sent
  const { outcome, seen } =
    why === null ? await verdict(check, dialect, tester) : { outcome: 'skipped' as const, seen: why }
  return {
    id: check.id,
    group: check.group,
    dialect: check.dialects === null ? null : dialect.name,
    status: statusFor(check, outcome),
    expected: check.asserts,
    seen,
    matters: check.matters,
    basis: check.basis,
    requests: deps.ration.sent - before,
    repeat: repeatOf(tester, check),
  }
}

function repeatOf({ repeat }: Tester, { needs }: Check): string | null {
  if (repeat === '') return null
  return needs === 'provider' || needs === 'second-key'
    ? `${repeat} # while sluice prove --keep-provider runs`
    : repeat
}

async function verdict(check: Check, dialect: Dialect, tester: Tester): Promise<CheckVerdict> {
  const { ration } = tester.deps
  if (check.sends > ration.remaining)
    return {
      outcome: 'skipped',
      seen: `not run: --requests ${ration.limits.requests} does not leave the ${check.sends} that it needs`,
    }
  try {
    return await check.run(tester, dialect)
  } catch (error) {
    if (error instanceof RationSpent) return { outcome: 'skipped', seen: error.message }
    if (!isNoAnswer(error)) throw error
    if (ration.leftMs === 0)
      return { outcome: 'skipped', seen: `not run: --seconds ${ration.limits.seconds} have passed` }
    return { outcome: 'fail', seen: error.message }
  } finally {
    tester.end()
  }
}

/** The provider behind the gateway, to be called directly; null: unknown. */
function directOf({ deps }: SurveyResult, { directUrl }: ProveOptions): TesterDeps | null {
  const url = directUrl ?? deps.provider?.url ?? null
  return url === null ? null : { ...deps, target: { ...deps.target, url, headers: [] } }
}

function figureSends(surveyed: SurveyResult, options: ProveOptions): number {
  if (!isWanted('figures', options)) return 0
  const sendsPerDialect =
    firstEventSends(directOf(surveyed, options) !== null) + (options.pid === null ? 0 : CPU_SENDS)
  return surveyed.dialects.length * sendsPerDialect
}

async function figuresOf(surveyed: SurveyResult, options: ProveOptions): Promise<ProveReport['figures']> {
  const { deps, samples, dialects } = surveyed
  const direct = directOf(surveyed, options)
  const firstEvent = []
  const cpu = []
  for (const dialect of isWanted('figures', options) ? dialects : []) {
    const tester = new Tester(deps, samples)
    const directTester = direct === null ? null : new Tester(direct, new Samples())
    try {
      // An incomplete measurement is not reported.
      if (deps.ration.remaining >= firstEventSends(direct !== null))
        firstEvent.push(await firstEvents(tester, directTester, dialect))
      if (options.pid !== null && deps.ration.remaining >= CPU_SENDS)
        cpu.push(await cpuPerEvent(tester, dialect, options.pid))
    } catch (error) {
      if (!(error instanceof RationSpent) && !isNoAnswer(error)) throw error
    } finally {
      tester.end()
      directTester?.end()
    }
  }
  return {
    firstEvent: firstEvent.filter(figure => figure !== null),
    cpu: cpu.filter(figure => figure !== null),
  }
}

const CHECKS: readonly Check[] = [
  ...REPLY_CHECKS,
  ...STREAM_CHECKS,
  ...ERROR_CHECKS,
  ...FRAMING_CHECKS,
  ...SDK_CHECKS,
  ...UPSTREAM_CHECKS,
  ...HABIT_CHECKS,
  ...RECEIVER_CHECKS,
  ...RETRY_CHECKS,
  ...CONTINUED_CHECKS,
  ...CHAOS_CHECKS,
]
