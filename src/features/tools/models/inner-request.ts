/**
 * Requests of tools that call models. Their settings are checked when the tool is opened, like those of a client's
 * request, so that errors contain the path of the client's entry. Pure.
 */
import { GatewayError } from '../../../base/errors.ts'
import type { Exchange } from '../../../exchange/exchange.ts'
import type { ServerTool } from '../../../exchange/server-tool.ts'
import { serverToolName } from '../../../protocol/gateway-tools.ts'
import { createRequestParser } from '../../../protocol/json/request-parser.ts'
import type { ResponsesRequest } from '../../../protocol/request.ts'
import { WEB_SEARCH_TYPES } from '../../../protocol/tools.ts'

/** Settings that all tools with model calls share; null means absent. */
export interface InnerSettings {
  readonly model?: string | null
  readonly tools?: readonly { readonly type: string }[] | null
  readonly max_tool_calls?: number | null
  readonly max_completion_tokens?: number | null
  readonly reasoning?: Readonly<Record<string, unknown>> | null
  readonly temperature?: number | null
  readonly cache_control?: Readonly<Record<string, unknown>> | null
}

export type InnerTerms = Omit<ResponsesRequest, 'input'>

/**
 * Turns the settings of a tool into those of a request.
 * @throws GatewayError `invalid_request` that begins with `path`
 */
export type InnerTermsOf = (settings: InnerSettings, path: string) => InnerTerms

/** Tools that providers run themselves, so that nobody else has to answer their calls. */
const RUN_BY_PROVIDERS: ReadonlySet<string> = new Set([
  ...WEB_SEARCH_TYPES,
  'code_interpreter',
  'file_search',
  'image_generation',
  'mcp',
])

/** `tools`: all tools of the gateway, once they are created. */
export function createInnerTerms(tools: ReadonlyMap<string, ServerTool>): InnerTermsOf {
  let parse: ReturnType<typeof createRequestParser> | null = null
  return (settings, path) => {
    // The parser is created here, because the map has all tools only after their creation.
    parse ??= createRequestParser({
      plugins: new Set(),
      tools: toolsOfInnerModels(tools),
      routers: new Set(),
    })
    const { max_completion_tokens, max_tool_calls, ...sameFields } = settings
    const terms = Object.fromEntries(
      Object.entries({ ...sameFields, max_output_tokens: max_completion_tokens, max_tool_calls }).filter(
        ([, value]) => value != null,
      ),
    )
    for (const [index, { type }] of (settings.tools ?? []).entries()) {
      const reason = refusalOf(type, tools)
      if (reason !== null)
        throw new GatewayError('invalid_request', `${path}.tools[${index}].type: ${reason}`)
    }
    try {
      parse({ model: 'any/model', ...terms, input: '' })
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) throw thrown
      const message = thrown.message.replace(/^max_output_tokens/, 'max_completion_tokens')
      throw new GatewayError(thrown.code, `${path}.${message}`)
    }
    return terms as InnerTerms
  }
}

/** The tools for models that tools call: those that call models themselves are not among them. */
function toolsOfInnerModels(tools: ReadonlyMap<string, ServerTool>): ReadonlySet<string> {
  return new Set([...tools].flatMap(([name, { asksModels }]) => (asksModels === true ? [] : [name])))
}

function refusalOf(type: string, tools: ReadonlyMap<string, ServerTool>): string | null {
  const name = serverToolName(type)
  if (name !== null) {
    return tools.get(name)?.asksModels === true
      ? `the ${name} server tool calls models itself, so a model that is called by a tool cannot have it`
      : null
  }
  const isServed = [...tools.values()].some(({ native }) => native?.includes(type) === true)
  return isServed || RUN_BY_PROVIDERS.has(type)
    ? null
    : 'must be a server tool: nothing could run a call of any other tool'
}

/**
 * True if nothing may reach the client before alignment has judged it: then the texts of other models are only for the
 * outer model, whose message is judged.
 */
export function isWithheld({ request }: Exchange): boolean {
  return request.plugins?.some(plugin => plugin.id === 'alignment' && plugin.mode !== 'audit') === true
}

/** Catalogue id of the model that answers the caller. */
export function outerModel({ attempts, prompt }: Exchange): string {
  return attempts.at(-1)?.endpoint.modelId ?? prompt.model ?? ''
}
