/**
 * All event types of a POST /responses stream, and their names. Pure. The gateway itself creates these values;
 * `pipeline/answer/` keeps the rules of their order.
 */
import { type Static, type TObject, type TProperties, type TUnsafe, Type } from '@sinclair/typebox'
import { OutputItem } from './items.ts'
import { count, nullableText, ReadonlyFields, variants } from './json/schema.ts'
import { Annotation, Logprob, OutputPart, SummaryTextPart } from './parts.ts'
import { DebugTimings, PublicResponse, type ResponseResource } from './response.ts'

const text = Type.String()
/** `sequence_number` starts at 0 and grows by 1 with each event of the stream. */
const sequenceFields = { sequence_number: count }
const itemFields = { ...sequenceFields, item_id: text, output_index: count }
const partFields = { ...itemFields, content_index: count }
const summaryFields = { ...itemFields, summary_index: count }
const deltaField = { delta: text }
const modelFields = { ...itemFields, model: text }

/** The schemas of event types that have the same fields. */
function events<const Name extends string, Fields extends TProperties>(
  names: readonly Name[],
  fields: Fields,
) {
  const table = names.map(name => [name, Type.Object({ type: Type.Literal(name), ...fields })] as const)
  return Object.fromEntries(table) as unknown as Record<Name, TObject<{ type: TUnsafe<Name> } & Fields>>
}

/** The content of one debug event. */
const DebugFacts = Type.Object({
  echo_upstream_body: Type.Optional(ReadonlyFields),
  timings: Type.Optional(DebugTimings),
})
export type DebugFacts = Static<typeof DebugFacts>

/** Findings of the fusion analyst in the panel's answers. */
const FusionAnalysis = Type.Object({
  consensus: Type.Array(text),
  contradictions: Type.Array(
    Type.Object({ topic: text, stances: Type.Array(Type.Object({ model: text, stance: text })) }),
  ),
  partial_coverage: Type.Array(Type.Object({ models: Type.Array(text), point: text })),
  unique_insights: Type.Array(Type.Object({ model: text, insight: text })),
  blind_spots: Type.Array(text),
})
export type FusionAnalysis = Static<typeof FusionAnalysis>

const EVENT_SCHEMAS = {
  ...events(
    [
      'response.created',
      'response.in_progress',
      'response.completed',
      'response.incomplete',
      'response.failed',
    ],
    { ...sequenceFields, response: PublicResponse },
  ),
  // Flat, as in the public stream.
  ...events(['error'], { ...sequenceFields, code: nullableText, message: text, param: nullableText }),
  // Request bodies and times of attempts come first; later times come before the last event.
  ...events(['response.debug'], { ...sequenceFields, debug: DebugFacts }),
  // Another endpoint continues the answer; only if the metadata header asks for it.
  ...events(['response.gateway.continued'], {
    ...sequenceFields,
    model: text,
    provider: text,
    continued_at: count,
  }),
  ...events(['response.output_item.added', 'response.output_item.done'], {
    ...sequenceFields,
    output_index: count,
    item: OutputItem,
  }),
  ...events(['response.content_part.added', 'response.content_part.done'], {
    ...partFields,
    part: OutputPart,
  }),
  ...events(['response.output_text.delta'], { ...partFields, ...deltaField, logprobs: Type.Array(Logprob) }),
  ...events(['response.output_text.done'], { ...partFields, text, logprobs: Type.Array(Logprob) }),
  ...events(['response.output_text.annotation.added'], {
    ...partFields,
    annotation_index: count,
    annotation: Annotation,
  }),
  ...events(['response.refusal.delta'], { ...partFields, ...deltaField }),
  ...events(['response.refusal.done'], { ...partFields, refusal: text }),
  ...events(['response.reasoning_text.delta'], { ...partFields, ...deltaField }),
  ...events(['response.reasoning_text.done'], { ...partFields, text }),
  ...events(['response.reasoning_summary_part.added', 'response.reasoning_summary_part.done'], {
    ...summaryFields,
    part: SummaryTextPart,
  }),
  ...events(['response.reasoning_summary_text.delta'], { ...summaryFields, ...deltaField }),
  ...events(['response.reasoning_summary_text.done'], { ...summaryFields, text }),
  ...events(['response.function_call_arguments.delta'], { ...itemFields, ...deltaField }),
  ...events(['response.function_call_arguments.done'], { ...itemFields, name: text, arguments: text }),
  ...events(['response.custom_tool_call_input.delta'], { ...itemFields, ...deltaField }),
  ...events(['response.custom_tool_call_input.done'], { ...itemFields, input: text }),
  ...events(
    [
      'response.web_search_call.in_progress',
      'response.web_search_call.searching',
      'response.web_search_call.completed',
      'response.code_interpreter_call.in_progress',
      'response.code_interpreter_call.interpreting',
      'response.code_interpreter_call.completed',
      'response.image_generation_call.in_progress',
      'response.image_generation_call.generating',
      'response.image_generation_call.completed',
      'response.fusion_call.in_progress',
      'response.fusion_call.completed',
    ],
    itemFields,
  ),
  ...events(['response.code_interpreter_call_code.delta'], { ...itemFields, ...deltaField }),
  ...events(['response.code_interpreter_call_code.done'], { ...itemFields, code: text }),
  ...events(['response.image_generation_call.partial_image'], {
    ...itemFields,
    partial_image_b64: text,
    partial_image_index: count,
    // The provider's value, if it sends one.
    size: Type.Optional(text),
    quality: Type.Optional(text),
    background: Type.Optional(text),
    output_format: Type.Optional(text),
  }),
  ...events(['response.apply_patch_call_operation_diff.delta'], { ...itemFields, ...deltaField }),
  ...events(['response.apply_patch_call_operation_diff.done'], { ...itemFields, diff: text }),
  ...events(['response.fusion_call.panel.added'], modelFields),
  ...events(['response.fusion_call.panel.delta', 'response.fusion_call.panel.reasoning.delta'], {
    ...modelFields,
    ...deltaField,
  }),
  ...events(['response.fusion_call.panel.completed'], { ...modelFields, content: text }),
  ...events(['response.fusion_call.panel.failed'], {
    ...modelFields,
    error: text,
    status_code: Type.Optional(Type.Integer()),
  }),
  ...events(['response.fusion_call.analysis.in_progress'], {
    ...itemFields,
    analyst_model: text,
    judge_model: Type.String({ description: 'Older name of analyst_model, same value' }),
  }),
  ...events(['response.fusion_call.analysis.completed'], { ...itemFields, analysis: FusionAnalysis }),
}

/** One event of the stream as its clients see it. */
export const PublicEvent = variants(EVENT_SCHEMAS, { noun: 'stream event' })
type PublicEvent = Static<typeof PublicEvent>

/** Names of all events, sorted. */
export const STREAM_EVENT_TYPES = (Object.keys(EVENT_SCHEMAS) as PublicEvent['type'][]).sort()

interface ResponseStateEvent extends Extract<PublicEvent, { response: unknown }> {
  response: ResponseResource
}

export interface OutputTextDeltaEvent extends Extract<PublicEvent, { type: 'response.output_text.delta' }> {
  /**
   * The provider began another block of text here. Only for dialects that show it; the responses dialect never does.
   */
  cut?: true
}

export type AnnotationAddedEvent = Extract<PublicEvent, { type: 'response.output_text.annotation.added' }>

/** One event of the stream. Discriminated by `type`. */
export type StreamEvent =
  | Exclude<PublicEvent, { response: unknown } | { type: 'response.output_text.delta' }>
  | ResponseStateEvent
  | OutputTextDeltaEvent
