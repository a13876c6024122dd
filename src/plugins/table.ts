/**
 * All plugins, in the order in which they work on a request. A new one is a file and a row here. Plugins that refuse
 * come before those that cost; those that repair an answer come before those that check it.
 */
import { type AlignmentDeps, createAlignment } from './alignment.ts'
import { type ContextCompressionDeps, createContextCompression } from './context-compression.ts'
import { createFileParser, type FileParserDeps } from './file-parser.ts'
import { createModeration, type ModerationDeps } from './moderation.ts'
import type { AnyPlugin } from './plugin.ts'
import { createResponseHealing, type ResponseHealingDeps } from './response-healing.ts'
import { createStructuredOutput, type StructuredOutputDeps } from './structured-output.ts'

export type PluginDeps = AlignmentDeps &
  ModerationDeps &
  FileParserDeps &
  ContextCompressionDeps &
  ResponseHealingDeps &
  StructuredOutputDeps

export function createPlugins(deps: PluginDeps): readonly AnyPlugin[] {
  return [
    createModeration(deps),
    createFileParser(deps),
    createAlignment(deps),
    createContextCompression(deps),
    createResponseHealing(deps),
    createStructuredOutput(deps),
  ]
}
