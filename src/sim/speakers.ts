/** One speaker for each format. */
import type { SimFormat } from './ask.ts'
import { chatSpeaker } from './speak-chat.ts'
import { geminiSpeaker } from './speak-gemini.ts'
import { messagesSpeaker } from './speak-messages.ts'
import { responsesSpeaker } from './speak-responses.ts'
import type { Speaker } from './speaker.ts'

export const SPEAKERS: Readonly<Record<SimFormat, Speaker>> = {
  'openai-responses': responsesSpeaker,
  'openai-chat': chatSpeaker,
  'anthropic-messages': messagesSpeaker,
  'google-gemini': geminiSpeaker,
}
