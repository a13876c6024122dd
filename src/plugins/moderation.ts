/**
 * Moderation: a configured model checks the input before any other model is asked. Flagged input is refused, and so is
 * input that cannot be checked: a caller that asks for moderation does not want to go without. The service pays for it,
 * so it runs only for requests within the limits of their caller.
 */
import type { Config } from '../config/config.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../gateway/exchange.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { answerText } from './answer-text.ts'
import { moderating, piecesOf, readModeration, textsToModerate } from './moderation-question.ts'
import type { ActivePlugin, Plugin, PluginDeps } from './plugin.ts'

export interface ModerationDeps extends Pick<PluginDeps, 'ask' | 'policyAgainst'> {
  readonly config: Pick<Config, 'moderation'>
}

/** Deadline for each question, while the caller waits. */
const MODERATION_MS = 10_000
/** Characters of flagged input that the error shows. */
const TOLD_CHARS = 100

export function createModeration(deps: ModerationDeps): Plugin<'moderation'> {
  return {
    id: 'moderation',
    activate: settings => (settings === null ? null : new ActiveModeration(deps)),
  }
}

class ActiveModeration implements ActivePlugin {
  readonly id = 'moderation'
  readonly #deps: ModerationDeps

  constructor(deps: ModerationDeps) {
    this.#deps = deps
  }

  async prepare(exchange: Exchange): Promise<void> {
    const { moderation } = this.#deps.config
    if (moderation === null) throw refused('no moderation model is configured')
    const { prompt, zeroRetention, dataRegion } = exchange
    // The input must not go to another model.
    if (zeroRetention || prompt.provider?.zdr === true)
      throw refused('a request with zero data retention cannot be moderated')
    if (dataRegion !== null) throw refused('a request to a regional host cannot be moderated')
    const rule = await this.#deps.policyAgainst(exchange.caller, moderation)
    if (rule !== null) {
      throw refused(
        `a guardrail on this API key does not allow sending the input to the moderation model (${rule})`,
      )
    }
    await this.#moderate(moderation.model, textsToModerate(prompt), exchange)
  }

  /** Moderates texts from files and from settings of plugins, like the request itself. */
  async look(exchange: Exchange, texts: readonly string[]): Promise<void> {
    const { moderation } = this.#deps.config
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
      const answer = await this.#deps.ask(moderating(model, text, isPrivate), {
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

/** Shortens a text to TOLD_CHARS UTF-16 units by leaving out its middle; drops half of a surrogate pair at a cut. */
function elided(text: string): string {
  if (text.length <= TOLD_CHARS) return text
  const kept = (TOLD_CHARS - 3) >> 1
  const head = text.slice(0, kept).replace(/[\uD800-\uDBFF]$/, '')
  const tail = text.slice(-kept).replace(/^[\uDC00-\uDFFF]/, '')
  return `${head}...${tail}`
}
