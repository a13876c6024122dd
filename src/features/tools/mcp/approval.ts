/**
 * Approvals of MCP calls: the tools that need one, and the earlier approval requests in a replayed conversation. Pure.
 */
import { type McpTool, type ToolFilter, type ToolSelection, toolFilter } from './listing.ts'

/** `require_approval` of a request. */
export type RequireApproval =
  | 'always'
  | 'never'
  | { readonly always?: ToolSelection | null; readonly never?: ToolSelection | null }

/**
 * True for tools whose calls need the caller's approval. The default is `always`. With filters: tools in `always` need
 * an approval, tools only in `never` do not, and others need one unless only `always` is set.
 */
export function approvalFilter(rule: RequireApproval | null): ToolFilter {
  if (rule === null || rule === 'always') return () => true
  if (rule === 'never') return () => false
  const always = rule.always == null ? null : toolFilter(rule.always)
  const neverFilter = rule.never == null ? null : toolFilter(rule.never)
  return (tool: McpTool) => {
    if (always?.(tool) === true) return true
    return neverFilter === null ? always === null : !neverFilter(tool)
  }
}

/** A call that the caller has approved or refused, without a result so far. */
export interface DecidedCall {
  /** The id of the approval request. */
  readonly id: string
  readonly serverLabel: string
  /** The server's own name of the tool. */
  readonly name: string
  /** JSON, as written by the model. */
  readonly arguments: string
  readonly approve: boolean
  readonly reason: string | null
}

interface Item {
  readonly type?: unknown
  readonly role?: unknown
  readonly [field: string]: unknown
}

/** Items that may follow an approval while it waits for its call; a reply of the model ends the wait. */
const WAITING_ITEMS: ReadonlySet<unknown> = new Set([
  'mcp_approval_request',
  'mcp_approval_response',
  'function_call_output',
  'custom_tool_call_output',
])

/**
 * The calls that the end of the conversation decides about, in order. An approval no longer counts if a reply of the
 * model or a call that names it follows.
 */
export function decidedCalls(input: readonly Item[]): readonly DecidedCall[] {
  const requests = new Map<unknown, Item>()
  const answeredIds = new Set<unknown>()
  for (const item of input) {
    if (item.type === 'mcp_approval_request') requests.set(item['id'], item)
    else if (item.type === 'mcp_call' && typeof item['approval_request_id'] === 'string')
      answeredIds.add(item['approval_request_id'])
  }
  const decisions: DecidedCall[] = []
  for (const item of input.slice(lastReply(input) + 1)) {
    const id = item['approval_request_id']
    if (item.type !== 'mcp_approval_response' || typeof id !== 'string' || answeredIds.has(id)) continue
    const request = requests.get(id)
    if (request === undefined) continue
    // A second response to the same request changes nothing.
    answeredIds.add(id)
    decisions.push({
      id,
      serverLabel: String(request['server_label']),
      name: String(request['name']),
      arguments: String(request['arguments']),
      approve: item['approve'] === true,
      reason: typeof item['reason'] === 'string' ? item['reason'] : null,
    })
  }
  return decisions
}

/** The index of the last item that ends the wait of approvals; -1 if there is none. */
function lastReply(input: readonly Item[]): number {
  return input.findLastIndex(({ type, role }) => {
    if (WAITING_ITEMS.has(type)) return false
    return type === undefined || type === 'message' ? role === 'assistant' : true
  })
}
