/**
 * Decodes images, searches, code and citations from a Chat Completions provider into hosted items. Pure.
 * The Responses vocabulary has no image part in a message, so an image becomes an `image_generation_call`.
 */
import {
  countOrZero,
  filled,
  type Json,
  list,
  listOrEmpty,
  parseJson,
  record,
  records,
} from '../../base/json.ts'
import type { Annotation } from '../../protocol/parts.ts'
import type { Delta } from '../format.ts'

/** The hosted items of one reply. */
export class ChatHosted {
  readonly #emit: (delta: Delta) => void
  readonly #nextItem: () => number
  /** Executed tools by the provider's index; `isDone`: the result has arrived. Few replies have any. */
  #executed: Map<number, { item: number; isDone: boolean }> | null = null
  /** True once there is an item. Only this class writes it. */
  hasItems = false

  constructor(emit: (delta: Delta) => void, nextItem: () => number) {
    this.#emit = emit
    this.#nextItem = nextItem
  }

  /** Takes an image, `{image_url:{url}}` or `{image_url:"…"}`: a data URL or an address. */
  addImage(raw: unknown, upstreamId: string | null): void {
    const source = record(raw)?.['image_url']
    const url = filled(record(source)?.['url']) ?? filled(source)
    if (url === null) return
    this.hasItems = true
    const item = this.#nextItem()
    const id = hostedId(upstreamId, item)
    this.#emit({
      kind: 'open',
      item,
      start: { type: 'hosted', item: { type: 'image_generation_call', id, status: 'in_progress' } },
    })
    const data = /^data:[^,]*;base64,/.exec(url)
    const result = data === null ? url : url.slice(data[0].length)
    this.#emit({ kind: 'progress', item, name: 'image_generation_call.completed', fields: {} })
    this.#emit({ kind: 'close', item, fields: { status: 'completed', result } })
  }

  /** Takes a tool that the provider ran. A stream has it twice: at its start and, with `output`, at its end. */
  addExecuted(raw: unknown, position: number, upstreamId: string | null): void {
    const tool = record(raw)
    const kind = filled(tool?.['type'])
    if (tool === null || kind === null) return
    this.hasItems = true
    const index = typeof tool['index'] === 'number' ? tool['index'] : position
    this.#executed ??= new Map()
    let state = this.#executed.get(index)
    const shape = shapeOf(kind)
    if (state === undefined) {
      const item = this.#nextItem()
      state = { item, isDone: false }
      this.#executed.set(index, state)
      const id = hostedId(upstreamId, item)
      this.#emit({
        kind: 'open',
        item,
        start: {
          type: 'hosted',
          item: { type: shape.type, id, status: 'in_progress', ...shape.startFields(tool) },
        },
      })
      for (const name of shape.progress) this.#emit({ kind: 'progress', item, name, fields: {} })
    }
    if (state.isDone || filled(tool['output']) === null) return
    state.isDone = true
    if (shape.progress.length > 0) {
      this.#emit({ kind: 'progress', item: state.item, name: `${shape.type}.completed`, fields: {} })
    }
    this.#emit({ kind: 'close', item: state.item, fields: { status: 'completed', ...shape.endFields(tool) } })
  }
}

interface ItemShape {
  readonly type: 'web_search_call' | 'code_interpreter_call' | 'mcp_call'
  readonly progress: readonly string[]
  startFields(tool: Json): Record<string, unknown>
  endFields(tool: Json): Record<string, unknown>
}

const SEARCH_SHAPE: ItemShape = {
  type: 'web_search_call',
  progress: ['web_search_call.in_progress', 'web_search_call.searching'],
  startFields: tool => ({ action: { type: 'search', query: argument(tool, 'query') } }),
  endFields: tool => ({ action: { type: 'search', query: argument(tool, 'query'), sources: sources(tool) } }),
}

const CODE_SHAPE: ItemShape = {
  type: 'code_interpreter_call',
  progress: ['code_interpreter_call.in_progress', 'code_interpreter_call.interpreting'],
  startFields: tool => ({ code: argument(tool, 'code') }),
  endFields: tool => ({
    code: argument(tool, 'code'),
    outputs: [{ type: 'logs', logs: filled(tool['output']) ?? '' }],
  }),
}

/** Any other tool. Its item kind has a tool name and no documented progress events. */
const OTHER_SHAPE: ItemShape = {
  type: 'mcp_call',
  progress: [],
  startFields: tool => ({
    name: filled(tool['name']) ?? filled(tool['type']),
    arguments: filled(tool['arguments']) ?? '{}',
    server_label: filled(tool['server_label']) ?? 'provider',
  }),
  endFields: tool => ({ output: filled(tool['output']) ?? '' }),
}

function shapeOf(kind: string): ItemShape {
  if (/search|browse|visit/i.test(kind)) return SEARCH_SHAPE
  return /python|code/i.test(kind) ? CODE_SHAPE : OTHER_SHAPE
}

function argument(tool: Json, name: string): string {
  const text = filled(tool['arguments'])
  if (text === null) return ''
  const value = parseJson(text)
  return filled(record(value)?.[name]) ?? filled(value) ?? text
}

function sources(tool: Json): { type: 'url'; url: string }[] {
  const results = list(record(tool['search_results'])?.['results']) ?? listOrEmpty(tool['search_results'])
  return results
    .map(result => filled(record(result)?.['url']))
    .filter(url => url !== null)
    .map(url => ({ type: 'url', url }))
}

/** An id that is unique in the reply and stable over decodings; its prefix marks it as the gateway's. */
function hostedId(upstreamId: string | null, item: number): string {
  return `st_${(upstreamId ?? 'reply').replace(/[^\w-]/g, '').slice(0, 64)}_${item}`
}

/** Reads an element of `annotations`: `{type:"url_citation", url_citation:{…}}`, its flat form, or a parsed file. */
export function chatAnnotation(raw: unknown): Annotation | null {
  const annotation = record(raw)
  if (annotation === null) return null
  if (annotation['type'] === 'file') {
    const file = record(annotation['file'])
    const hash = filled(file?.['hash'])
    if (file === null || hash === null) return null
    const name = filled(file['name'])
    const content = [...records(file['content'])]
    return { type: 'file', file: { hash, ...(name === null ? {} : { name }), content } }
  }
  const citation = record(annotation['url_citation']) ?? annotation
  const url = filled(citation['url'])
  if (annotation['type'] !== 'url_citation' || url === null) return null
  const content = filled(citation['content'])
  return {
    type: 'url_citation',
    url,
    title: filled(citation['title']) ?? '',
    start_index: countOrZero(citation['start_index']),
    end_index: countOrZero(citation['end_index']),
    ...(content === null ? {} : { content }),
  }
}

/**
 * Citations for the whole reply: `search_results`, then the URLs in `citations` that are new. Their ranges are unknown,
 * so each becomes an empty range at the end of the text, and a client that marks ranges never replaces words of the
 * answer.
 */
export function replyCitations(
  results: readonly unknown[] | null,
  urls: readonly unknown[] | null,
  position: number,
): Annotation[] {
  const citations: Annotation[] = []
  const seenUrls = new Set<string>()
  for (const entry of [...(results ?? []), ...(urls ?? [])]) {
    const result = record(entry)
    const url = filled(result?.['url']) ?? filled(entry)
    if (url === null || seenUrls.has(url)) continue
    seenUrls.add(url)
    citations.push({
      type: 'url_citation',
      url,
      title: filled(result?.['title']) ?? '',
      start_index: position,
      end_index: position,
    })
  }
  return citations
}
