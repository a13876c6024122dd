/**
 * Parses the part of RE2's syntax that every engine interprets in the same way once classes and flags are expanded.
 * Pure. Returns null for anything else: Unicode and POSIX classes, quoted text, letters beyond ASCII in any case.
 */
import { ALL, type Characters, CLASSES, inAnyCase, NONE, NOT_FEED, negate, union } from './characters.ts'

/** `word` is `\b`; the others are ends of the text, or of one of its lines. */
export type Assertion = 'word' | 'start' | 'end' | 'line-start' | 'line-end'

export type Node =
  | { readonly kind: 'set'; readonly set: Characters }
  | { readonly kind: 'assertion'; readonly assertion: Assertion }
  | { readonly kind: 'sequence'; readonly nodes: readonly Node[] }
  | { readonly kind: 'choice'; readonly nodes: readonly Node[] }
  /** Never contains anything that may be empty. */
  | {
      readonly kind: 'repeat'
      readonly node: Node
      readonly least: number
      readonly most: number
      readonly isLazy: boolean
    }

export function parsePattern(pattern: string): Node | null {
  try {
    const parser = new Parser(pattern)
    return parser.whole()
  } catch (thrown) {
    if (thrown instanceof Unknown) return null
    throw thrown
  }
}

/** Length of the shortest match in characters. */
export function shortest(node: Node): number {
  switch (node.kind) {
    case 'set':
      return 1
    case 'assertion':
      return 0
    case 'sequence':
      return node.nodes.reduce((sum, each) => sum + shortest(each), 0)
    case 'choice':
      return Math.min(...node.nodes.map(shortest))
    case 'repeat':
      return node.least * shortest(node.node)
  }
}

class Unknown extends Error {}

interface Flags {
  readonly anyCase: boolean
  readonly dotAll: boolean
  readonly lines: boolean
}

