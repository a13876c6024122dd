/**
 * The fusion server tool: a panel of models answers the conversation in parallel, an analyst compares the answers, and
 * the outer model writes its own answer from both. The `fusion` plugin and the fusion slugs use this tool.
 */
import { GatewayError } from '../../base/errors.ts'
import type { AskAs, Exchange } from '../../exchange/exchange.ts'
import type { ServerTool, ToolEntry, ToolOutcome, ToolProgress } from '../../exchange/server-tool.ts'
import type { FusionAnalysis } from '../../protocol/events.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import { conversationOf } from './conversation.ts'
import { type AnalysisFailure, analystRequest, type PanelResponse, readAnalysis } from './fusion/analysis.ts'
import type { FusionModels, FusionPreset } from './fusion/models.ts'
import { askPanel, type PanelOutcome } from './fusion/panel.ts'
import { replyText } from './models/inner-reply.ts'
import {
  createInnerTerms,
  type InnerSettings,
  type InnerTerms,
  type InnerTermsOf,
  isWithheld,
  outerModel,
} from './models/inner-request.ts'

interface FusionDeps {
  readonly askAs: AskAs
  readonly tools: ReadonlyMap<string, ServerTool>
  readonly fusionModels: FusionModels
  readonly config: object
}

interface FusionSettings extends InnerSettings {
  readonly analysis_models?: readonly string[] | null
  readonly preset?: FusionPreset | null
}

/** The checked settings of one run. */
interface Fusion {
  readonly panel: readonly string[]
  /** Null for the outer model. */
  readonly analyst: string | null
  readonly panelTerms: InnerTerms
  readonly analystTerms: InnerTerms
}

const DEFAULT_TOOL_STEPS = 4
const DEFAULT_OUTPUT_TOKENS = 16_000
/** Default tools of the panel and the analyst. */
const DEFAULT_TOOLS = ['web_search', 'web_fetch']
const RUN_TIMEOUT_MS = 400_000
const ANALYST_TIMEOUT_MS = 150_000

type FailureReason =
  | AnalysisFailure
  | 'all_panels_failed'
  | 'insufficient_credits'
  | 'rate_limited'
  | 'invalid_model'
  | 'fusion_invocation_capped'

export function createFusion({ askAs, tools, fusionModels, config }: FusionDeps): ServerTool {
  const termsOf = createInnerTerms(tools)
  return {
    name: 'fusion',
    asksModels: true,
    runMs: RUN_TIMEOUT_MS,
    open(entries, exchange) {
      const [first, second] = entries
      if (first === undefined) throw new TypeError('the tool was opened without an entry')
      if (second !== undefined) {
        throw new GatewayError('invalid_request', `${second.path}.type: fusion is already in the list`)
      }
      const fusion = fusionOf(first, exchange, { tools, fusionModels, config, termsOf })
      let wasUsed = false
      return {
        declare: () => [
          {
            tool: first.tool,
            name: 'fusion',
            description:
              'Has several models answer this conversation at the same time, and compares their answers. Takes no arguments and works once: call it when the question is hard, open or disputed, then answer with its results.',
            parameters: objectSchema([], {}),
          },
        ],
        firstForm: () => ({}),
        async run(_call, progress, signal) {
          if (wasUsed) {
            return failedOutcome(
              'fusion_invocation_capped',
              'fusion can be called only once in a request, and it has been called already',
            )
          }
          wasUsed = true
          return await fuse(askAs, { fusion, exchange, progress, signal })
        },
      }
    },
  }
}

/** The settings of a run. @throws GatewayError `invalid_request` that names the setting */
function fusionOf(
  { tool, path }: ToolEntry,
  { request, disabledTools }: Exchange,
  deps: Pick<FusionDeps, 'tools' | 'fusionModels' | 'config'> & { readonly termsOf: InnerTermsOf },
): Fusion {
  const { tools, fusionModels, config, termsOf } = deps
  const pluginIndex = request.plugins?.findIndex(({ id }) => id === 'fusion') ?? -1
  const plugin = (pluginIndex < 0 ? null : request.plugins?.[pluginIndex]) as
    | (FusionSettings & { enabled?: boolean | null })
    | null
  const pluginSettings = plugin?.enabled === false ? null : plugin
  const settings: FusionSettings = {
    ...pluginSettings,
    ...withoutNulls((tool.parameters ?? {}) as FusionSettings),
  }
  const panelModels = settings.analysis_models
  const panel = panelModels ?? fusionModels.panel(settings.preset ?? null)
  if (panel.length === 0) {
    throw new GatewayError(
      'invalid_request',
      `${path}.parameters.analysis_models: is required, because neither the settings nor the catalogue of this gateway provide a panel`,
    )
  }
  const defaultTools = DEFAULT_TOOLS.filter(
    name => tools.has(name) && !disabledTools.has(name) && (name !== 'web_search' || hasSearchEngine(config)),
  ).map(name => ({ type: `gateway:${name}` }))
  const { cache_control, reasoning, temperature } = settings
  const shared: InnerSettings = {
    max_completion_tokens: settings.max_completion_tokens ?? DEFAULT_OUTPUT_TOKENS,
    max_tool_calls: settings.max_tool_calls ?? DEFAULT_TOOL_STEPS,
    ...(reasoning == null ? {} : { reasoning }),
    ...(cache_control == null ? {} : { cache_control }),
    ...toolsOf(settings.tools ?? defaultTools),
  }
  const field = `${path}.parameters`
  for (const [index, model] of (panelModels ?? []).entries())
    termsOf({ model }, `${field}.analysis_models[${index}]`)
  const analyst = settings.model ?? fusionModels.analyst
  if (analyst !== null) termsOf({ model: analyst }, field)
  return {
    panel,
    analyst,
    panelTerms: termsOf({ ...shared, ...(temperature == null ? {} : { temperature }) }, field),
    analystTerms: termsOf(shared, field),
  }
}

