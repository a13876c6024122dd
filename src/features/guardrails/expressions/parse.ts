/**
 * Parses the part of RE2's syntax that every engine interprets in the same way once classes and flags are expanded.
 * Pure. Returns null for anything else: Unicode and POSIX classes, quoted text, letters beyond ASCII in any case.
 */
import {
  ALL_CHARACTERS,
  type Characters,
  CLASSES,
  inAnyCase,
  NO_CHARACTERS,
  NOT_LINE_FEED,
  negate,
  union,
} from './characters.ts'

/** `word` is `\b`; the others are ends of the text, or of one of its lines. */
export type Assertion = 'word' | 'start' | 'end' | 'line-start' | 'line-end'

export type Node =
  | { readonly kind: 'set'; readonly set: Characters }
  | { readonly kind: 'assertion'; readonly assertion: Assertion }
  | { readonly kind: 'sequence'; readonly nodes: readonly Node[] }
  | { readonly kind: 'choice'; readonly nodes: readonly Node[] }
  /** Its node never matches the empty text. */
  | {
      readonly kind: 'repeat'
      readonly node: Node
      readonly min: number
      readonly max: number
      readonly isLazy: boolean
    }

export function parsePattern(pattern: string): Node | null {
  try {
    const parser = new Parser(pattern)
    return parser.parse()
  } catch (thrown) {
    if (thrown instanceof NotSupported) return null
    throw thrown
  }
}

/** Length of the shortest match in characters. */
export function shortestMatch(node: Node): number {
  switch (node.kind) {
    case 'set':
      return 1
    case 'assertion':
      return 0
    case 'sequence':
      return node.nodes.reduce((sum, inner) => sum + shortestMatch(inner), 0)
    case 'choice':
      return Math.min(...node.nodes.map(shortestMatch))
    case 'repeat':
      return node.min * shortestMatch(node.node)
  }
}

