/**
 * The tools that an MCP server lists: bounded, cleaned, and filtered by `allowed_tools`. All of it is untrusted text.
 * Pure, except for `listTools`.
 */
import { forbiddenKey } from '../../../protocol/json/body.ts'
import { McpFailure } from './failure.ts'

/** A tool in the form of an `mcp_list_tools` item. */
export interface McpTool {
  readonly name: string
  readonly description: string | null
  readonly input_schema: Readonly<Record<string, unknown>>
  readonly annotations: Readonly<Record<string, boolean>> | null
}

/** Names or properties that select tools of a server. */
export type ToolSelection =
  | readonly string[]
  | { readonly tool_names?: readonly string[] | null; readonly read_only?: boolean | null }

/** True for the selected tools. */
export type ToolFilter = (tool: McpTool) => boolean

/** Maximum tools of a server; more would fill the context of a model. */
const MAX_TOOLS = 256
const MAX_PAGES = 32
/** Maximum characters of all allowed tools of a server, as JSON. */
const MAX_LISTING_CHARS = 512 * 1024
const MAX_NAME_CHARS = 128
const MAX_DESCRIPTION_CHARS = 4_096
const MAX_SCHEMA_CHARS = 32 * 1024
const HINTS = ['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint'] as const

type ReadPage = (cursor: string | null) => Promise<Readonly<Record<string, unknown>>>

/**
 * All allowed tools of a server. Rejects with an McpFailure if the server's answer has no list of tools, or the list is
 * too long.
 */
export async function listTools(readPage: ReadPage, allows: ToolFilter): Promise<readonly McpTool[]> {
  const listing = new ToolListing(allows)
  let cursor: string | null = null
  for (let pageNumber = 0; pageNumber < MAX_PAGES; pageNumber++) {
    const { tools: entries, nextCursor } = await readPage(cursor)
    if (!Array.isArray(entries)) throw new McpFailure('The answer of the server has no list of tools')
    const fault = listing.add(entries)
    if (fault !== null) throw new McpFailure(`The server lists ${fault}`)
    if (typeof nextCursor !== 'string' || nextCursor === '') return listing.tools
    cursor = nextCursor
  }
  throw new McpFailure(`The server lists its tools on more than ${MAX_PAGES} pages`)
}

/** The allowed tools of a server, within limits that apply wherever its listing comes from. */
export class ToolListing {
  readonly tools: McpTool[] = []
  readonly #allows: ToolFilter
  readonly #names = new Set<string>()
  #chars = 0

  constructor(allows: ToolFilter) {
    this.#allows = allows
  }

  /**
   * If two tools have the same name, the first counts. Returns null, or the limit that was exceeded; then the listing
   * cannot be used.
   */
  add(entries: readonly unknown[]): string | null {
    for (const entry of entries) {
      const tool = mcpTool(entry)
      if (tool === null || this.#names.has(tool.name)) continue
      this.#names.add(tool.name)
      if (this.#names.size > MAX_TOOLS) return `more than ${MAX_TOOLS} tools`
      if (!this.#allows(tool)) continue
      this.#chars += JSON.stringify(tool).length
      if (this.#chars > MAX_LISTING_CHARS)
        return `tools with more than ${MAX_LISTING_CHARS} characters in total`
      this.tools.push(tool)
    }
    return null
  }
}

/** A listed tool without unknown fields; null if its name or its schema is missing, invalid or too long. */
export function mcpTool(entry: unknown): McpTool | null {
  if (typeof entry !== 'object' || entry === null) return null
  const { name, description, inputSchema, input_schema, annotations } = entry as Record<string, unknown>
  if (typeof name !== 'string' || name === '' || name.length > MAX_NAME_CHARS) return null
  const schema = inputSchema ?? input_schema
  if (!isSchema(schema)) return null
  return {
    name: name.toWellFormed(),
    description:
      typeof description === 'string'
        ? plainText(description).slice(0, MAX_DESCRIPTION_CHARS).toWellFormed()
        : null,
    input_schema: schema,
    annotations: hintsOf(annotations),
  }
}

function isSchema(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  // This also limits the depth, which JSON.stringify needs.
  if (forbiddenKey({ input_schema: value }) !== null) return false
  return JSON.stringify(value).length <= MAX_SCHEMA_CHARS
}

function hintsOf(annotations: unknown): McpTool['annotations'] {
  if (typeof annotations !== 'object' || annotations === null) return null
  const hints = annotations as Record<string, unknown>
  return Object.fromEntries(
    HINTS.flatMap(hint => (typeof hints[hint] === 'boolean' ? [[hint, hints[hint]] as const] : [])),
  )
}

/** The text without invisible characters, which can hide text from readers. */
function plainText(text: string): string {
  return text.replace(/[\p{Cf}\p{Co}\p{Cn}]|(?![\n\t])\p{Cc}/gu, '')
}

/** The filter of `allowed_tools`, or of one side of `require_approval`: by name, and by its read-only hint. */
export function toolFilter(selection: ToolSelection): ToolFilter {
  const { tool_names = null, read_only = null } = isNames(selection) ? { tool_names: selection } : selection
  const names = tool_names === null ? null : new Set(tool_names)
  return ({ name, annotations }) =>
    names?.has(name) !== false &&
    (read_only === null || (annotations?.['readOnlyHint'] === true) === read_only)
}

function isNames(selection: ToolSelection): selection is readonly string[] {
  return Array.isArray(selection)
}
