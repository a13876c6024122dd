/**
 * The file_search server tool: searches the workspace's files. It serves `gateway:file_search`, and the native tool if
 * the endpoint has none, or the request names no ids or ids of the gateway.
 */
import { refuseField } from '../../base/errors.ts'
import { isFileId } from '../../base/ids.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type {
  RequestedTool,
  ServerTool,
  ToolCall,
  ToolDeclaration,
  ToolDisplay,
  ToolEndpoint,
  ToolEntry,
  ToolOutcome,
} from '../../exchange/server-tool.ts'
import { objectSchema } from '../../protocol/json/object-schema.ts'
import { FILE_RESULTS_MAX } from '../../protocol/limits.ts'
import type { Tool } from '../../protocol/tools.ts'
import type { StorageSettings } from '../../storage/settings.ts'
import type { Files } from '../files/files.ts'
import { type AttributeFilter, attributeFilter } from '../tasks/attribute-filter.ts'
import type { GatewayTasks } from '../tasks/pool/pool.ts'
import type { ScoredPassage } from '../tasks/search-files.ts'
import { TaskError } from '../tasks/task.ts'
import { scopeOf } from './stored-texts.ts'

interface FileSearchDeps {
  readonly files: Pick<Files, 'find'>
  readonly tasks: Pick<GatewayTasks, 'run'>
  readonly config: { readonly storage: StorageSettings }
}

/** The id that stands for all files of the workspace. */
const WHOLE_WORKSPACE = 'workspace'
const NATIVE_TYPE = 'file_search'
const DEFAULT_RESULTS = 10
const MAX_QUERIES = 5
const MAX_QUERY_CHARS = 2_000
const MAX_IDS = 100
const SEARCH_TIMEOUT_MS = 10_000
/** Maximum files that one answer cites per search. */
const MAX_CITED_FILES = 10

export function createFileSearchTool(deps: FileSearchDeps): ServerTool {
  return {
    name: 'file_search',
    native: [NATIVE_TYPE],
    open(entries, exchange, display) {
      const searches = new Map(entries.map(entry => [entry.tool, new Search(deps, entry, exchange, display)]))
      return {
        declare: endpoint => Promise.all([...searches.values()].map(search => search.declare(endpoint))),
        firstForm: call => itemFields(call),
        async run(call, _, signal) {
          const search = searches.get(call.tool)
          if (search === undefined) throw new TypeError('the call belongs to no entry of the request')
          return await search.run(call, signal)
        },
      }
    },
  }
}

/** One entry of the request. */
class Search {
  readonly #deps: FileSearchDeps
  readonly #entry: ToolEntry
  readonly #exchange: Exchange
  readonly #display: ToolDisplay
  readonly #settings: RequestedTool
  readonly #path: string
  /** Undefined before `declare` has checked them; null for all files. */
  #fileIds: readonly string[] | null | undefined
  #filter: AttributeFilter | null = null

