/**
 * The three wire formats of the bench upstream, as stream frames and as one JSON body. Pure. Every text begins with
 * `@uid,seq,stamp;` (stream, position, and CLOCK_MONOTONIC nanoseconds at sending), so that a reader behind any proxy
 * can compute the one-way delay. The last text of a stream ends with `#` and the FNV-1a hash of all texts before it, so
 * that the reader can also verify that it received exactly what was sent.
 */

export type Wire = 'openai-responses' | 'openai-chat' | 'anthropic-messages'

/** Paths under the upstream's root. */
export const PATHS: Readonly<Record<Wire, string>> = {
  'openai-responses': '/v1/responses',
  'openai-chat': '/v1/chat/completions',
  'anthropic-messages': '/v1/messages',
}

/** What stands before a text in a delta event of each format, up to and with the text's first character. */
export const MARKERS: Readonly<Record<Wire, string>> = {
  'openai-responses': '"delta":"@',
  'openai-chat': '"content":"@',
  'anthropic-messages': '"text":"@',
}

/** What a model name asks the upstream for. */
export type Plan =
  | {
      readonly kind: 'stream'
      readonly events: number
      readonly spacingMs: number
      readonly textBytes: number
    }
  /** As many bytes as the reader takes, without pauses. */
  | { readonly kind: 'flood'; readonly mebibytes: number }
  /** `delayMs`: how long the upstream takes; absent: it answers at once. */
  | { readonly kind: 'json'; readonly textBytes: number; readonly delayMs?: number }

export function planName(plan: Plan): string {
  if (plan.kind === 'stream') return `stream-${plan.events}-${plan.spacingMs}-${plan.textBytes}`
  if (plan.kind === 'flood') return `flood-${plan.mebibytes}`
  return `json-${plan.textBytes}${plan.delayMs === undefined ? '' : `-${plan.delayMs}`}`
}

/** The plan that a model name spells, with or without a vendor in front; null for any other name. */
export function planOf(model: string): Plan | null {
  const name = model.slice(model.lastIndexOf('/') + 1)
  const stream = /^stream-(\d{1,6})-(\d{1,4})-(\d{1,4})$/.exec(name)
  if (stream !== null) {
    const [, events, spacingMs, textBytes] = stream.map(Number)
    return { kind: 'stream', events: events ?? 0, spacingMs: spacingMs ?? 0, textBytes: textBytes ?? 0 }
  }
  const flood = /^flood-(\d{1,5})$/.exec(name)
  if (flood !== null) return { kind: 'flood', mebibytes: Number(flood[1]) }
  const json = /^json-(\d{1,5})(?:-(\d{1,4}))?$/.exec(name)
  if (json === null) return null
  const [, textBytes, delayMs] = json
  return {
    kind: 'json',
    textBytes: Number(textBytes),
    ...(delayMs === undefined ? {} : { delayMs: Number(delayMs) }),
  }
}

/** The upstream over HTTP/2. */
export const HTTP2 = {
  streamsPerConnection: 16,
  /** It drops a connection this often: one or two in a window. */
  lossEveryMs: 3_000,
} as const

export const FNV_START = 2166136261
const FNV_PRIME = 16777619

/** FNV-1a over bytes, continued from `hash`; an unsigned 32-bit number. */
export function fnv1a(hash: number, bytes: Uint8Array): number {
  let value = hash
  for (let at = 0; at < bytes.length; at++) value = Math.imul(value ^ (bytes[at] ?? 0), FNV_PRIME)
  return value >>> 0
}

/** Eight digits of hexadecimal. */
export function hashText(hash: number): string {
  return hash.toString(16).padStart(8, '0')
}

/** What fills a text up to its size. Two-byte characters stand among it, so that re-encoding is part of the work. */
const FILLER = ' le café est prêt; the quick brown fox jumps over the lazy dog'

