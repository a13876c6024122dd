/**
 * The MCP servers in a request: validates their entries, and builds the headers and settings sent to each. Pure.
 */
import { isIP } from 'node:net'
import { refuseField } from '../../../base/errors.ts'
import type { RequestedTool, ToolEntry } from '../../../exchange/server-tool.ts'
import { RESERVED_HEADERS } from '../../../providers/upstream/client/request-head.ts'
import { checkUrl, type LinkRules, PageError } from '../../../providers/upstream/pages/fetch-page.ts'
import { isPublicAddress } from '../../../providers/upstream/pages/public-addresses.ts'
import { approvalFilter, type RequireApproval } from './approval.ts'
import type { McpServer } from './connection.ts'
import { type ToolFilter, type ToolSelection, toolFilter } from './listing.ts'

/** A checked entry of type `mcp`. */
export interface NamedServer {
  readonly tool: RequestedTool
  readonly path: string
  readonly label: string
  /** Null for a connector of the provider. */
  readonly server: McpServer | null
  readonly allows: ToolFilter
  /** True for tools whose calls need the caller's approval. */
  readonly asksFirst: ToolFilter
  /** False if `require_approval` is `never`. */
  readonly mayAsk: boolean
  /** The caller's description of the server. */
  readonly description: string | null
}

/** Maximum MCP servers per request. Each has a connection. */
const MAX_SERVERS = 16
const MAX_LABEL_CHARS = 128
const MAX_DESCRIPTION_CHARS = 1_024
const MAX_HEADERS = 32
const MAX_HEADER_CHARS = 16 * 1024
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/
/** Visible ASCII and Latin-1 characters, and blanks. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
/** Headers that the connection or the protocol sets. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  ...RESERVED_HEADERS,
  'accept',
  'content-type',
  'last-event-id',
  'mcp-protocol-version',
  'mcp-session-id',
])
/** Shorter values of headers are ordinary words, not secrets. */
const MIN_SECRET_CHARS = 8

/** @throws GatewayError that names the field */
export function namedServers(entries: readonly ToolEntry[], rules: LinkRules): readonly NamedServer[] {
  const excess = entries[MAX_SERVERS]
  if (excess !== undefined)
    throw refuseField(excess.path, `is one MCP server too many: a request may have at most ${MAX_SERVERS}`)
  const labels = new Set<string>()
  return entries.map(({ tool, path }) => {
    const label = String(tool['server_label'])
    if (label.length > MAX_LABEL_CHARS)
      throw refuseField(`${path}.server_label`, `must have at most ${MAX_LABEL_CHARS} characters`)
    if (labels.has(label))
      throw refuseField(
        `${path}.server_label`,
        'is the label of another entry of tools; each server needs its own',
      )
    labels.add(label)
    const description = tool['server_description']
    const allowed = tool['allowed_tools'] as ToolSelection | null | undefined
    const approval = (tool['require_approval'] ?? null) as RequireApproval | null
    return {
      tool,
      path,
      label,
      server: typeof tool['server_url'] === 'string' ? serverOf(tool, tool['server_url'], path, rules) : null,
      allows: allowed == null ? () => true : toolFilter(allowed),
      asksFirst: approvalFilter(approval),
      mayAsk: approval !== 'never',
      description:
        typeof description === 'string' ? description.slice(0, MAX_DESCRIPTION_CHARS).toWellFormed() : null,
    }
  })
}

function serverOf(tool: RequestedTool, address: string, path: string, rules: LinkRules): McpServer {
  const url = checkedUrl(address, `${path}.server_url`, rules)
  const headers = checkedHeaders(
    (tool['headers'] ?? {}) as Readonly<Record<string, string>>,
    `${path}.headers`,
  )
  const { authorization } = tool
  if (typeof authorization === 'string' && authorization !== '') {
    if (!HEADER_VALUE.test(authorization) || authorization.length > MAX_HEADER_CHARS)
      throw refuseField(`${path}.authorization`, 'must be a token without control characters')
    // An access token as in the public interface, or a full header value.
    headers['authorization'] = authorization.includes(' ') ? authorization : `Bearer ${authorization}`
  }
  const values = Object.values(headers).flatMap(value => [value, ...value.split(' ')])
  return { url, headers, secrets: [...new Set(values)].filter(({ length }) => length >= MIN_SECRET_CHARS) }
}

function checkedUrl(address: string, path: string, rules: LinkRules): URL {
  try {
    const url = checkUrl(rules, address)
    const host = url.hostname.replace(/^\[|\]$/g, '')
    const isPublic = rules.isPublic ?? isPublicAddress
    if (!rules.allowPrivate && isIP(host) !== 0 && !isPublic(host))
      throw new PageError('refused', 'the link does not lead to a public address')
    return url
  } catch (thrown) {
    if (thrown instanceof PageError) throw refuseField(path, thrown.message.replace(/^the link /, ''))
    throw thrown
  }
}

/** Keyed by names in lower case. */
function checkedHeaders(
  entryHeaders: Readonly<Record<string, string>>,
  path: string,
): Record<string, string> {
  const headers: Record<string, string> = {}
  let chars = 0
  const entries = Object.entries(entryHeaders)
  if (entries.length > MAX_HEADERS) throw refuseField(path, `must have at most ${MAX_HEADERS} fields`)
  for (const [name, value] of entries) {
    const lower = name.toLowerCase()
    if (!HEADER_NAME.test(name)) throw refuseField(path, 'is not a valid header name')
    if (OWN_HEADERS.has(lower))
      throw refuseField(`${path}.${lower}`, 'cannot be set: the gateway sets this header itself')
    if (!HEADER_VALUE.test(value)) throw refuseField(`${path}.${lower}`, 'must have no control characters')
    chars += name.length + value.length
    if (chars > MAX_HEADER_CHARS)
      throw refuseField(path, `must have at most ${MAX_HEADER_CHARS} characters in total`)
    headers[lower] = value
  }
  return headers
}
