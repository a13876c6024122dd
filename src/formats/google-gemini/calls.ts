/** Function calls of one Gemini reply: whole, or with arguments that come in pieces over several chunks. Hot path. */
import type { Delta, ItemStart } from '../format.ts'
import { filled, type Json, jsonText, record } from '../json.ts'
import { PartialArguments } from './partial-arguments.ts'

export class GeminiCalls {
  readonly #emit: (delta: Delta) => void
  /** Ends what was being said, and gives the call its item. */
  readonly #open: (start: ItemStart) => number
  /** The call whose arguments still come. */
  #partial: { readonly item: number; readonly args: PartialArguments } | null = null
  #any = false

  constructor(emit: (delta: Delta) => void, open: (start: ItemStart) => number) {
    this.#emit = emit
    this.#open = open
  }

  get any(): boolean {
    return this.#any
  }

  take(call: Json, signature: string | null): void {
    const name = filled(call['name'])
    if (name === null) {
      // A piece of the call before; without one it names nothing that could be called.
      if (this.#partial !== null) this.#pieces(this.#partial.args, call)
      return
    }
    const extra = signature === null ? null : { signature }
    const item = this.#open({ type: 'function_call', id: null, callId: filled(call['id']), name, extra })
    this.#any = true
    if (call['willContinue'] === true || Array.isArray(call['partialArgs'])) {
      const args = new PartialArguments()
      this.#partial = { item, args }
      args.whole(record(call['args']) ?? {})
      this.#pieces(args, call)
      return
    }
    const args = call['args']
    this.#emit({ kind: 'arguments', item, text: typeof args === 'string' ? args : jsonText(args ?? {}) })
    this.#emit({ kind: 'close', item, fields: null })
  }

  /** Ends a call whose arguments were still to come. */
  close(status: 'completed' | 'incomplete'): void {
    if (this.#partial === null) return
    const { item, args } = this.#partial
    this.#partial = null
    this.#emit({ kind: 'arguments', item, text: jsonText(args) })
    this.#emit({ kind: 'close', item, fields: status === 'completed' ? null : { status } })
  }

  #pieces(args: PartialArguments, call: Json): void {
    args.pieces(call['partialArgs'])
    if (call['willContinue'] !== true) this.close('completed')
  }
}
