/**
 * Adapts the client's tools to formats that support fewer kinds: rewrites the request, and translates calls in the
 * reply back. Hot path for such requests; others pass three looks at their tools.
 */
import { GatewayError, rewritten } from '../../errors.ts'
import type { ComputerUse, Format } from '../../formats/format.ts'
import { has } from '../../formats/special.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Content } from '../answer/answer.ts'
import { ComputerCalls, usesComputer } from './computer-calls.ts'
import { settleControls } from './control-items.ts'
import { CustomCalls, customAsFunctions } from './custom-calls.ts'
import { flattenNamespaces, type NamespacedName } from './namespaces.ts'

/** A request that was changed for a format. */
export interface FittedRequest {
  readonly prompt: ResponsesRequest
  /** Names of functions that stand for custom tools. */
  readonly custom: ReadonlySet<string>
  /** Tools of namespaces by the names that the model sees. */
  readonly namespaced: ReadonlyMap<string, NamespacedName>
  /** Where the caller has each tool; null: where it is. */
  readonly toolPaths: readonly string[] | null
  /** Null: the model has no computer, or the format has items for its calls. */
  readonly computer: ComputerUse | null
}

const NOBODY: ReadonlySet<string> = new Set()
const NOWHERE: ReadonlyMap<string, NamespacedName> = new Map()

/** Null where the format takes the request as it is. */
export function fitTools(
  given: ResponsesRequest,
  { name, customTools, computer }: Pick<Format, 'name' | 'customTools' | 'computer'>,
): FittedRequest | null {
  const settled = settleControls(given, name)
  const flat = has(name, 'namespace')
    ? null
    : flattenNamespaces(settled?.prompt ?? given, settled?.toolPaths ?? [])
  const prompt = flat?.prompt ?? settled?.prompt ?? given
  const custom = customTools ? null : customAsFunctions(prompt)
  const used = computer !== undefined && usesComputer(prompt) ? computer : null
  if (settled === null && flat === null && custom === null && used === null) return null
  return {
    prompt: custom?.prompt ?? prompt,
    custom: custom?.names ?? NOBODY,
    namespaced: flat?.names ?? NOWHERE,
    toolPaths: flat?.toolPlaces ?? settled?.toolPaths ?? null,
    computer: used,
  }
}

const TOOL_PATH = /^tools\[(\d{1,6})\]/

/** What `encode` returns. @throws its errors, about tools where the caller has them */
export function withClientPaths<Result>(paths: readonly string[] | null, encode: () => Result): Result {
  if (paths === null) return encode()
  try {
    return encode()
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown
    const message = thrown.message.replace(TOOL_PATH, (path, at) => paths[Number(at)] ?? path)
    throw message === thrown.message ? thrown : rewritten(thrown, { message })
  }
}

/** Calls of one reply, as the client knows their tools. */
export class ClientCalls {
  readonly #namespaced: FittedRequest['namespaced']
  readonly #custom: CustomCalls | null
  readonly #computer: ComputerCalls | null
  readonly #tell: (delta: Content) => void

  /** `tell` gets what is told in another form. */
  constructor({ custom, namespaced, computer }: FittedRequest, tell: (delta: Content) => void) {
    this.#namespaced = namespaced
    this.#tell = delta => tell(this.#named(delta))
    this.#computer = computer === null ? null : new ComputerCalls(computer, tell)
    this.#custom = custom.size === 0 ? null : new CustomCalls(custom, this.#tell)
  }

  /** True when the delta was told in another form. */
  take(delta: Content): boolean {
    if (this.#computer?.take(delta) === true || this.#custom?.take(delta) === true) return true
    if (this.#named(delta) === delta) return false
    this.#tell(delta)
    return true
  }

  #named(delta: Content): Content {
    if (delta.kind !== 'open') return delta
    const { start } = delta
    if (start.type !== 'function_call' && start.type !== 'custom_tool_call') return delta
    const origin = this.#namespaced.get(start.name)
    if (origin === undefined) return delta
    const { namespace, name } = origin
    return { ...delta, start: { ...start, name, extra: { ...start.extra, namespace } } }
  }
}
