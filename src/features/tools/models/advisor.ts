/**
 * The advisor server tool: the model asks another model for advice. Each entry is one advisor; only one may lack a
 * name. An advisor sees its earlier advice, from this request and from items that the client sends back.
 */
import type { AskAs, Exchange } from '../../../exchange/exchange.ts'
import type {
  FunctionDeclaration,
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolOutcome,
  ToolProgress,
} from '../../../exchange/server-tool.ts'
import { DIALECT_ABILITIES } from '../../../protocol/dialect-abilities.ts'
import type { InputItem } from '../../../protocol/items.ts'
import { conversationOf } from '../conversation.ts'
import { functionName, instanceNames } from '../instances.ts'
import { cutText, innerFailure, PieceWriter, replyText, textEvents } from './inner-reply.ts'
import {
  createInnerTerms,
  type InnerSettings,
  type InnerTerms,
  isWithheld,
  outerModel,
} from './inner-request.ts'

interface AdvisorDeps {
  readonly askAs: AskAs
  readonly tools: ReadonlyMap<string, ServerTool>
}

interface AdvisorSettings extends InnerSettings {
  readonly instructions?: string | null
  readonly forward_transcript?: boolean | null
  readonly stream?: boolean | null
}

interface Advisor {
  readonly tool: RequestedTool
  /** Null if it has no name. */
  readonly name: string | null
  readonly settings: AdvisorSettings
  readonly terms: InnerTerms
  /** Earlier questions to this advisor and its advice, oldest first. */
  readonly memory: { readonly prompt: string; readonly advice: string }[]
}

/** Maximum consultations per request, of all advisors together. */
const MAX_CONSULTATIONS = 10
/** Maximum characters of one piece of advice, and of the earlier questions and advice that are repeated. */
const MAX_ADVICE_CHARS = 100_000
const MAX_MEMORY_CHARS = 200_000
/** Limit for advice within a larger limit of the request: nearly every model can write this much. */
const MAX_ADVICE_TOKENS = 8_192
const RUN_TIMEOUT_MS = 180_000
/** The call ends before the tool's time limit, so that the model learns the reason. */
const MODEL_TIMEOUT_MS = 170_000

const DEFAULT_INSTRUCTIONS =
  'You advise another model that works on a task of its own. Answer what it asks, briefly and concretely.'
const TRANSCRIPT_QUESTION = 'Give your advice on the conversation above.'

export function createAdvisor({ askAs, tools }: AdvisorDeps): ServerTool {
  const termsOf = createInnerTerms(tools)
  return {
    name: 'advisor',
    asksModels: true,
    runMs: RUN_TIMEOUT_MS,
    open(entries, exchange) {
      const names = instanceNames('advisor', entries)
      const advisors = entries.map(({ tool, path }, index): Advisor => {
        const settings = (tool.parameters ?? {}) as AdvisorSettings
        const { model, max_completion_tokens, reasoning, temperature } = settings
        const inner = { model, max_completion_tokens, reasoning, temperature } as InnerSettings
        const name = names[index] ?? null
        return {
          tool,
          name,
          settings,
          terms: termsOf(inner, `${path}.parameters`),
          memory: replayItems(exchange, name),
        }
      })
      const advisorOf = (tool: RequestedTool): Advisor => {
        const advisor = advisors.find(candidate => candidate.tool === tool)
        if (advisor === undefined) throw new TypeError('the call belongs to no entry of the request')
        return advisor
      }
      let consultations = 0
      return {
        declare: () => advisors.map(declaration),
        firstForm: call => itemFields(call, advisorOf(call.tool), exchange),
        async run(call, progress, signal) {
          const advisor = advisorOf(call.tool)
          const fields = itemFields(call, advisor, exchange)
          if (++consultations > MAX_CONSULTATIONS) {
            return failedOutcome(fields, `This request has used its ${MAX_CONSULTATIONS} consultations`)
          }
          try {
            return await consult(askAs, { advisor, call, exchange, fields, progress, signal })
          } catch (thrown) {
            exchange.signal.throwIfAborted()
            return failedOutcome(fields, innerFailure(thrown).error)
          }
        },
      }
    },
  }
}

function declaration({ tool, name, settings: { forward_transcript } }: Advisor): FunctionDeclaration {
  const forwards = forward_transcript === true
  return {
    tool,
    name: functionName('advisor', name),
    description: `Asks another model for advice${forwards ? ' on this conversation, which it sees' : '. It sees nothing but the prompt and what it was asked before'}.`,
    parameters: {
      type: 'object',
      properties: {
        prompt: { type: 'string', description: 'The question, with all that is needed to answer it' },
      },
      required: forwards ? [] : ['prompt'],
      additionalProperties: false,
    },
  }
}

