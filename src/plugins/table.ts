/**
 * All plugins, in the order in which they work on a request. A new one is a file and a row here. Plugins that refuse
 * come before those that cost; those that repair an answer come before those that check it.
 */
import { type AlignmentParts, createAlignment } from './alignment.ts'
import { type ContextCompressionParts, createContextCompression } from './context-compression.ts'
import { createFileParser, type FileParserParts } from './file-parser.ts'
import { createModeration, type ModerationParts } from './moderation.ts'
import type { AnyPlugin } from './plugin.ts'
import { createResponseHealing, type ResponseHealingParts } from './response-healing.ts'
import { createStructuredOutput, type StructuredOutputParts } from './structured-output.ts'

export type PluginParts = AlignmentParts &
  ModerationParts &
  FileParserParts &
  ContextCompressionParts &
  ResponseHealingParts &
  StructuredOutputParts

export function createPlugins(parts: PluginParts): readonly AnyPlugin[] {
  return [
    createModeration(parts),
    createFileParser(parts),
    createAlignment(parts),
    createContextCompression(parts),
    createResponseHealing(parts),
    createStructuredOutput(parts),
  ]
}
