/** The batch services, by request format. Pure. */
import type { BatchFormat, FormatName } from '../../protocol/provider.ts'
import { anthropic } from './anthropic.ts'
import { gemini } from './gemini.ts'
import { openai } from './openai.ts'
import type { BatchService } from './service.ts'

export const BATCH_SERVICES: Readonly<Record<BatchFormat, BatchService>> = {
  'openai-responses': openai,
  'openai-chat': openai,
  'anthropic-messages': anthropic,
  'google-gemini': gemini,
}

/** Null: there is no batch service for the format. */
export function batchServiceOf(format: FormatName | string): BatchService | null {
  return Object.hasOwn(BATCH_SERVICES, format) ? BATCH_SERVICES[format as BatchFormat] : null
}