/** Without a search engine, web_search as a default tool would make every member fail. */
function hasSearchEngine(config: object): boolean {
  const { tools } = config as {
    readonly tools?: { readonly webSearch?: { readonly engines?: readonly unknown[] } }
  }
  return (tools?.webSearch?.engines?.length ?? 0) > 0
}

function toolsOf(tools: NonNullable<InnerSettings['tools']>): Pick<InnerSettings, 'tools'> {
  return tools.length === 0 ? {} : { tools }
}

function withoutNulls(settings: FusionSettings): FusionSettings {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== null))
}

interface Run {
  readonly fusion: Fusion
  readonly exchange: Exchange
  readonly progress: ToolProgress
  readonly signal: AbortSignal
}

async function fuse(askAs: AskAs, { fusion, exchange, progress, signal }: Run): Promise<ToolOutcome> {
  const conversation = conversationOf(exchange.prompt)
  const isAnswerWithheld = isWithheld(exchange)
  const streams = exchange.request.stream === true && !isAnswerWithheld
  progress({ name: 'fusion_call.in_progress', fields: {} })
  const outcome = await askPanel(askAs, exchange, {
    models: fusion.panel,
    terms: fusion.panelTerms,
    conversation,
    progress: streams ? progress : null,
    signal,
  })
  const failures = outcome.failed.length === 0 ? {} : { failed_models: outcome.failed }
  if (outcome.responses.length === 0) {
    progress({ name: 'fusion_call.completed', fields: {} })
    return failedOutcome(reasonOf(outcome), 'No model of the panel answered', failures)
  }
  const model = fusion.analyst ?? outerModel(exchange)
  progress({
    name: 'fusion_call.analysis.in_progress',
    fields: { analyst_model: model, judge_model: model },
  })
  const analysis = await analyse(askAs, { ...fusion, model, outcome, conversation, exchange, signal })
  if (typeof analysis !== 'string') {
    if (!isAnswerWithheld) progress({ name: 'fusion_call.analysis.completed', fields: { analysis } })
  }
  progress({ name: 'fusion_call.completed', fields: {} })
  const fields = {
    ...(typeof analysis === 'string' ? { failure_reason: analysis } : { analysis }),
    responses: outcome.responses,
    ...failures,
  }
  const sources = outcome.sources.length === 0 ? {} : { sources: outcome.sources }
  const itemFields = isAnswerWithheld ? failures : { ...fields, ...sources }
  return { item: itemFields, result: JSON.stringify({ status: 'ok', ...fields }) }
}

interface Analyst {
  readonly model: string
  readonly analystTerms: InnerTerms
  readonly outcome: { readonly responses: readonly PanelResponse[] }
  readonly conversation: ReturnType<typeof conversationOf>
  readonly exchange: Exchange
  readonly signal: AbortSignal
}

/** The analysis, or the reason why there is none. Only rejects if the exchange is over. */
async function analyse(
  askAs: AskAs,
  { model, analystTerms, outcome, conversation, exchange, signal }: Analyst,
): Promise<FusionAnalysis | AnalysisFailure> {
  try {
    const request = { ...analystTerms, model, ...analystRequest(conversation, outcome.responses) }
    const reply = await askAs(exchange, request, { deadlineMs: ANALYST_TIMEOUT_MS, signal })
    return readAnalysis(replyText(reply))
  } catch {
    exchange.signal.throwIfAborted()
    return 'judge_upstream_error'
  }
}

/** The reason that a whole panel failed: the one that all members share, or a general one. */
function reasonOf({ codes }: PanelOutcome): FailureReason {
  const allOf = (...expected: readonly string[]): boolean => codes.every(code => expected.includes(code))
  if (allOf('payment_required')) return 'insufficient_credits'
  if (allOf('rate_limit_exceeded')) return 'rate_limited'
  if (allOf('model_not_found', 'unknown_model')) return 'invalid_model'
  return 'all_panels_failed'
}

function failedOutcome(
  reason: FailureReason,
  error: string,
  extraFields: Readonly<Record<string, unknown>> = {},
): ToolOutcome {
  const fields = { error, failure_reason: reason, ...extraFields }
  return { item: { status: 'incomplete', ...fields }, result: JSON.stringify({ status: 'error', ...fields }) }
}
