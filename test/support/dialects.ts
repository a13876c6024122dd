/** The parser and the dialects of a gateway that offers every plugin and server tool. */

import { createChatCompletions } from '../../src/dialects/chat-completions.ts'
import { createGemini } from '../../src/dialects/gemini.ts'
import { createMessages } from '../../src/dialects/messages.ts'
import { createResponsesDialect } from '../../src/dialects/responses.ts'
import type { PluginDeps } from '../../src/features/plugins/plugin-deps.ts'
import { createPlugins } from '../../src/features/plugins/table.ts'
import { createTools, type ToolDeps } from '../../src/features/tools/table.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import { createRequestParser, type Offering } from '../../src/protocol/json/request-parser.ts'

const config = loadConfig([], {})

/** The rows of both tables. When they are created, plugins and tools read the configuration alone. */
export const OFFERED: Offering = {
  plugins: new Set(createPlugins({ config } as Partial<PluginDeps> as PluginDeps).map(({ id }) => id)),
  tools: new Set(createTools({ config } as Partial<ToolDeps> as ToolDeps).keys()),
  routers: new Set(['fusion', 'fusion-flash']),
  defaultModel: null,
}

export const parseResponsesRequest = createRequestParser(OFFERED)
export const responsesDialect = createResponsesDialect(OFFERED)
export const chatCompletions = createChatCompletions(OFFERED)
export const messages = createMessages(OFFERED)
export const gemini = createGemini(OFFERED)
