/**
 * All 49 event types of a POST /responses stream, and their names. Types only, because the gateway itself creates these
 * values. The assembler implements the rules of their order.
 */

import type { OutputItem } from './items.ts'
import type { Annotation, Logprob, OutputPart, SummaryTextPart } from './parts.ts'
import type { DebugFacts, ResponseResource } from './response.ts'

/** Names of all events, sorted. */
export const STREAM_EVENT_TYPES = [
  'error',
  'response.apply_patch_call_operation_diff.delta',
  'response.apply_patch_call_operation_diff.done',
  'response.code_interpreter_call.completed',
  'response.code_interpreter_call.in_progress',
  'response.code_interpreter_call.interpreting',
  'response.code_interpreter_call_code.delta',
  'response.code_interpreter_call_code.done',
  'response.completed',
  'response.content_part.added',
  'response.content_part.done',
  'response.created',
  'response.custom_tool_call_input.delta',
  'response.custom_tool_call_input.done',
  'response.debug',
  'response.failed',
  'response.function_call_arguments.delta',
  'response.function_call_arguments.done',
  'response.fusion_call.analysis.completed',
  'response.fusion_call.analysis.in_progress',
  'response.fusion_call.completed',
  'response.fusion_call.in_progress',
  'response.fusion_call.panel.added',
  'response.fusion_call.panel.completed',
  'response.fusion_call.panel.delta',
  'response.fusion_call.panel.failed',
  'response.fusion_call.panel.reasoning.delta',
  'response.image_generation_call.completed',
  'response.image_generation_call.generating',
  'response.image_generation_call.in_progress',
  'response.image_generation_call.partial_image',
  'response.in_progress',
  'response.incomplete',
  'response.output_item.added',
  'response.output_item.done',
  'response.output_text.annotation.added',
  'response.output_text.delta',
  'response.output_text.done',
  'response.reasoning_summary_part.added',
  'response.reasoning_summary_part.done',
  'response.reasoning_summary_text.delta',
  'response.reasoning_summary_text.done',
  'response.reasoning_text.delta',
  'response.reasoning_text.done',
  'response.refusal.delta',
  'response.refusal.done',
  'response.web_search_call.completed',
  'response.web_search_call.in_progress',
  'response.web_search_call.searching',
] as const satisfies readonly StreamEvent['type'][]

interface Numbered {
  /** From 0, +1 for each event of the stream. */
  sequence_number: number
}

interface OfItem extends Numbered {
  item_id: string
  output_index: number
}

interface OfPart extends OfItem {
  content_index: number
}

interface OfSummary extends OfItem {
  summary_index: number
}

/** Events that carry the whole response; the last three are terminal. */
interface ResponseStateEvent extends Numbered {
  type:
    | 'response.created'
    | 'response.in_progress'
    | 'response.completed'
    | 'response.incomplete'
    | 'response.failed'
  response: ResponseResource
}

/** Flat, as the public stream has it. */
interface ErrorEvent extends Numbered {
  type: 'error'
  code: string | null
  message: string
  param: string | null
}

/** Bodies for providers and times of attempts come before everything else; later times before the last event. */
interface DebugEvent extends Numbered {
  type: 'response.debug'
  debug: DebugFacts
}

interface OutputItemEvent extends Numbered {
  type: 'response.output_item.added' | 'response.output_item.done'
  output_index: number
  item: OutputItem
}

interface ContentPartEvent extends OfPart {
  type: 'response.content_part.added' | 'response.content_part.done'
  part: OutputPart
}

export interface OutputTextDeltaEvent extends OfPart {
  type: 'response.output_text.delta'
  delta: string
  logprobs: Logprob[]
  /**
   * The provider began another block of text here. Only for dialects that show it; the responses dialect never does.
   */
  cut?: true
}

interface OutputTextDoneEvent extends OfPart {
  type: 'response.output_text.done'
  text: string
  logprobs: Logprob[]
}

export interface AnnotationAddedEvent extends OfPart {
  type: 'response.output_text.annotation.added'
  annotation_index: number
  annotation: Annotation
}

interface RefusalDeltaEvent extends OfPart {
  type: 'response.refusal.delta'
  delta: string
}

interface RefusalDoneEvent extends OfPart {
  type: 'response.refusal.done'
  refusal: string
}

interface ReasoningTextDeltaEvent extends OfPart {
  type: 'response.reasoning_text.delta'
  delta: string
}

interface ReasoningTextDoneEvent extends OfPart {
  type: 'response.reasoning_text.done'
  text: string
}

