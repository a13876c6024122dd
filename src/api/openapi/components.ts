/** Names of the schemas that the OpenAPI document lists as components, for generated clients. Pure. */

import type { TSchema } from '@sinclair/typebox'
import { ChatBody, ChatTool, ChatToolChoice } from '../../dialects/chat-completions/body-schema.ts'
import { ChatMessage } from '../../dialects/chat-completions/message-schema.ts'
import { MessagesBody, MessagesToolChoice } from '../../dialects/messages/body-schema.ts'
import { MessageInput } from '../../dialects/messages/message-schema.ts'
import { PublicEvent } from '../../protocol/events.ts'
import {
  CustomToolCallItem,
  FunctionCallItem,
  HostedItem,
  InputItem,
  MessageItem,
  OutputItem,
  ReasoningItem,
} from '../../protocol/items.ts'
import { CREDENTIAL, CredentialCreation, CredentialUpdate } from '../../protocol/management/byok.ts'
import { CAPTURE } from '../../protocol/management/captures.ts'
import { GUARDRAIL, GuardrailCreation, GuardrailUpdate } from '../../protocol/management/guardrails.ts'
import { KEY, KeyCreation, KeyRotation, KeyUpdate } from '../../protocol/management/keys.ts'
import { END_USER, WORKSPACE } from '../../protocol/management/management.ts'
import { PauseAnswer, PauseCreation } from '../../protocol/management/pauses.ts'
import { RolloutAnswer } from '../../protocol/management/rollouts.ts'
import {
  AgentPart,
  Annotation,
  AssistantPart,
  CacheControl,
  InputAnnotation,
  InputAudio,
  InputFile,
  InputImage,
  InputPart,
  InputText,
  InputVideo,
  Logprob,
  OutputPart,
  PromptVariable,
  ReplayedOutputText,
  ReplayedRefusal,
  ToolOutput,
} from '../../protocol/parts.ts'
import { PluginSettings } from '../../protocol/plugins.ts'
import {
  ProviderPreferences,
  ReasoningConfig,
  ResponsesRequest,
  StopCondition,
  StoredPrompt,
  TextConfig,
  TextFormat,
} from '../../protocol/request.ts'
import {
  AlignmentReport,
  GatewayMetadata,
  PublicResponse,
  ResponseUsage,
  ServerToolUse,
} from '../../protocol/response.ts'
import { CustomTool, FunctionTool, Tool, ToolChoice } from '../../protocol/tools.ts'
import { ActivityDay, ActivitySum, AuditEntryAnswer, CreditEntryAnswer } from './account.ts'
import { BatchAnswer, BatchBody, BatchResult } from './batches.ts'
import { EndpointAnswer, ModelAnswer, ProviderAnswer } from './catalogue.ts'
import {
  ChatAnswerMessage,
  ChatChunk,
  ChatCompletion,
  ChatCosts,
  ChatErrorFields,
  ChatUsage,
  EmbeddingsList,
  ReasoningEntry,
} from './chat.ts'
import { ENVELOPES } from './failures.ts'
import { FileAnswer } from './files.ts'
import { Generation } from './generations.ts'
import { CountedMessage, EmbeddingsInput } from './inference.ts'
import { KeyDetail, OwnKey } from './keys.ts'
import { MessageAnswer, MessageBlock, MessageEvent, MessageFailure, MessageUsage } from './message.ts'
import { MessageBatchAnswer, MessageBatchBody } from './message-batches.ts'
import { GuardrailBudget, KeyAssignment, MemberAssignment } from './rules.ts'

/**
 * Names that TypeScript's own libraries use (`Response`, `File`, `Credential`) are avoided, because generated clients
 * would mix them up.
 */
export const NAMED_SCHEMAS: readonly (readonly [name: string, schema: TSchema])[] = Object.entries({
  // Parts of requests
  InputText,
  InputImage,
  InputFile,
  InputAudio,
  InputVideo,
  InputPart,
  ReplayedOutputText,
  ReplayedRefusal,
  AssistantPart,
  AgentPart,
  InputAnnotation,
  ToolOutput,
  CacheControl,
  PromptVariable,
  FunctionTool,
  CustomTool,
  Tool,
  ToolChoice,
  InputItem,
  PluginSettings,
  ProviderPreferences,
  ReasoningConfig,
  StopCondition,
  StoredPrompt,
  TextFormat,
  TextConfig,
  ResponsesRequest,
  ChatMessage,
  ChatTool,
  ChatToolChoice,
  ChatRequest: ChatBody,
  MessageInput,
  MessagesToolChoice,
  MessagesRequest: MessagesBody,
  CountTokensRequest: CountedMessage,
  EmbeddingsRequest: EmbeddingsInput,
  BatchRequest: BatchBody,
  MessageBatchRequest: MessageBatchBody,
  KeyCreation,
  KeyUpdate,
  KeyRotation,
  WorkspaceCreation: WORKSPACE.creation,
  WorkspaceUpdate: WORKSPACE.update,
  CredentialCreation,
  CredentialUpdate,
  GuardrailCreation,
  GuardrailUpdate,
  CaptureCreation: CAPTURE.creation,
  // Answers
  OutputMessage: MessageItem,
  OutputReasoning: ReasoningItem,
  OutputFunctionCall: FunctionCallItem,
  OutputCustomCall: CustomToolCallItem,
  OutputHostedItem: HostedItem,
  OutputItem,
  OutputPart,
  Annotation,
  Logprob,
  Usage: ResponseUsage,
  ServerToolUse,
  Alignment: AlignmentReport,
  GatewayMetadata,
  ResponseResource: PublicResponse,
  ResponseEvent: PublicEvent,
  ChatCosts,
  ChatUsage,
  ChatReasoning: ReasoningEntry,
  ChatAnswerMessage,
  ChatCompletion,
  ChatError: ChatErrorFields,
  ChatChunk,
  EmbeddingsList,
  MessageUsage,
  MessageBlock,
  Message: MessageAnswer,
  MessageFailure,
  MessageEvent,
  Failure: ENVELOPES.Gateway,
  ChatFailure: ENVELOPES.Chat,
  BatchResult,
  Batch: BatchAnswer,
  MessageBatch: MessageBatchAnswer,
  StoredFile: FileAnswer,
  Generation,
  Model: ModelAnswer,
  Endpoint: EndpointAnswer,
  Provider: ProviderAnswer,
  ApiKey: KEY.answer,
  ApiKeyDetail: KeyDetail,
  CurrentKey: OwnKey,
  Workspace: WORKSPACE.answer,
  CreditEntry: CreditEntryAnswer,
  ActivityDay,
  ActivitySum,
  AuditEntry: AuditEntryAnswer,
  EndUser: END_USER.answer,
  Capture: CAPTURE.answer,
  Rollout: RolloutAnswer,
  Pause: PauseAnswer,
  PauseCreation,
  ProviderCredential: CREDENTIAL.answer,
  Guardrail: GUARDRAIL.answer,
  GuardrailBudget,
  KeyAssignment,
  MemberAssignment,
})
