/** Speaker of the Responses format. Pure. */
import {
  type Frame,
  namedFrame,
  openaiError,
  type ReplyPart,
  type Speaker,
  type Speech,
  wholeText,
} from './reply.ts'

type Item = Record<string, unknown>
type Emit = (kind: Frame['kind'], type: string, fields: Record<string, unknown>) => Frame

/** One output item: the parts of the reply that belong to it, and its forms. */
interface Plan {
  readonly id: string
  readonly part: ReplyPart
  readonly index: number
}

export const responsesSpeaker: Speaker = {
  *frames(speech) {
    let sequence = 0
    const emit: Emit = (kind, type, fields) =>
      namedFrame(kind, type, { type, ...fields, sequence_number: sequence++ })
    const opening = resource(speech, { status: 'in_progress', output: [], usage: null })
    yield emit('open', 'response.created', { response: opening })
    yield emit('open', 'response.in_progress', { response: opening })
    const output: Item[] = []
    for (const plan of plans(speech)) output.push(yield* itemFrames(plan, speech, emit))
    const finalResponse = finishResource(speech, output)
    yield emit('finish', `response.${finalResponse['status']}`, { response: finalResponse })
  },
  whole: speech =>
    finishResource(
      speech,
      plans(speech).map(plan => doneItem(plan, speech)),
    ),
  unfinished: speech =>
    resource(speech, {
      status: 'in_progress',
      output: plans(speech).map(plan => doneItem(plan, speech)),
      usage: null,
    }),
  failure: openaiError,
  failureFrame(trouble, framesBefore) {
    const { error } = openaiError(trouble)
    const code = error['code'] ?? error['type']
    return namedFrame('finish', 'error', {
      type: 'error',
      code,
      message: trouble.message,
      param: null,
      sequence_number: framesBefore,
    }).text
  },
}

function plans(speech: Speech): Plan[] {
  const prefix = { text: 'msg', refusal: 'msg', reasoning: 'rs', call: 'fc' } as const
  return speech.reply.parts.map((part, index) => {
    const kind = part.kind === 'call' && part.custom ? 'ctc' : prefix[part.kind]
    return { id: `${kind}_${speech.id}${index}`, part, index }
  })
}

function* itemFrames(plan: Plan, speech: Speech, emit: Emit): Generator<Frame, Item> {
  const { part, id, index } = plan
  const itemPosition = { item_id: id, output_index: index }
  yield emit('open', 'response.output_item.added', {
    output_index: index,
    item: itemOf(plan, '', 'in_progress'),
  })
  const text = yield* part.kind === 'call'
    ? callFrames(part, itemPosition, emit)
    : part.kind === 'reasoning' && part.form === 'summary'
      ? summaryFrames(part, itemPosition, emit)
      : contentFrames(part, itemPosition, emit)
  const finalItem = itemOf(plan, text, isCutItem(plan, speech) ? 'incomplete' : 'completed', speech)
  yield emit('close', 'response.output_item.done', { output_index: index, item: finalItem })
  return finalItem
}

/** Only the last item of a reply that reached its limit is incomplete. */
function isCutItem(plan: Plan, speech: Speech): boolean {
  return speech.reply.finish === 'length' && plan.index === speech.reply.parts.length - 1
}

function* contentFrames(part: ReplyPart, itemPosition: object, emit: Emit): Generator<Frame, string> {
  const kind = part.kind === 'text' ? 'output_text' : part.kind === 'refusal' ? 'refusal' : 'reasoning_text'
  const partPosition = { ...itemPosition, content_index: 0 }
  const extra = kind === 'output_text' ? { logprobs: [] } : {}
  yield emit('open', 'response.content_part.added', { ...partPosition, part: contentPart(part, '') })
  let text = ''
  for (const delta of part.pieces.each()) {
    text += delta
    yield emit('token', `response.${kind}.delta`, { ...partPosition, delta, ...extra })
  }
  const doneFields = kind === 'refusal' ? { refusal: text } : { text, ...extra }
  yield emit('close', `response.${kind}.done`, { ...partPosition, ...doneFields })
  yield emit('close', 'response.content_part.done', { ...partPosition, part: contentPart(part, text) })
  return text
}

