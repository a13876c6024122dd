/**
 * What Google did for the model beside text, as hosted items: code that it ran, images, searches. Pure.
 * Code is one `code_interpreter_call`: the code, then its result, then the images it drew, each in a part of its own.
 */
import type { Delta, HostedStart } from '../format.ts'
import { filled, type Json } from '../json.ts'

/** The item as it begins. Its id is the provider's, where there is one: a later turn repeats it. */
export function codeBegun(part: Json): HostedStart {
  const id = filled(part['id'])
  return {
    type: 'code_interpreter_call',
    ...(id === null ? {} : { id }),
    status: 'in_progress',
    code: null,
    container_id: null,
    outputs: null,
  }
}

export class CodeRun {
  readonly #emit: (delta: Delta) => void
  readonly #item: number
  readonly #signature: string | null
  readonly #outputs: Readonly<Record<string, string>>[] = []
  #code: string | null = null
  #status: 'incomplete' | 'completed' | 'failed' = 'incomplete'

  /** `item` must be open. */
  constructor(emit: (delta: Delta) => void, item: number, signature: string | null) {
    this.#emit = emit
    this.#item = item
    this.#signature = signature
    this.#progress('code_interpreter_call.in_progress', {})
  }

  /** Whether the result has come. */
  get ran(): boolean {
    return this.#status !== 'incomplete'
  }

  code(part: Json): void {
    const code = typeof part['code'] === 'string' ? part['code'] : ''
    this.#code = code
    this.#progress('code_interpreter_call_code.delta', { delta: code })
    this.#progress('code_interpreter_call_code.done', { code })
    this.#progress('code_interpreter_call.interpreting', {})
  }

  result(part: Json): void {
    const logs = part['output']
    if (typeof logs === 'string') this.#outputs.push({ type: 'logs', logs })
    const outcome = part['outcome']
    this.#status = outcome === 'OUTCOME_OK' || outcome === undefined ? 'completed' : 'failed'
  }

  image(mediaType: string, base64: string): void {
    this.#outputs.push({ type: 'image', url: `data:${mediaType};base64,${base64}` })
  }

  close(): void {
    if (this.ran) this.#progress('code_interpreter_call.completed', {})
    const fields = { code: this.#code, outputs: this.#outputs, status: this.#status }
    this.#emit({
      kind: 'close',
      item: this.#item,
      fields: this.#signature === null ? fields : { ...fields, signature: this.#signature },
    })
  }

  #progress(name: string, fields: Readonly<Record<string, unknown>>): void {
    this.#emit({ kind: 'progress', item: this.#item, name, fields })
  }
}

export function imageBegun(): HostedStart {
  return { type: 'image_generation_call', status: 'in_progress', result: null }
}

/** Tells the whole of an open image item. */
export function tellImage(
  emit: (delta: Delta) => void,
  item: number,
  mediaType: string,
  base64: string,
  signature: string | null,
): void {
  for (const stage of ['in_progress', 'generating', 'completed']) {
    emit({ kind: 'progress', item, name: `image_generation_call.${stage}`, fields: {} })
  }
  const fields = { status: 'completed', result: base64, output_format: mediaType.slice('image/'.length) }
  emit({ kind: 'close', item, fields: signature === null ? fields : { ...fields, signature } })
}

export function searchBegun(action: Json): HostedStart {
  return { type: 'web_search_call', status: 'in_progress', action }
}

/** Tells the whole of an open search item. */
export function tellSearch(emit: (delta: Delta) => void, item: number, succeeded: boolean): void {
  for (const stage of succeeded ? ['in_progress', 'searching', 'completed'] : ['in_progress', 'searching']) {
    emit({ kind: 'progress', item, name: `web_search_call.${stage}`, fields: {} })
  }
  emit({ kind: 'close', item, fields: { status: succeeded ? 'completed' : 'failed' } })
}