class NotSupported extends Error {}

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
  #position = 0
  #flags: Flags = { anyCase: false, dotAll: false, lines: false }

  constructor(text: string) {
    this.#text = text
  }

  parse(): Node {
    const node = this.#choice()
    if (this.#position < this.#text.length) throw new NotSupported()
    return node
  }

  #choice(): Node {
    const nodes: Node[] = []
    let sequence: Node[] = []
    while (this.#position < this.#text.length && this.#text[this.#position] !== ')') {
      if (this.#text[this.#position] === '|') {
        this.#position++
        nodes.push({ kind: 'sequence', nodes: sequence })
        sequence = []
      } else {
        const term = this.#term()
        if (term !== null) sequence.push(this.#withRepeat(term))
      }
    }
    nodes.push({ kind: 'sequence', nodes: sequence })
    const [first, second] = sequence
    if (nodes.length > 1) return { kind: 'choice', nodes }
    return first !== undefined && second === undefined ? first : { kind: 'sequence', nodes: sequence }
  }

  /** Null for a group of flags, which only changes how the following text is read. */
  #term(): Node | null {
    const code = this.#text.codePointAt(this.#position) ?? 0
    const character = String.fromCodePoint(code)
    this.#position += character.length
    switch (character) {
      case '(':
        return this.#group()
      case '[':
        return { kind: 'set', set: this.#class() }
      case '\\':
        return this.#escape()
      case '.':
        return { kind: 'set', set: this.#flags.dotAll ? ALL_CHARACTERS : NOT_LINE_FEED }
      case '^':
        return { kind: 'assertion', assertion: this.#flags.lines ? 'line-start' : 'start' }
      case '$':
        return { kind: 'assertion', assertion: this.#flags.lines ? 'line-end' : 'end' }
      case '*':
      case '+':
      case '?':
      case '{':
        throw new NotSupported()
      default:
        return { kind: 'set', set: this.#withCases([code, code]) }
    }
  }

  #withCases(set: Characters): Characters {
    if (!this.#flags.anyCase) return set
    const folded = inAnyCase(set)
    if (folded === null) throw new NotSupported()
    return folded
  }

  #group(): Node | null {
    const outer = this.#flags
    if (this.#text[this.#position] === '?') {
      const head = /\?(?:P?<\w{1,100}>|([ims]{0,3})(?:-([ims]{1,3}))?([:)]))/y
      head.lastIndex = this.#position
      const match = head.exec(this.#text)
      if (match === null) throw new NotSupported()
      this.#position += match[0].length
      const [, setFlags = '', clearedFlags = '', end] = match
      const flag = (letter: string, isSet: boolean): boolean =>
        clearedFlags.includes(letter) ? false : setFlags.includes(letter) || isSet
      this.#flags = {
        anyCase: flag('i', outer.anyCase),
        dotAll: flag('s', outer.dotAll),
        lines: flag('m', outer.lines),
      }
      if (end === ')') return null
    }
    const node = this.#choice()
    if (this.#text[this.#position] !== ')') throw new NotSupported()
    this.#position++
    this.#flags = outer
    return node
  }

  #escape(): Node {
    const letter = this.#text[this.#position] ?? ''
    if (letter === 'b' || letter === 'A' || letter === 'z') {
      this.#position++
      return { kind: 'assertion', assertion: letter === 'b' ? 'word' : letter === 'A' ? 'start' : 'end' }
    }
    return { kind: 'set', set: this.#escapedSet() }
  }

  /** After a backslash: a one-letter class, or a character. */
  #escapedSet(): Characters {
    const letter = this.#text[this.#position] ?? ''
    const namedClass = CLASSES[letter]
    if (namedClass !== undefined) {
      this.#position++
      // If case is ignored, a negated class excludes every case of its characters.
      const isNegated = letter < 'a'
      return isNegated ? negate(this.#withCases(negate(namedClass))) : this.#withCases(namedClass)
    }
    const code = this.#escapedCode()
    return this.#withCases([code, code])
  }

  #escapedCode(): number {
    const letter = this.#text[this.#position++] ?? ''
    const control = CONTROLS[letter]
    if (control !== undefined) return control
    if (letter === 'x') {
      const digits = /(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}))/y
      digits.lastIndex = this.#position
      const match = digits.exec(this.#text)
      const code = Number.parseInt(match?.[1] ?? match?.[2] ?? '', 16)
      if (match === null || code > 0x10ffff) throw new NotSupported()
      this.#position += match[0].length
      return code
    }
    if (!PUNCTUATION.test(letter)) throw new NotSupported()
    return letter.charCodeAt(0)
  }

  #class(): Characters {
    const isNegated = this.#text[this.#position] === '^'
    if (isNegated) this.#position++
    let set = NO_CHARACTERS
    for (let isFirst = true; ; isFirst = false) {
      const character = this.#text[this.#position]
      if (character === undefined) throw new NotSupported()
      if (character === ']' && !isFirst) break
      if (character === '[' && this.#text[this.#position + 1] === ':') throw new NotSupported()
      set = union(set, this.#range())
    }
    this.#position++
    return isNegated ? negate(set) : set
  }

  #range(): Characters {
    if (this.#text[this.#position] === '\\' && CLASSES[this.#text[this.#position + 1] ?? ''] !== undefined) {
      this.#position++
      const set = this.#escapedSet()
      if (this.#text[this.#position] === '-' && this.#text[this.#position + 1] !== ']')
        throw new NotSupported()
      return set
    }
    const first = this.#member()
    let last = first
    if (this.#text[this.#position] === '-' && this.#text[this.#position + 1] !== ']') {
      this.#position++
      if (this.#text[this.#position] === '\\' && CLASSES[this.#text[this.#position + 1] ?? ''] !== undefined)
        throw new NotSupported()
      last = this.#member()
    }
    if (last < first) throw new NotSupported()
    return this.#withCases([first, last])
  }

  #member(): number {
    const code = this.#text.codePointAt(this.#position)
    if (code === undefined) throw new NotSupported()
    this.#position += code > 0xffff ? 2 : 1
    return code === 0x5c ? this.#escapedCode() : code
  }

  #withRepeat(node: Node): Node {
    QUANTIFIER.lastIndex = this.#position
    const match = QUANTIFIER.exec(this.#text)
    if (match === null) return node
    this.#position += match[0].length
    const [, sign, lower, comma, upper, lazy] = match
    const min = sign === undefined ? Number(lower) : sign === '+' ? 1 : 0
    const upperBound = comma === undefined ? min : upper === '' ? Number.POSITIVE_INFINITY : Number(upper)
    const max = sign === undefined ? upperBound : sign === '?' ? 1 : Number.POSITIVE_INFINITY
    // Engines treat the repeat of an empty expression differently.
    if (max < min || max === 0 || shortestMatch(node) === 0) throw new NotSupported()
    QUANTIFIER.lastIndex = this.#position
    if (QUANTIFIER.test(this.#text)) throw new NotSupported()
    return { kind: 'repeat', node, min, max, isLazy: lazy === '?' }
  }
}