function* summaryFrames(part: ReplyPart, itemPosition: object, emit: Emit): Generator<Frame, string> {
  const partPosition = { ...itemPosition, summary_index: 0 }
  yield emit('open', 'response.reasoning_summary_part.added', {
    ...partPosition,
    part: { type: 'summary_text', text: '' },
  })
  let text = ''
  for (const delta of part.pieces.each()) {
    text += delta
    yield emit('token', 'response.reasoning_summary_text.delta', { ...partPosition, delta })
  }
  yield emit('close', 'response.reasoning_summary_text.done', { ...partPosition, text })
  yield emit('close', 'response.reasoning_summary_part.done', {
    ...partPosition,
    part: { type: 'summary_text', text },
  })
  return text
}

function* callFrames(
  part: ReplyPart & { kind: 'call' },
  itemPosition: object,
  emit: Emit,
): Generator<Frame, string> {
  const name = part.custom ? 'custom_tool_call_input' : 'function_call_arguments'
  let text = ''
  for (const delta of part.pieces.each()) {
    text += delta
    yield emit('token', `response.${name}.delta`, { ...itemPosition, delta })
  }
  const doneFields = part.custom ? { input: text } : { name: part.name, arguments: text }
  yield emit('close', `response.${name}.done`, { ...itemPosition, ...doneFields })
  return text
}

function contentPart(part: ReplyPart, text: string): Item {
  if (part.kind === 'refusal') return { type: 'refusal', refusal: text }
  if (part.kind === 'reasoning') return { type: 'reasoning_text', text }
  return { type: 'output_text', annotations: [], logprobs: [], text }
}

function doneItem(plan: Plan, speech: Speech): Item {
  return itemOf(
    plan,
    wholeText(plan.part.pieces),
    isCutItem(plan, speech) ? 'incomplete' : 'completed',
    speech,
  )
}

function itemOf({ part, id }: Plan, text: string, status: string, speech: Speech | null = null): Item {
  const isFirst = speech === null
  if (part.kind === 'call') {
    const callId = `call_${id.slice(id.indexOf('_') + 1)}`
    return part.custom
      ? { id, type: 'custom_tool_call', status, call_id: callId, name: part.name, input: text }
      : { id, type: 'function_call', status, call_id: callId, name: part.name, arguments: text }
  }
  if (part.kind !== 'reasoning') {
    return {
      id,
      type: 'message',
      status,
      role: 'assistant',
      content: isFirst ? [] : [contentPart(part, text)],
    }
  }
  const include = speech?.ask.body['include']
  const isEncrypted = Array.isArray(include) && include.includes('reasoning.encrypted_content')
  return {
    id,
    type: 'reasoning',
    ...(part.form === 'summary'
      ? { summary: isFirst ? [] : [{ type: 'summary_text', text }] }
      : { summary: [], content: isFirst ? [] : [contentPart(part, text)] }),
    ...(isEncrypted ? { encrypted_content: Buffer.from(text).toString('base64') } : {}),
  }
}

function finishResource(speech: Speech, output: readonly Item[]): Item {
  const { input, output: outputTokens, reasoning } = speech.tally
  const isCut = speech.reply.finish === 'length'
  return resource(speech, {
    status: isCut ? 'incomplete' : 'completed',
    incomplete_details: isCut ? { reason: 'max_output_tokens' } : null,
    completed_at: isCut ? null : speech.createdSeconds,
    output,
    usage: {
      input_tokens: input,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: outputTokens,
      output_tokens_details: { reasoning_tokens: reasoning },
      total_tokens: input + outputTokens,
    },
  })
}

function resource({ ask, id, createdSeconds }: Speech, fields: Item): Item {
  const { body } = ask
  return {
    id: `resp_${id}`,
    object: 'response',
    created_at: createdSeconds,
    completed_at: null,
    error: null,
    incomplete_details: null,
    instructions: body['instructions'] ?? null,
    max_output_tokens: body['max_output_tokens'] ?? null,
    model: ask.model,
    parallel_tool_calls: body['parallel_tool_calls'] ?? true,
    previous_response_id: null,
    reasoning: body['reasoning'] ?? { effort: null, summary: null },
    service_tier: 'default',
    store: false,
    temperature: body['temperature'] ?? 1,
    text: body['text'] ?? { format: { type: 'text' } },
    tool_choice: body['tool_choice'] ?? 'auto',
    tools: body['tools'] ?? [],
    top_p: body['top_p'] ?? 1,
    truncation: body['truncation'] ?? 'disabled',
    metadata: body['metadata'] ?? {},
    ...fields,
  }
}