/** `length` bytes, or one more where a character would be cut. */
export function filler(length: number): string {
  const pieces: string[] = []
  for (let bytes = 0; bytes < length; ) {
    const piece = FILLER[pieces.length % FILLER.length] ?? ''
    pieces.push(piece)
    bytes += Buffer.byteLength(piece)
  }
  return pieces.join('')
}

/** A stream's own frames: everything but the texts is built once. */
export interface Frames {
  /** Before the first text. */
  readonly opening: string
  delta(sequence: number, text: string): string
  /** After the last text. `whole` is all texts joined. */
  closing(whole: string, events: number): string
}

const USAGE_INPUT = 20
const CREATED_SECONDS = 1_780_000_000
/** Sequence number of the first text: created, in_progress, item added and part added come before it. */
const FIRST_SEQUENCE = 4

function resource(id: string, model: string, fields: object): object {
  return {
    id: `resp_${id}`,
    object: 'response',
    created_at: CREATED_SECONDS,
    error: null,
    incomplete_details: null,
    instructions: null,
    max_output_tokens: null,
    model,
    parallel_tool_calls: true,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    service_tier: 'default',
    store: false,
    temperature: 1,
    text: { format: { type: 'text' } },
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    truncation: 'disabled',
    metadata: {},
    ...fields,
  }
}

function message(id: string, text: string): object {
  return {
    id: `msg_${id}`,
    type: 'message',
    status: 'completed',
    role: 'assistant',
    content: [{ type: 'output_text', annotations: [], logprobs: [], text }],
  }
}

function responsesUsage(output: number): object {
  return {
    input_tokens: USAGE_INPUT,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: USAGE_INPUT + output,
  }
}

function event(type: string, fields: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
}

function responsesFrames(id: string, model: string): Frames {
  const at = { item_id: `msg_${id}`, output_index: 0 }
  const begun = resource(id, model, { status: 'in_progress', output: [], usage: null })
  const item = { id: `msg_${id}`, type: 'message', status: 'in_progress', role: 'assistant', content: [] }
  const part = (text: string): object => ({ type: 'output_text', annotations: [], logprobs: [], text })
  const afterDelta = `","logprobs":[]}\n\n`
  const type = 'response.output_text.delta'
  const beforeSequence = `event: ${type}\ndata: {"type":"${type}","item_id":"${at.item_id}","output_index":0,"content_index":0,"sequence_number":`
  return {
    opening:
      event('response.created', { response: begun, sequence_number: 0 }) +
      event('response.in_progress', { response: begun, sequence_number: 1 }) +
      event('response.output_item.added', { output_index: 0, item, sequence_number: 2 }) +
      event('response.content_part.added', {
        ...at,
        content_index: 0,
        part: part(''),
        sequence_number: FIRST_SEQUENCE - 1,
      }),
    delta: (sequence, text) => `${beforeSequence}${FIRST_SEQUENCE + sequence},"delta":"${text}${afterDelta}`,
    closing(whole, events) {
      const next = FIRST_SEQUENCE + events
      const done = message(id, whole)
      return (
        event('response.output_text.done', {
          ...at,
          content_index: 0,
          text: whole,
          logprobs: [],
          sequence_number: next,
        }) +
        event('response.content_part.done', {
          ...at,
          content_index: 0,
          part: part(whole),
          sequence_number: next + 1,
        }) +
        event('response.output_item.done', { output_index: 0, item: done, sequence_number: next + 2 }) +
        event('response.completed', {
          response: resource(id, model, {
            status: 'completed',
            completed_at: CREATED_SECONDS,
            output: [done],
            usage: responsesUsage(events),
          }),
          sequence_number: next + 3,
        })
      )
    },
  }
}

function chatUsage(output: number): object {
  return { prompt_tokens: USAGE_INPUT, completion_tokens: output, total_tokens: USAGE_INPUT + output }
}