interface SummaryPartEvent extends OfSummary {
  type: 'response.reasoning_summary_part.added' | 'response.reasoning_summary_part.done'
  part: SummaryTextPart
}

interface SummaryTextDeltaEvent extends OfSummary {
  type: 'response.reasoning_summary_text.delta'
  delta: string
}

interface SummaryTextDoneEvent extends OfSummary {
  type: 'response.reasoning_summary_text.done'
  text: string
}

interface FunctionArgumentsDeltaEvent extends OfItem {
  type: 'response.function_call_arguments.delta'
  delta: string
}

interface FunctionArgumentsDoneEvent extends OfItem {
  type: 'response.function_call_arguments.done'
  name: string
  arguments: string
}

interface CustomInputDeltaEvent extends OfItem {
  type: 'response.custom_tool_call_input.delta'
  delta: string
}

interface CustomInputDoneEvent extends OfItem {
  type: 'response.custom_tool_call_input.done'
  input: string
}

/** A progress event without fields of its own. */
interface HostedProgressEvent extends OfItem {
  type:
    | 'response.web_search_call.in_progress'
    | 'response.web_search_call.searching'
    | 'response.web_search_call.completed'
    | 'response.code_interpreter_call.in_progress'
    | 'response.code_interpreter_call.interpreting'
    | 'response.code_interpreter_call.completed'
    | 'response.image_generation_call.in_progress'
    | 'response.image_generation_call.generating'
    | 'response.image_generation_call.completed'
    | 'response.fusion_call.in_progress'
    | 'response.fusion_call.completed'
}

interface CodeDeltaEvent extends OfItem {
  type: 'response.code_interpreter_call_code.delta'
  delta: string
}

interface CodeDoneEvent extends OfItem {
  type: 'response.code_interpreter_call_code.done'
  code: string
}

interface PartialImageEvent extends OfItem {
  type: 'response.image_generation_call.partial_image'
  partial_image_b64: string
  partial_image_index: number
}

interface PatchDiffDeltaEvent extends OfItem {
  type: 'response.apply_patch_call_operation_diff.delta'
  delta: string
}

interface PatchDiffDoneEvent extends OfItem {
  type: 'response.apply_patch_call_operation_diff.done'
  diff: string
}

interface PanelAddedEvent extends OfItem {
  type: 'response.fusion_call.panel.added'
  model: string
}

interface PanelDeltaEvent extends OfItem {
  type: 'response.fusion_call.panel.delta' | 'response.fusion_call.panel.reasoning.delta'
  model: string
  delta: string
}

interface PanelCompletedEvent extends OfItem {
  type: 'response.fusion_call.panel.completed'
  model: string
  content: string
}

interface PanelFailedEvent extends OfItem {
  type: 'response.fusion_call.panel.failed'
  model: string
  error: string
  status_code?: number
}

interface AnalysisStartedEvent extends OfItem {
  type: 'response.fusion_call.analysis.in_progress'
  analyst_model: string
  /** Older name of `analyst_model`, same value. */
  judge_model: string
}

/** Findings of the fusion analyst in the panel's answers. */
export interface FusionAnalysis {
  consensus: string[]
  contradictions: { topic: string; stances: { model: string; stance: string }[] }[]
  partial_coverage: { models: string[]; point: string }[]
  unique_insights: { model: string; insight: string }[]
  blind_spots: string[]
}

interface AnalysisCompletedEvent extends OfItem {
  type: 'response.fusion_call.analysis.completed'
  analysis: FusionAnalysis
}

/** One event of the stream. Discriminated by `type`. */
export type StreamEvent =
  | ResponseStateEvent
  | ErrorEvent
  | DebugEvent
  | OutputItemEvent
  | ContentPartEvent
  | OutputTextDeltaEvent
  | OutputTextDoneEvent
  | AnnotationAddedEvent
  | RefusalDeltaEvent
  | RefusalDoneEvent
  | ReasoningTextDeltaEvent
  | ReasoningTextDoneEvent
  | SummaryPartEvent
  | SummaryTextDeltaEvent
  | SummaryTextDoneEvent
  | FunctionArgumentsDeltaEvent
  | FunctionArgumentsDoneEvent
  | CustomInputDeltaEvent
  | CustomInputDoneEvent
  | HostedProgressEvent
  | CodeDeltaEvent
  | CodeDoneEvent
  | PartialImageEvent
  | PatchDiffDeltaEvent
  | PatchDiffDoneEvent
  | PanelAddedEvent
  | PanelDeltaEvent
  | PanelCompletedEvent
  | PanelFailedEvent
  | AnalysisStartedEvent
  | AnalysisCompletedEvent
