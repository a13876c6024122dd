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
  /** Executed tools by the provider's index; `done`: the result has arrived. Few replies have any. */
  #executed: Map<number, { item: number; done: boolean }> | null = null
  /** True once there is one. Written only here. */
  any = false

  constructor(emit: (delta: Delta) => void, nextItem: () => number) {
    this.#emit = emit
    this.#nextItem = nextItem
  }

  /** Takes an image, `{image_url:{url}}` or `{image_url:"…"}`: a data URL or an address. */
  image(raw: unknown, upstreamId: string | null): void {
    const source = record(raw)?.['image_url']
    const url = filled(record(source)?.['url']) ?? filled(source)
    if (url === null) return
    this.any = true
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
  takeExecuted(raw: unknown, position: number, upstreamId: string | null): void {
    const tool = record(raw)
    const kind = filled(tool?.['type'])
    if (tool === null || kind === null) return
    this.any = true
    const index = typeof tool['index'] === 'number' ? tool['index'] : position
    this.#executed ??= new Map()
    let known = this.#executed.get(index)
    const shape = shapeOf(kind)
    if (known === undefined) {
      const item = this.#nextItem()
      known = { item, done: false }
      this.#executed.set(index, known)
      const id = hostedId(upstreamId, item)
      this.#emit({
        kind: 'open',
        item,
        start: {
          type: 'hosted',
          item: { type: shape.type, id, status: 'in_progress', ...shape.firstForm(tool) },
        },
      })
      for (const name of shape.progress) this.#emit({ kind: 'progress', item, name, fields: {} })
    }
    if (known.done || filled(tool['output']) === null) return
    known.done = true
    if (shape.progress.length > 0) {
      this.#emit({ kind: 'progress', item: known.item, name: `${shape.type}.completed`, fields: {} })
    }
    this.#emit({ kind: 'close', item: known.item, fields: { status: 'completed', ...shape.done(tool) } })
  }
}

interface Shape {
  readonly type: 'web_search_call' | 'code_interpreter_call' | 'mcp_call'
  readonly progress: readonly string[]
  firstForm(tool: Json): Record<string, unknown>
  done(tool: Json): Record<string, unknown>
}

const SEARCH: Shape = {
  type: 'web_search_call',
  progress: ['web_search_call.in_progress', 'web_search_call.searching'],
  firstForm: tool => ({ action: { type: 'search', query: argument(tool, 'query') } }),
  done: tool => ({ action: { type: 'search', query: argument(tool, 'query'), sources: sources(tool) } }),
}

const CODE: Shape = {
  type: 'code_interpreter_call',
  progress: ['code_interpreter_call.in_progress', 'code_interpreter_call.interpreting'],
  firstForm: tool => ({ code: argument(tool, 'code') }),
  done: tool => ({
    code: argument(tool, 'code'),
    outputs: [{ type: 'logs', logs: filled(tool['output']) ?? '' }],
  }),
}

/** Any other tool. Its item kind has a tool name and no documented progress events. */
const OTHER: Shape = {
  type: 'mcp_call',
  progress: [],
  firstForm: tool => ({
    name: filled(tool['name']) ?? filled(tool['type']),
    arguments: filled(tool['arguments']) ?? '{}',
    server_label: filled(tool['server_label']) ?? 'provider',
  }),
  done: tool => ({ output: filled(tool['output']) ?? '' }),
}

function shapeOf(kind: string): Shape {
  if (/search|browse|visit/i.test(kind)) return SEARCH
  return /python|code/i.test(kind) ? CODE : OTHER
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
  const outer = record(raw)
  if (outer === null) return null
  if (outer['type'] === 'file') {
    const file = record(outer['file'])
    const hash = filled(file?.['hash'])
    if (file === null || hash === null) return null
    const name = filled(file['name'])
    const content = [...records(file['content'])]
    return { type: 'file', file: { hash, ...(name === null ? {} : { name }), content } }
  }
  const inner = record(outer['url_citation']) ?? outer
  const url = filled(inner['url'])
  if (outer['type'] !== 'url_citation' || url === null) return null
  const content = filled(inner['content'])
  return {
    type: 'url_citation',
    url,
    title: filled(inner['title']) ?? '',
    start_index: countOrZero(inner['start_index']),
    end_index: countOrZero(inner['end_index']),
    ...(content === null ? {} : { content }),
  }
}

/**
 * Citations for the whole reply (`search_results`, else `citations`). Their places are unknown, so each becomes an
 * empty range at the end of the text, and a client that marks ranges never replaces words of the answer.
 */
export function replyCitations(
  results: readonly unknown[] | null,
  urls: readonly unknown[] | null,
  at: number,
): Annotation[] {
  const found: Annotation[] = []
  const seen = new Set<string>()
  for (const entry of [...(results ?? []), ...(urls ?? [])]) {
    const result = record(entry)
    const url = filled(result?.['url']) ?? filled(entry)
    if (url === null || seen.has(url)) continue
    seen.add(url)
    found.push({
      type: 'url_citation',
      url,
      title: filled(result?.['title']) ?? '',
      start_index: at,
      end_index: at,
    })
  }
  return found
}