function chatFrames(id: string, model: string): Frames {
  const head = `data: {"id":"chatcmpl-${id}","object":"chat.completion.chunk","created":${CREATED_SECONDS},"model":${JSON.stringify(model)},"service_tier":"default","system_fingerprint":"fp_bench","choices":[`
  const chunk = (delta: string, finish: string): string =>
    `${head}{"index":0,"delta":${delta},"logprobs":null,"finish_reason":${finish}}]}\n\n`
  return {
    opening: chunk('{"role":"assistant","content":"","refusal":null}', 'null'),
    delta: (_, text) => chunk(`{"content":"${text}"}`, 'null'),
    closing: (_, events) =>
      `${chunk('{}', '"stop"')}${head}],"usage":${JSON.stringify(chatUsage(events))}}\n\ndata: [DONE]\n\n`,
  }
}

function messagesUsage(output: number): object {
  return {
    input_tokens: USAGE_INPUT,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    output_tokens: output,
  }
}

function messagesBody(id: string, model: string, fields: object): object {
  return { id: `msg_${id}`, type: 'message', role: 'assistant', model, ...fields }
}

function messagesFrames(id: string, model: string): Frames {
  const message = messagesBody(id, model, {
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: messagesUsage(1),
  })
  const type = 'content_block_delta'
  const before = `event: ${type}\ndata: {"type":"${type}","index":0,"delta":{"type":"text_delta","text":"`
  return {
    opening:
      event('message_start', { message }) +
      event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    delta: (_, text) => `${before}${text}"}}\n\n`,
    closing: (_, events) =>
      event('content_block_stop', { index: 0 }) +
      event('message_delta', {
        delta: { stop_reason: 'end_turn', stop_sequence: null },
        usage: { output_tokens: events },
      }) +
      event('message_stop', {}),
  }
}

const FRAMES: Readonly<Record<Wire, (id: string, model: string) => Frames>> = {
  'openai-responses': responsesFrames,
  'openai-chat': chatFrames,
  'anthropic-messages': messagesFrames,
}

/** @param id 1 to 20 characters, unique per stream */
export function framesOf(wire: Wire, id: string, model: string): Frames {
  return FRAMES[wire](id, model)
}

function responsesBody(id: string, model: string, output: readonly object[], tokens: number): object {
  return resource(id, model, {
    status: 'completed',
    completed_at: CREATED_SECONDS,
    output,
    usage: responsesUsage(tokens),
  })
}

const BODIES: Readonly<Record<Wire, (id: string, model: string, text: string, tokens: number) => object>> = {
  'openai-responses': (id, model, text, tokens) => responsesBody(id, model, [message(id, text)], tokens),
  'openai-chat': (id, model, text, tokens) => ({
    id: `chatcmpl-${id}`,
    object: 'chat.completion',
    created: CREATED_SECONDS,
    model,
    service_tier: 'default',
    system_fingerprint: 'fp_bench',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: text, refusal: null },
        logprobs: null,
        finish_reason: 'stop',
      },
    ],
    usage: chatUsage(tokens),
  }),
  'anthropic-messages': (id, model, text, tokens) =>
    messagesBody(id, model, {
      content: [{ type: 'text', text }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      usage: messagesUsage(tokens),
    }),
}

/** A whole reply as JSON with this text. */
export function jsonBody(wire: Wire, id: string, model: string, text: string): string {
  return JSON.stringify(BODIES[wire](id, model, text, Math.ceil(text.length / 4)))
}

/** A whole reply of the Responses format that calls this function without arguments. */
export function callBody(id: string, model: string, name: string): string {
  const call = { id: `fc_${id}`, type: 'function_call', status: 'completed', call_id: `call_${id}`, name }
  return JSON.stringify(responsesBody(id, model, [{ ...call, arguments: '{}' }], 1))
}

const jsonTexts = new Map<number, string>()

/** The text of every JSON reply of this size: it carries its own hash. Built once for each size. */
export function jsonText(textBytes: number): string {
  const known = jsonTexts.get(textBytes)
  if (known !== undefined) return known
  const body = filler(Math.max(0, textBytes - 10))
  const text = `@${body}#${hashText(fnv1a(FNV_START, Buffer.from(body)))}`
  jsonTexts.set(textBytes, text)
  return text
}
