/**
 * Decodes the function calls of one Gemini reply: calls that arrive whole, and calls whose arguments arrive in several
 * chunks. Hot path.
 */
import { GatewayError } from '../../base/errors.ts'
import { filled, type Json, jsonText, record, records } from '../../base/json.ts'
import { type Call, Calls, callIdIn } from '../calls.ts'
import type { Delta } from '../format.ts'
import type { Withheld } from '../withheld.ts'

/** The function calls of one reply. */
export class GeminiCalls {
  readonly #withheld: Withheld
  readonly #calls: Calls
  /** Ends the open item and numbers one for the call. */
  readonly #nextItem: () => number
  /** The call with incomplete arguments. */
  #partial: { readonly call: Call; readonly args: PartialArguments } | null = null
  #hasCalls = false

  constructor(emit: (delta: Delta) => void, withheld: Withheld, nextItem: () => number) {
    this.#withheld = withheld
    this.#calls = new Calls(emit, withheld)
    this.#nextItem = nextItem
  }

  get hasCalls(): boolean {
    return this.#hasCalls
  }

  readCall(call: Json, signature: string | null): void {
    const name = filled(call['name'])
    if (name === null) {
      // A call without a name is a piece of the open call; without an open call it cannot be run.
      if (this.#partial !== null) this.#addPieces(this.#partial.args, call)
      return
    }
    const item = this.#nextItem()
    this.#calls.settle()
    const extra = signature === null ? null : { signature }
    const newCall = this.#calls.begin(item, {
      isCustom: false,
      id: null,
      callId: callIdIn(call['id']),
      name,
      extra,
    })
    this.#hasCalls = true
    if (call['willContinue'] === true || Array.isArray(call['partialArgs'])) {
      const args = new PartialArguments(this.#withheld)
      this.#partial = { call: newCall, args }
      args.setWhole(record(call['args']) ?? {})
      this.#addPieces(args, call)
      return
    }
    newCall.complete(call['args'])
    newCall.end(null)
  }

  /** Ends a call with incomplete arguments. */
  close(status: 'completed' | 'incomplete'): void {
    if (this.#partial === null) return
    const { call, args } = this.#partial
    this.#partial = null
    call.complete(jsonText(args))
    call.end(status === 'completed' ? null : { status })
  }

  /** Ends all calls at the end of the reply. */
  finish(isCut: boolean): void {
    this.close('incomplete')
    this.#calls.finish(isCut)
  }

  #addPieces(args: PartialArguments, call: Json): void {
    args.addPieces(call['partialArgs'])
    if (call['willContinue'] !== true) this.close('completed')
  }
}

// Arguments in pieces: each piece has a path (`$.recipe.steps[0]`) and a value for it, and pieces of one string are
// joined. Paths are foreign input: they are bounded and cannot touch a prototype.

/** More than any arguments need; a list is filled from its beginning, so an index may only be the next one. */
const DEPTH_MAX = 64
/** Memory of an object without a prototype and of its field, in objects and fields of the usual kind. */
const STEP_PARTS = 4

type Container = Record<string, unknown> | unknown[]

export class PartialArguments {
  readonly #root: Record<string, unknown> = Object.create(null)
  readonly #withheld: Withheld

  constructor(withheld: Withheld) {
    this.#withheld = withheld
  }

  /** Reads arguments that arrived whole. */
  setWhole(args: Json): void {
    for (const [key, value] of Object.entries(args)) this.#root[key] = value
  }

  /** @throws GatewayError when a piece has no valid path: a call must not run with incomplete arguments. */
  addPieces(partialArgs: unknown): void {
    for (const piece of records(partialArgs)) {
      const path = pathOf(filled(piece['jsonPath']))
      if (path === null || !this.#writePiece(path, piece)) {
        throw new GatewayError(
          'provider_unavailable',
          'The provider sent a function call that cannot be read',
        )
      }
    }
  }

  toJSON(): Readonly<Record<string, unknown>> {
    return this.#root
  }

  /** Writes the value of a piece at its path; false if the path does not fit the arguments so far. */
  #writePiece(path: readonly (string | number)[], piece: Json): boolean {
    let container: Container = this.#root
    for (const [depth, step] of path.entries()) {
      if (!fitsStep(container, step)) return false
      const next = path[depth + 1]
      const current = readStep(container, step)
      if (current === undefined) {
        this.#withheld.add(step)
        this.#withheld.addParts(STEP_PARTS)
      }
      if (next === undefined) {
        this.#withheld.add(piece['stringValue'])
        writeStep(container, step, mergeValue(current, piece))
        return true
      }
      if (typeof current === 'object' && current !== null) {
        container = current as Container
      } else {
        const newContainer: Container = typeof next === 'number' ? [] : Object.create(null)
        writeStep(container, step, newContainer)
        container = newContainer
      }
    }
    return false
  }
}

/** `$.a.b[0]['c d']` as `['a', 'b', 0, 'c d']`; null for any other text. */
function pathOf(text: string | null): readonly (string | number)[] | null {
  if (text === null || !text.startsWith('$')) return null
  const path: (string | number)[] = []
  const step = /\.([^.[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]/y
  step.lastIndex = 1
  while (step.lastIndex < text.length) {
    const match = step.exec(text)
    if (match === null || path.length === DEPTH_MAX) return null
    const quotedName = match[3] ?? match[4]
    if (match[2] !== undefined) path.push(Number(match[2]))
    else path.push(quotedName === undefined ? (match[1] ?? '') : quotedName.replace(/\\(.)/g, '$1'))
  }
  return path.length === 0 ? null : path
}

function fitsStep(container: Container, step: string | number): boolean {
  return Array.isArray(container)
    ? typeof step === 'number' && step <= container.length
    : typeof step === 'string'
}

function readStep(container: Container, step: string | number): unknown {
  return Object.hasOwn(container, step) ? (container as Record<string | number, unknown>)[step] : undefined
}

function writeStep(container: Container, step: string | number, value: unknown): void {
  // `defineProperty` makes an own property even of `__proto__`.
  Object.defineProperty(container, step, { value, writable: true, enumerable: true, configurable: true })
}

function mergeValue(current: unknown, piece: Json): unknown {
  if (typeof piece['stringValue'] === 'string') {
    return typeof current === 'string' ? current + piece['stringValue'] : piece['stringValue']
  }
  if (typeof piece['numberValue'] === 'number') return piece['numberValue']
  if (typeof piece['boolValue'] === 'boolean') return piece['boolValue']
  return 'nullValue' in piece ? null : current
}
