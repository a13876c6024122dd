/**
 * Replaces tool names that a receiver does not accept: with the readable part and a hash of the name. The hash depends
 * only on the name, so other tools do not change it, unless one has the new name already. Pure.
 */
import { hash } from 'node:crypto'
import { recordOrEmpty } from '../../base/json.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import type { Tool } from '../../protocol/tools.ts'
import type { NameRule } from './table.ts'

const HASH_CHARS = 8

/** `text` shortened to the length, with a hash of `seed` at its end. `text` has only allowed characters. */
export function withHash(text: string, seed: string, maxChars: number): string {
  const digest = hash('sha256', seed, 'hex').slice(0, HASH_CHARS)
  return `${text.slice(0, Math.max(0, maxChars - HASH_CHARS - 1))}_${digest}`
}

/** The names of one request, in the form that the receiver accepts. */
export class OutwardNames {
  /** The caller's name by the sent name, for names that differ. */
  readonly callerNames = new Map<string, string>()
  readonly #rule: NameRule
  readonly #reserved: ReadonlySet<string>
  readonly #sentNames = new Map<string, string>()
  /** Names of tools that are sent unchanged. */
  readonly #plainNames: ReadonlySet<string>

  constructor(rule: NameRule, tools: readonly Tool[]) {
    this.#rule = rule
    this.#reserved = reservedNames(rule, tools)
    this.#plainNames = new Set(tools.flatMap(tool => nameOf(tool) ?? []).filter(name => this.#fits(name)))
    for (const tool of tools) {
      const name = nameOf(tool)
      if (name !== null) this.sentName(name)
    }
  }

  #fits(name: string): boolean {
    return this.#rule.fits.test(name) && !this.#reserved.has(name)
  }

  sentName(name: string): string {
    const { forbidden, maxChars } = this.#rule
    if (this.#fits(name)) return name
    const knownName = this.#sentNames.get(name)
    if (knownName !== undefined) return knownName
    const text = name.replace(forbidden, '_')
    let candidate = withHash(text, name, maxChars)
    for (let salt = 1; this.#plainNames.has(candidate) || this.callerNames.has(candidate); salt++)
      candidate = withHash(text, `${salt} ${name}`, maxChars)
    this.#sentNames.set(name, candidate)
    this.callerNames.set(candidate, name)
    return candidate
  }
}

/** Names that functions cannot have beside the other tools of the request. */
function reservedNames(
  { reserved = NO_NAMES, hosted }: NameRule,
  tools: readonly Tool[],
): ReadonlySet<string> {
  if (hosted === undefined) return reserved
  const names = tools.flatMap(({ type }) => hosted.get(serverToolName(type) ?? type) ?? [])
  return names.length === 0 ? reserved : new Set([...reserved, ...names])
}

const NO_NAMES: ReadonlySet<string> = new Set()

/** The name that the model uses to call the tool; null: not one of the client's functions. */
function nameOf(tool: Tool): string | null {
  const { name, type } = recordOrEmpty(tool)
  return typeof name === 'string' && (type === 'function' || type === 'custom') ? name : null
}

/** Null if all tool names can be sent unchanged. */
export function outwardNames(rule: NameRule, tools: readonly Tool[]): OutwardNames | null {
  const takenNames = reservedNames(rule, tools)
  const isForeign = (tool: Tool): boolean => {
    const name = nameOf(tool)
    return name !== null && (!rule.fits.test(name) || takenNames.has(name))
  }
  return tools.some(isForeign) ? new OutwardNames(rule, tools) : null
}
