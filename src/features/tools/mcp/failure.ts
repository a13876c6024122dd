/** MCP errors, in the three kinds of an mcp_call item, or as text. Pure. */
import { scrub } from '../../../base/scrub.ts'
import { PageError } from '../../../providers/upstream/pages/fetch-page.ts'
import type { McpClient } from './library.ts'

/** The error of an item `mcp_call` or `mcp_list_tools`. */
export type McpItemError =
  | string
  | { readonly type: 'mcp_protocol_error' | 'http_error'; readonly code: number; readonly message: string }
  | { readonly type: 'mcp_tool_execution_error'; readonly content: readonly unknown[] }

/** A failure of a server. Its message may be shown to the caller and the model. */
export class McpFailure extends Error {
  override readonly name = 'McpFailure'
  readonly item: McpItemError

  constructor(message: string, item: McpItemError = message) {
    super(message)
    this.item = item
  }
}

/** Maximum length of a server's own text in an error. */
const MAX_MESSAGE_CHARS = 500

/** Converts what the client has thrown. `mark` is the data of an error that stands for a missing answer. */
export function failureOf(
  client: McpClient,
  thrown: unknown,
  secrets: readonly string[],
  mark: string,
): McpFailure {
  if (thrown instanceof McpFailure) return thrown
  const { ProtocolError, SdkError, SdkErrorCode, SdkHttpError } = client
  const cause = thrown instanceof SdkError ? (thrown.cause ?? thrown) : thrown
  if (cause instanceof PageError) return new McpFailure(serverSentence(cause.message))
  const scrubText = (text: string): string => scrub(text.slice(0, MAX_MESSAGE_CHARS), secrets)
  if (thrown instanceof ProtocolError) {
    const message = scrubText(thrown.message)
    if (thrown.data === mark) return new McpFailure(serverSentence(message))
    return new McpFailure(`The server refused the request: ${message}`, {
      type: 'mcp_protocol_error',
      code: thrown.code,
      message,
    })
  }
  if (thrown instanceof SdkHttpError) {
    const { status: code, text } = thrown.data
    const message = scrubText(
      typeof text === 'string' && text !== ''
        ? text
        : thrown.message.replace(/^Error POSTing to endpoint: /, ''),
    )
    return new McpFailure(`The server answered with HTTP ${code}: ${message}`, {
      type: 'http_error',
      code,
      message,
    })
  }
  if (thrown instanceof SdkError) {
    if (thrown.code === SdkErrorCode.ClientHttpUnexpectedContent)
      return new McpFailure('The server answered with neither JSON nor an event stream')
    if (thrown.code === SdkErrorCode.UnsupportedResultType)
      return new McpFailure('The server asks the user for more input, which the gateway cannot provide')
  }
  return new McpFailure('The server answered with something other than MCP messages')
}

/** A message about a link, as a sentence about the server. */
function serverSentence(message: string): string {
  const text = message.replace(/^the link /, 'the server ')
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`
}
