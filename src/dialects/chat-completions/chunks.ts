/** Chunks that are no deltas: the end of a choice, usage, errors. Pure. */
import type { ResponseResource } from '../../protocol/response.ts'
import { chatUsage, type Fields, finishOf } from './answer.ts'
import type { ChatError } from './failure.ts'

/** What is known of an answer that failed. */
export type FailedEnding = Partial<Pick<ResponseResource, 'usage' | 'alignment' | 'gateway_metadata'>>

/** What all chunks of a stream have in common. */
export function commonOf(
  response: Pick<ResponseResource, 'id' | 'created_at' | 'model' | 'provider'>,
): Fields {
  return {
    id: response.id,
    object: 'chat.completion.chunk',
    created: response.created_at,
    model: response.model,
    provider: response.provider ?? null,
  }
}

/** A chunk as a frame. */
export function chunk(common: Fields, fields: Fields): string {
  return `data: ${JSON.stringify({ ...common, ...fields })}\n\n`
}

/** The finish of the choice, and usage with what else is known only at the end. */
export function endChunks(common: Fields, response: ResponseResource, delta: Fields): string {
  const { usage } = response
  const last = {
    provider: response.provider ?? common['provider'],
    service_tier: response.service_tier,
    system_fingerprint: null,
  }
  const finish = {
    index: 0,
    delta,
    finish_reason: finishOf(response),
    native_finish_reason: response.native_finish_reason ?? null,
    logprobs: null,
  }
  return (
    chunk(common, { ...last, choices: [finish] }) +
    chunk(common, {
      ...last,
      choices: [],
      usage: usage === null ? null : chatUsage(usage),
      ...reports(response),
    })
  )
}

/**
 * An error that ends the choice. Usage of calls that count follows in a chunk of its own. A fault of ours says nothing
 * of the routing.
 */
export function failureChunks(common: Fields, error: ChatError, delta: Fields, ending: FailedEnding): string {
  const finish = { index: 0, delta, finish_reason: 'error', native_finish_reason: null, logprobs: null }
  const { usage = null, gateway_metadata: metadata, ...rest } = ending
  const last = reports(
    error.code === 500 || metadata === undefined ? rest : { ...rest, gateway_metadata: metadata },
  )
  if (usage === null) return chunk(common, { error, choices: [finish], ...last })
  return (
    chunk(common, { error, choices: [finish] }) +
    chunk(common, { choices: [], usage: chatUsage(usage), ...last })
  )
}

function reports({ alignment, gateway_metadata: metadata }: FailedEnding): Fields {
  return {
    ...(alignment === undefined ? {} : { alignment }),
    ...(metadata === undefined ? {} : { gateway_metadata: metadata }),
  }
}
