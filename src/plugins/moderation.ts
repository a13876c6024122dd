/**
 * Moderation: a configured model looks at what goes in, before any other is asked. What it flags is refused; when it
 * cannot say, the request is refused as well, because whoever asks for moderation does not want to go without. The
 * service pays for it, so it is only done for requests that the limits of their caller allow.
 */
import { GatewayError } from '../errors.ts'
import type { Ask, Exchange } from '../gateway/exchange.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { answerText } from './answer-text.ts'
import { moderating, piecesOf, readModeration, textsToModerate } from './moderation-question.ts'
import type { ActivePlugin, Plugin, PolicyAgainst } from './plugin.ts'

export interface ModerationParts {
  readonly ask: Ask
  /** Null: nobody moderates. */
  readonly moderation: { readonly model: string } | null
  readonly policyAgainst: PolicyAgainst
}

/** For all of a request; a caller waits for it before anything else. */
const MODERATION_MS = 10_000
/** Characters of what was flagged that are told. */
const TOLD_CHARS = 100

export function createModeration(parts: ModerationParts): Plugin<'moderation'> {
  return {
    id: 'moderation',
    activate: settings => (settings === null ? null : new ActiveModeration(parts)),
  }
}

class ActiveModeration implements ActivePlugin {
  readonly id = 'moderation'
  readonly #parts: ModerationParts

  constructor(parts: ModerationParts) {
    this.#parts = parts
  }

  async prepare(exchange: Exchange): Promise<void> {
    const { moderation } = this.#parts
    if (moderation === null) throw refused('no moderation model is configured')
    const { prompt, zeroRetention, dataRegion } = exchange
    // What is said in it may go to no other model.
    if (zeroRetention || prompt.provider?.zdr === true)
      throw refused('a request with zero data retention cannot be moderated')
    if (dataRegion !== null) throw refused('a request by the host of a region cannot be moderated')
    const rule = await this.#parts.policyAgainst(exchange.caller, moderation)
    if (rule !== null) {
      throw refused(
        `a guardrail of this API key forbids that the input goes to the moderation model (${rule})`,
      )
    }
    await this.#moderate(moderation.model, textsToModerate(prompt), exchange)
  }

  /** What was read out of files, or stands in settings of plugins, is moderated as the request that holds it. */
  async look(exchange: Exchange, texts: readonly string[]): Promise<void> {
    const { moderation } = this.#parts
    if (moderation !== null) await this.#moderate(moderation.model, piecesOf(texts), exchange)
  }

  async #moderate(model: string, texts: readonly string[] | null, exchange: Exchange): Promise<void> {
    if (texts === null) throw refused('the input is too long to be moderated')
    await exchange.admitEarly?.()
    const found = await Promise.all(texts.map(text => this.#judge(model, text, exchange)))
    const at = found.findIndex(({ flagged }) => flagged)
    exchange.pipeline.push({
      type: 'guardrail',
      name: 'moderation',
      summary: at === -1 ? 'nothing was flagged' : 'the input was flagged',
      data: { flagged: at !== -1 },
    })
    if (at === -1) return
    throw new GatewayError('permission_denied', 'The input was flagged by the moderation plugin', {
      metadata: {
        reasons: [...new Set(found.flatMap(({ categories }) => categories))],
        flagged_input: elided(texts[at] ?? ''),
        provider_name: 'gateway',
        model_slug: requestedModel(exchange.request),
      },
    })
  }

  async #judge(model: string, text: string, exchange: Exchange) {
    const isPrivate = exchange.request.provider?.data_collection === 'deny'
    let cause: unknown
    try {
      const answer = await this.#parts.ask(moderating(model, text, isPrivate), {
        parent: exchange,
        deadlineMs: MODERATION_MS,
      })
      const moderated = readModeration(answerText(answer.output))
      if (moderated !== null) return moderated
    } catch (thrown) {
      exchange.signal.throwIfAborted()
      cause = thrown
    }
    throw new GatewayError('guardrail_unavailable', 'moderation: the input could not be moderated', {
      ...(cause === undefined ? {} : { cause }),
    })
  }
}

function refused(why: string): GatewayError {
  return new GatewayError('invalid_request', `moderation: ${why}`)
}

function requestedModel({ model, models }: ResponsesRequest): string {
  return model ?? models?.[0] ?? ''
}

/** At most TOLD_CHARS UTF-16 units, the middle left out; half a pair at a cut goes as well. */
function elided(text: string): string {
  if (text.length <= TOLD_CHARS) return text
  const kept = (TOLD_CHARS - 3) >> 1
  const head = text.slice(0, kept).replace(/[\uD800-\uDBFF]$/, '')
  const tail = text.slice(-kept).replace(/^[\uDC00-\uDFFF]/, '')
  return `${head}...${tail}`
}