  constructor(deps: FileSearchDeps, entry: ToolEntry, exchange: Exchange, display: ToolDisplay) {
    this.#deps = deps
    this.#entry = entry
    this.#exchange = exchange
    this.#display = display
    const { tool, path } = entry
    const isNative = tool.type === NATIVE_TYPE
    this.#settings = (isNative ? tool : (tool.parameters ?? {})) as RequestedTool
    this.#path = isNative ? path : `${path}.parameters`
    if (idsOf(this.#settings).length > MAX_IDS)
      throw refuseField(`${this.#path}.vector_store_ids`, `must have at most ${MAX_IDS} ids`)
  }

  async declare(endpoint: ToolEndpoint): Promise<ToolDeclaration> {
    const { tool } = this.#entry
    const ids = idsOf(this.#settings)
    const isForProvider = tool.type === NATIVE_TYPE && ids.length > 0 && !ids.some(isOurId)
    if (isForProvider && endpoint.hosts(NATIVE_TYPE)) return { native: tool as unknown as Tool }
    if (this.#fileIds === undefined) {
      const { filters } = this.#settings
      this.#filter =
        filters == null
          ? null
          : attributeFilter(filters, (member, reason) => {
              throw refuseField(`${this.#path}.filters${member}`, reason)
            })
      this.#fileIds = await this.#ownIds(ids)
    }
    return {
      tool,
      name: NATIVE_TYPE,
      description:
        'Searches the files of the workspace. Give short queries with the words that the text is likely to have; returns passages with the names of their files.',
      parameters: objectSchema(['queries'], {
        queries: { type: 'array', items: { type: 'string' }, minItems: 1, maxItems: MAX_QUERIES },
      }),
    }
  }

  /** @throws GatewayError `invalid_request` */
  async #ownIds(ids: readonly string[]): Promise<readonly string[] | null> {
    const path = `${this.#path}.vector_store_ids`
    for (const [index, id] of ids.entries()) {
      if (id === WHOLE_WORKSPACE) continue
      const isKnown = isFileId(id) && (await this.#deps.files.find(scopeOf(this.#exchange), id)) !== null
      if (!isKnown)
        throw refuseField(
          `${path}[${index}]`,
          `must be ${WHOLE_WORKSPACE}, for all files, or the id of a file in this workspace`,
        )
    }
    return ids.length === 0 || ids.includes(WHOLE_WORKSPACE) ? null : ids
  }

  async run(call: ToolCall, signal: AbortSignal): Promise<ToolOutcome> {
    const queries = queriesOf(call)
    if (queries.length === 0)
      return failedOutcome(call, `queries: must be an array of 1 to ${MAX_QUERIES} strings`)
    try {
      const passages = await this.#search(queries, signal)
      const filesById = [...new Map(passages.map(({ fileId, filename }) => [fileId, filename]))].slice(
        0,
        MAX_CITED_FILES,
      )
      this.#display.annotate(
        filesById.map(([file_id, filename], index) => ({ type: 'file_citation', file_id, filename, index })),
      )
      const results = passages.map(({ fileId, filename, score, text }) => ({
        file_id: fileId,
        filename,
        score,
        text,
      }))
      const isRequested = this.#exchange.request.include?.includes('file_search_call.results') === true
      const shownResults = isRequested ? results.map(result => ({ ...result, attributes: {} })) : null
      return {
        item: {
          ...itemFields(call),
          ...(isRequested || call.tool.type === NATIVE_TYPE ? { results: shownResults } : {}),
        },
        result: JSON.stringify({ results }),
      }
    } catch (thrown) {
      signal.throwIfAborted()
      if (!(thrown instanceof TaskError)) throw thrown
      return failedOutcome(
        call,
        thrown.outcome === 'timeout' ? 'The search took too long' : 'The search failed',
      )
    }
  }

  async #search(queries: readonly string[], signal: AbortSignal): Promise<readonly ScoredPassage[]> {
    const { organizationId, workspaceId } = scopeOf(this.#exchange)
    const { max_num_results, ranking_options } = this.#settings
    const limit = Math.min(
      typeof max_num_results === 'number' ? max_num_results : DEFAULT_RESULTS,
      FILE_RESULTS_MAX,
    )
    const passages = await this.#deps.tasks.run(
      'search-files',
      {
        storageUrl: this.#deps.config.storage.url,
        organizationId,
        workspaceId,
        queries,
        fileIds: this.#fileIds ?? null,
        filter: this.#filter,
        limit,
      },
      { deadlineMs: SEARCH_TIMEOUT_MS, key: this.#exchange.caller.keyHash, signal },
    )
    const threshold = (ranking_options as { score_threshold?: unknown } | null | undefined)?.score_threshold
    return typeof threshold === 'number' ? passages.filter(({ score }) => score >= threshold) : passages
  }
}

function idsOf({ vector_store_ids: ids }: RequestedTool): readonly string[] {
  return Array.isArray(ids) ? (ids as string[]) : []
}

function isOurId(id: string): boolean {
  return id === WHOLE_WORKSPACE || isFileId(id)
}

function queriesOf({ arguments: { queries } }: ToolCall): readonly string[] {
  const list: readonly unknown[] = Array.isArray(queries) ? queries : [queries]
  return list
    .filter(query => typeof query === 'string' && query.trim() !== '')
    .slice(0, MAX_QUERIES)
    .map(query => String(query).slice(0, MAX_QUERY_CHARS))
}

/** The fields of the item; the native tool has an item type of its own. */
function itemFields(call: ToolCall): Readonly<Record<string, unknown>> {
  const fields = { queries: queriesOf(call) }
  return call.tool.type === NATIVE_TYPE ? { type: 'file_search_call', ...fields } : fields
}

function failedOutcome(call: ToolCall, error: string): ToolOutcome {
  const status = call.tool.type === NATIVE_TYPE ? 'failed' : 'incomplete'
  return { item: { ...itemFields(call), status }, result: JSON.stringify({ error }) }
}
