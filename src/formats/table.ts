/** The wire formats by name. The compiler requires a line here for each `FormatName`. */
import type { FormatName } from '../protocol/provider.ts'
import { anthropicMessages } from './anthropic-messages.ts'
import { bedrockConverse } from './bedrock-converse.ts'
import type { Format } from './format.ts'
import { googleGemini } from './google-gemini.ts'
import { openaiChat } from './openai-chat.ts'
import { openaiResponses } from './openai-responses.ts'

export const FORMATS: Readonly<Record<FormatName, Format>> = {
  'openai-responses': openaiResponses,
  'openai-chat': openaiChat,
  'anthropic-messages': anthropicMessages,
  'google-gemini': googleGemini,
  'bedrock-converse': bedrockConverse,
}
