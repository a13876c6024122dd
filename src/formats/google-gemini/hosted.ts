/**
 * Code that Google ran for the model, as one `code_interpreter_call`: the code, then its result, then the images
 * it drew, each in a part of its own. Pure.
 */
import type { Delta, HostedStart } from '../format.ts'
import { filled, type Json } from '../json.ts'

/** The item as it begins. Its id is the provider's, where there is one: a later turn repeats it. */
export function codeItem(part: Json): HostedStart {
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
