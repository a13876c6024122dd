/**
 * Computer use in formats where the tool is a function: calls come back as complete `computer_call` items. Hot path for
 * such requests.
 */
import type { ComputerUse } from '../../formats/format.ts'
import { isRecord, parseJson } from '../../formats/json.ts'
import { LongText } from '../../formats/long-text.ts'
import { itemId } from '../../ids.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Content } from '../answer/answer.ts'

const TYPES: ReadonlySet<unknown> = new Set(['computer_use_preview', 'computer'])

/** True if the request gives the model a computer. */
export function usesComputer({ tools }: ResponsesRequest): boolean {
  return tools?.some(({ type }) => TYPES.has(type)) === true
}

/** Calls of one reply. */
export class ComputerCalls {
  readonly #tool: ComputerUse
  readonly #tell: (delta: Content) => void
  readonly #open = new Map<number, { readonly callId: string; readonly said: LongText }>()

  constructor(tool: ComputerUse, tell: (delta: Content) => void) {
    this.#tool = tool
    this.#tell = tell
  }

  /** True when the delta belongs to a call of the computer. */
  take(delta: Content): boolean {
    if (delta.kind === 'open') {
      if (delta.start.type !== 'function_call' || delta.start.name !== this.#tool.name) return false
      this.#open.set(delta.item, { callId: delta.start.callId ?? itemId('cu'), said: new LongText() })
      return true
    }
    const call = this.#open.get(delta.item)
    if (call === undefined) return false
    if (delta.kind === 'arguments') call.said.add(delta.text)
    if (delta.kind === 'close') {
      this.#open.delete(delta.item)
      this.#end(delta.item, call.callId, call.said.toString())
    }
    return true
  }

  #end(item: number, call_id: string, said: string): void {
    const input = said === '' ? {} : parseJson(said)
    const action = this.#tool.action(isRecord(input) ? input : {})
    const id = itemId('cu')
    const fields = { call_id, action, pending_safety_checks: [] }
    const start = { type: 'computer_call', id, status: 'in_progress', ...fields } as const
    this.#tell({ kind: 'open', item, start: { type: 'hosted', item: start } })
    this.#tell({ kind: 'close', item, fields: { status: 'completed', ...fields } })
  }
}