interface Consultation {
  readonly advisor: Advisor
  readonly call: ToolCall
  readonly exchange: Exchange
  readonly fields: Readonly<Record<string, unknown>>
  readonly progress: ToolProgress
  readonly signal: AbortSignal
}

async function consult(askAs: AskAs, consultation: Consultation): Promise<ToolOutcome> {
  const { advisor, call, exchange, fields, progress, signal } = consultation
  const { settings, terms, memory } = advisor
  const forwards = settings.forward_transcript === true
  const prompt = textArgument(call, 'prompt') ?? ''
  if (prompt === '' && !forwards) return failedOutcome(fields, 'prompt: is required')
  const question = prompt === '' ? TRANSCRIPT_QUESTION : prompt
  const requestLimit = exchange.request.max_output_tokens
  // The entry's own limit takes precedence.
  const tokenLimit =
    requestLimit == null ? {} : { max_output_tokens: Math.min(requestLimit, MAX_ADVICE_TOKENS) }
  const request = {
    ...tokenLimit,
    ...terms,
    model: modelOf(advisor, exchange),
    instructions: settings.instructions ?? DEFAULT_INSTRUCTIONS,
    input: [
      ...memoryItems(memory),
      ...(forwards ? conversationOf(exchange.prompt) : []),
      { type: 'message', role: 'user', content: question } as InputItem,
    ],
  }
  const streams =
    settings.stream === true &&
    exchange.request.stream === true &&
    DIALECT_ABILITIES[exchange.dialect].toolProgress &&
    !isWithheld(exchange)
  const writer = new PieceWriter(MAX_ADVICE_CHARS, delta =>
    progress({ name: 'output_text.delta', fields: { content_index: 0, delta, logprobs: [] } }),
  )
  const reply = await askAs(exchange, request, {
    deadlineMs: MODEL_TIMEOUT_MS,
    signal,
    ...(streams ? { onEvent: textEvents(writer, null) } : {}),
  })
  const advice = cutText(replyText(reply), MAX_ADVICE_CHARS)
  if (advice === '') return failedOutcome(fields, 'The advisor gave no answer')
  if (streams) {
    writer.end()
    progress({ name: 'output_text.done', fields: { content_index: 0, text: advice, logprobs: [] } })
  }
  memory.push({ prompt: question, advice })
  const answeringModel = reply.model
  return {
    item: { ...fields, model: answeringModel, ...(isWithheld(exchange) ? {} : { advice }) },
    result: JSON.stringify({ status: 'ok', model: answeringModel, advice }),
  }
}

/** The model in the entry, otherwise the answering one. The call cannot name a model, because text could then choose it. */
function modelOf({ settings }: Advisor, exchange: Exchange): string {
  return settings.model ?? outerModel(exchange)
}

function textArgument({ arguments: callArguments }: ToolCall, name: string): string | null {
  const value = callArguments[name]
  return typeof value === 'string' && value.trim() !== '' ? value : null
}

function itemFields(call: ToolCall, advisor: Advisor, exchange: Exchange): Readonly<Record<string, unknown>> {
  const prompt = textArgument(call, 'prompt')
  return {
    ...(prompt === null ? {} : { prompt }),
    model: modelOf(advisor, exchange),
    ...(advisor.name === null ? {} : { instance_name: advisor.name }),
  }
}

function failedOutcome(fields: Readonly<Record<string, unknown>>, error: string): ToolOutcome {
  return { item: { ...fields, status: 'failed', error }, result: JSON.stringify({ status: 'error', error }) }
}

/** Earlier advice of this advisor, from the items that the client sends back. */
function replayItems({ prompt: { input } }: Exchange, name: string | null): Advisor['memory'] {
  if (typeof input === 'string') return []
  return input.flatMap(item => {
    if (item.type !== 'gateway:advisor' && item.type !== 'openrouter:advisor') return []
    const { advice, prompt, instance_name } = item
    if (typeof advice !== 'string' || advice === '' || (instance_name ?? null) !== name) return []
    return [{ prompt: typeof prompt === 'string' && prompt !== '' ? prompt : TRANSCRIPT_QUESTION, advice }]
  })
}

/** The latest questions and advice that fit. */
function memoryItems(memory: Advisor['memory']): readonly InputItem[] {
  let remaining = MAX_MEMORY_CHARS
  const recent = memory.toReversed().filter(({ prompt, advice }) => {
    remaining -= prompt.length + advice.length
    return remaining >= 0
  })
  return recent.toReversed().flatMap(({ prompt, advice }): InputItem[] => [
    { type: 'message', role: 'user', content: prompt },
    { type: 'message', role: 'assistant', content: advice },
  ])
}
