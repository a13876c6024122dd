/**
 * Plain requests: texts and ordinary settings for one model. Only the name of the model decides which endpoint serves
 * them, and no tool, plugin, file or special item needs work from the gateway. Pure. Hot path: one pass.
 */
import type { ResponsesRequest } from '../request.ts'

/** Fields that only the model, the usage record or the pin of a conversation uses. */
const ORDINARY_FIELDS: ReadonlySet<string> = new Set<keyof ResponsesRequest>([
  'model',
  'input',
  'instructions',
  'stream',
  'max_output_tokens',
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'top_a',
  'frequency_penalty',
  'presence_penalty',
  'repetition_penalty',
  'seed',
  'stop',
  'logit_bias',
  'top_logprobs',
  'metadata',
  'store',
  'user',
  'safety_identifier',
  'session_id',
  'prompt_cache_key',
  'cache_control',
  'reasoning',
  'trace',
])
const TEXT_PART_TYPES: ReadonlySet<unknown> = new Set(['input_text', 'output_text', 'refusal'])

interface Part {
  readonly type?: unknown
  readonly native?: { readonly unknown?: unknown }
}

/** True for a plain request; a field that is null counts as absent. */
export function isPlain(request: ResponsesRequest): boolean {
  if (request.model === undefined || request.store === true || request.reasoning?.mode != null) return false
  for (const name in request) {
    if (!ORDINARY_FIELDS.has(name) && (request as Readonly<Record<string, unknown>>)[name] != null)
      return false
  }
  const { input } = request
  if (typeof input === 'string') return true
  for (let index = 0; index < input.length; index++) {
    const { type, content, output } = input[index] as {
      readonly type?: string
      readonly content?: unknown
      readonly output?: unknown
    }
    if (type === 'function_call' || type === 'reasoning') continue
    if (type !== undefined && type !== 'message' && type !== 'function_call_output') return false
    const parts = type === 'function_call_output' ? output : content
    if (typeof parts === 'string') continue
    if (!Array.isArray(parts)) return false
    for (let partIndex = 0; partIndex < parts.length; partIndex++) {
      const { type: partType, native } = parts[partIndex] as Part
      // A kind of part that only providers of the caller's own API know.
      if (!TEXT_PART_TYPES.has(partType) || native?.unknown !== undefined) return false
    }
  }
  return true
}
