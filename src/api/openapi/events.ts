/**
 * The events of a streamed response as one schema. Pure. A test keeps it equal to the type of protocol/events.ts, and
 * its kinds equal to the list there.
 */
import { type TProperties, Type } from '@sinclair/typebox'
import { variants } from '../../protocol/json/schema.ts'
import {
  AnnotationAnswer,
  count,
  DebugTime,
  facts,
  LogprobAnswer,
  OutputItemAnswer,
  OutputPartAnswer,
  orNoText,
  ResponseAnswer,
  SummaryTextAnswer,
  text,
} from './response.ts'

const numbered = { sequence_number: count }
const ofItem = { ...numbered, item_id: text, output_index: count }
const ofPart = { ...ofItem, content_index: count }
const ofSummary = { ...ofItem, summary_index: count }

/** An event of these fields for each of its types. */
function events<const Name extends string, Fields extends TProperties>(
  names: readonly Name[],
  fields: Fields,
) {
  const table = names.map(name => [name, Type.Object({ type: Type.Literal(name), ...fields })] as const)
  return Object.fromEntries(table) as unknown as {
    [Each in Name]: ReturnType<typeof Type.Object<{ type: ReturnType<typeof Type.Literal<Each>> } & Fields>>
  }
}

const delta = { delta: text }
const ofModel = { ...ofItem, model: text }

const DebugFacts = Type.Object({
  echo_upstream_body: Type.Optional(facts),
  timings: Type.Optional(DebugTime),
})

const Analysis = Type.Object({
  consensus: Type.Array(text),
  contradictions: Type.Array(
    Type.Object({ topic: text, stances: Type.Array(Type.Object({ model: text, stance: text })) }),
  ),
  partial_coverage: Type.Array(Type.Object({ models: Type.Array(text), point: text })),
  unique_insights: Type.Array(Type.Object({ model: text, insight: text })),
  blind_spots: Type.Array(text),
})

export const ResponseEvent = variants(
  {
    ...events(
      [
        'response.created',
        'response.in_progress',
        'response.completed',
        'response.incomplete',
        'response.failed',
      ],
      { ...numbered, response: ResponseAnswer },
    ),
    ...events(['error'], { ...numbered, code: orNoText, message: text, param: orNoText }),
    ...events(['response.debug'], { ...numbered, debug: DebugFacts }),
    ...events(['response.output_item.added', 'response.output_item.done'], {
      ...numbered,
      output_index: count,
      item: OutputItemAnswer,
    }),
    ...events(['response.content_part.added', 'response.content_part.done'], {
      ...ofPart,
      part: OutputPartAnswer,
    }),
    ...events(['response.output_text.delta'], { ...ofPart, ...delta, logprobs: Type.Array(LogprobAnswer) }),
    ...events(['response.output_text.done'], { ...ofPart, text, logprobs: Type.Array(LogprobAnswer) }),
    ...events(['response.output_text.annotation.added'], {
      ...ofPart,
      annotation_index: count,
      annotation: AnnotationAnswer,
    }),
    ...events(['response.refusal.delta'], { ...ofPart, ...delta }),
    ...events(['response.refusal.done'], { ...ofPart, refusal: text }),
    ...events(['response.reasoning_text.delta'], { ...ofPart, ...delta }),
    ...events(['response.reasoning_text.done'], { ...ofPart, text }),
    ...events(['response.reasoning_summary_part.added', 'response.reasoning_summary_part.done'], {
      ...ofSummary,
      part: SummaryTextAnswer,
    }),
    ...events(['response.reasoning_summary_text.delta'], { ...ofSummary, ...delta }),
    ...events(['response.reasoning_summary_text.done'], { ...ofSummary, text }),
    ...events(['response.function_call_arguments.delta'], { ...ofItem, ...delta }),
    ...events(['response.function_call_arguments.done'], { ...ofItem, name: text, arguments: text }),
    ...events(['response.custom_tool_call_input.delta'], { ...ofItem, ...delta }),
    ...events(['response.custom_tool_call_input.done'], { ...ofItem, input: text }),
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
      ofItem,
    ),
    ...events(['response.code_interpreter_call_code.delta'], { ...ofItem, ...delta }),
    ...events(['response.code_interpreter_call_code.done'], { ...ofItem, code: text }),
    ...events(['response.image_generation_call.partial_image'], {
      ...ofItem,
      partial_image_b64: text,
      partial_image_index: count,
      // As a provider tells them, where it does.
      size: Type.Optional(text),
      quality: Type.Optional(text),
      background: Type.Optional(text),
      output_format: Type.Optional(text),
    }),
    ...events(['response.apply_patch_call_operation_diff.delta'], { ...ofItem, ...delta }),
    ...events(['response.apply_patch_call_operation_diff.done'], { ...ofItem, diff: text }),
    ...events(['response.fusion_call.panel.added'], ofModel),
    ...events(['response.fusion_call.panel.delta', 'response.fusion_call.panel.reasoning.delta'], {
      ...ofModel,
      ...delta,
    }),
    ...events(['response.fusion_call.panel.completed'], { ...ofModel, content: text }),
    ...events(['response.fusion_call.panel.failed'], {
      ...ofModel,
      error: text,
      status_code: Type.Optional(Type.Integer()),
    }),
    ...events(['response.fusion_call.analysis.in_progress'], {
      ...ofItem,
      analyst_model: text,
      judge_model: Type.String({ description: 'Older name of analyst_model, same value' }),
    }),
    ...events(['response.fusion_call.analysis.completed'], { ...ofItem, analysis: Analysis }),
  },
  { noun: 'stream event' },
)