const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, a: 7 }
const PUNCTUATION = /^[!-/:-@[-`{-~]$/
const QUANTIFIER = /(?:([*+?])|\{(\d{1,4})(?:(,)(\d{0,4}))?\})(\??)/y

class Parser {
  readonly #text: string
  #at = 0
  #flags: Flags = { anyCase: false, dotAll: false, lines: false }

  constructor(text: string) {
    this.#text = text
  }

  whole(): Node {
    const node = this.#choice()
    if (this.#at < this.#text.length) throw new Unknown()
    return node
  }

  #choice(): Node {
    const nodes: Node[] = []
    let sequence: Node[] = []
    while (this.#at < this.#text.length && this.#text[this.#at] !== ')') {
      if (this.#text[this.#at] === '|') {
        this.#at++
        nodes.push({ kind: 'sequence', nodes: sequence })
        sequence = []
      } else {
        const one = this.#one()
        if (one !== null) sequence.push(this.#repeated(one))
      }
    }
    nodes.push({ kind: 'sequence', nodes: sequence })
    const [first, second] = sequence
    if (nodes.length > 1) return { kind: 'choice', nodes }
    return first !== undefined && second === undefined ? first : { kind: 'sequence', nodes: sequence }
  }

  /** Null for flags that apply to what follows. */
  #one(): Node | null {
    const code = this.#text.codePointAt(this.#at) ?? 0
    const character = String.fromCodePoint(code)
    this.#at += character.length
    switch (character) {
      case '(':
        return this.#group()
      case '[':
        return { kind: 'set', set: this.#class() }
      case '\\':
        return this.#escape()
      case '.':
        return { kind: 'set', set: this.#flags.dotAll ? ALL : NOT_FEED }
      case '^':
        return { kind: 'assertion', assertion: this.#flags.lines ? 'line-start' : 'start' }
      case '$':
        return { kind: 'assertion', assertion: this.#flags.lines ? 'line-end' : 'end' }
      case '*':
      case '+':
      case '?':
      case '{':
        throw new Unknown()
      default:
        return { kind: 'set', set: this.#cased([code, code]) }
    }
  }

  #cased(set: Characters): Characters {
    if (!this.#flags.anyCase) return set
    const folded = inAnyCase(set)
    if (folded === null) throw new Unknown()
    return folded
  }

  #group(): Node | null {
    const outer = this.#flags
    if (this.#text[this.#at] === '?') {
      const head = /\?(?:P?<\w{1,100}>|([ims]{0,3})(?:-([ims]{1,3}))?([:)]))/y
      head.lastIndex = this.#at
      const match = head.exec(this.#text)
      if (match === null) throw new Unknown()
      this.#at += match[0].length
      const [, on = '', off = '', end] = match
      const flag = (letter: string, now: boolean): boolean =>
        off.includes(letter) ? false : on.includes(letter) || now
      this.#flags = {
        anyCase: flag('i', outer.anyCase),
        dotAll: flag('s', outer.dotAll),
        lines: flag('m', outer.lines),
      }
      if (end === ')') return null
    }
    const node = this.#choice()
    if (this.#text[this.#at] !== ')') throw new Unknown()
    this.#at++
    this.#flags = outer
    return node
  }

  #escape(): Node {
    const letter = this.#text[this.#at] ?? ''
    if (letter === 'b' || letter === 'A' || letter === 'z') {
      this.#at++
      return { kind: 'assertion', assertion: letter === 'b' ? 'word' : letter === 'A' ? 'start' : 'end' }
    }
    return { kind: 'set', set: this.#escapedSet() }
  }

  /** After a backslash: a one-letter class, or a character. */
  #escapedSet(): Characters {
    const letter = this.#text[this.#at] ?? ''
    const known = CLASSES[letter]
    if (known !== undefined) {
      this.#at++
      // In any case, a negated class lacks all cases of what it negates.
      const isNegated = letter < 'a'
      return isNegated ? negate(this.#cased(negate(known))) : this.#cased(known)
    }
    const code = this.#escapedCode()
    return this.#cased([code, code])
  }

  #escapedCode(): number {
    const letter = this.#text[this.#at++] ?? ''
    const control = CONTROLS[letter]
    if (control !== undefined) return control
    if (letter === 'x') {
      const digits = /(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}))/y
      digits.lastIndex = this.#at
      const match = digits.exec(this.#text)
      const code = Number.parseInt(match?.[1] ?? match?.[2] ?? '', 16)
      if (match === null || code > 0x10ffff) throw new Unknown()
      this.#at += match[0].length
      return code
    }
    if (!PUNCTUATION.test(letter)) throw new Unknown()
    return letter.charCodeAt(0)
  }

  #class(): Characters {
    const isNegated = this.#text[this.#at] === '^'
    if (isNegated) this.#at++
    let set = NONE
    for (let isFirst = true; ; isFirst = false) {
      const character = this.#text[this.#at]
      if (character === undefined) throw new Unknown()
      if (character === ']' && !isFirst) break
      if (character === '[' && this.#text[this.#at + 1] === ':') throw new Unknown()
      set = union(set, this.#range())
    }
    this.#at++
    return isNegated ? negate(set) : set
  }

  #range(): Characters {
    if (this.#text[this.#at] === '\\' && CLASSES[this.#text[this.#at + 1] ?? ''] !== undefined) {
      this.#at++
      const set = this.#escapedSet()
      if (this.#text[this.#at] === '-' && this.#text[this.#at + 1] !== ']') throw new Unknown()
      return set
    }
    const first = this.#member()
    let last = first
    if (this.#text[this.#at] === '-' && this.#text[this.#at + 1] !== ']') {
      this.#at++
      if (this.#text[this.#at] === '\\' && CLASSES[this.#text[this.#at + 1] ?? ''] !== undefined)
        throw new Unknown()
      last = this.#member()
    }
    if (last < first) throw new Unknown()
    return this.#cased([first, last])
  }

  #member(): number {
    const code = this.#text.codePointAt(this.#at)
    if (code === undefined) throw new Unknown()
    this.#at += code > 0xffff ? 2 : 1
    return code === 0x5c ? this.#escapedCode() : code
  }

  #repeated(node: Node): Node {
    QUANTIFIER.lastIndex = this.#at
    const match = QUANTIFIER.exec(this.#text)
    if (match === null) return node
    this.#at += match[0].length
    const [, sign, from, comma, to, lazy] = match
    const least = sign === undefined ? Number(from) : sign === '+' ? 1 : 0
    const limit = comma === undefined ? least : to === '' ? Number.POSITIVE_INFINITY : Number(to)
    const most = sign === undefined ? limit : sign === '?' ? 1 : Number.POSITIVE_INFINITY
    // Engines treat the repeat of an empty expression differently.
    if (most < least || most === 0 || shortest(node) === 0) throw new Unknown()
    QUANTIFIER.lastIndex = this.#at
    if (QUANTIFIER.test(this.#text)) throw new Unknown()
    return { kind: 'repeat', node, least, most, isLazy: lazy === '?' }
  }
}
