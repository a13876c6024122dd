/**
 * Finds citations of the gateway's own web results in a text: Markdown links, bare URLs, and numbered references such
 * as `[2]`. Reads each character once, however the text is split into pieces. Pure.
 */
import type { Citable, UrlCitationAnnotation } from '../../../protocol/parts.ts'

/** Maximum number of citations in one answer: each repeats the title and the content of its result. */
const CITATIONS_MAX = 1_000
const ADDRESS_MAX_CHARS = 4_096
const LABEL_MAX_CHARS = 1_000

/** The results that an answer may cite, and the number of its citations. */
export class CitableResults {
  readonly #byAddress = new Map<string, { readonly result: Citable; readonly number: number }>()
  readonly #numbered: Citable[] = []
  /** Results that stand for the whole text if it names none of them. */
  readonly #ofWhole: Citable[] = []
  #count = 0
  #countBefore = 0

  /**
   * Adds results, and returns their numbers; a page that was found before keeps its number. `ofWhole`: they were part
   * of the prompt, so a text that names none of them is based on all.
   */
  add(results: readonly Citable[], ofWhole: boolean): readonly number[] {
    return results.map(result => {
      const address = addressOf(result.url) ?? result.url
      const known = this.#byAddress.get(address)
      if (known !== undefined) return known.number
      const number = this.#numbered.push(result)
      this.#byAddress.set(address, { result, number })
      if (ofWhole) this.#ofWhole.push(result)
      return number
    })
  }

  openTurn(): void {
    this.#countBefore = this.#count
  }

  dropTurn(): void {
    this.#count = this.#countBefore
  }

  byAddress(url: string): Citable | null {
    const address = addressOf(url)
    return address === null ? null : (this.#byAddress.get(address)?.result ?? null)
  }

  /** Counted from 1, in the order in which they were found. */
  byNumber(number: number): Citable | null {
    return this.#numbered[number - 1] ?? null
  }

  /** Cites a result at a position; null if the answer has reached its maximum. */
  cite(result: Citable, start: number, end: number): UrlCitationAnnotation | null {
    if (this.#count >= CITATIONS_MAX) return null
    this.#count++
    return { ...result, start_index: start, end_index: end }
  }

  /** Cites results for a whole text, if the answer has no citations so far. */
  citeWhole(length: number): readonly UrlCitationAnnotation[] {
    if (this.#count > 0 || length === 0) return []
    return this.#ofWhole.flatMap(result => this.cite(result, 0, length) ?? [])
  }
}

/** Differences in scheme, fragment, trailing slash and case of the host do not make another page. */
function addressOf(url: string): string | null {
  if (!URL.canParse(url)) return null
  const { host, pathname, search } = new URL(url)
  return `${host}${pathname.endsWith('/') ? pathname.slice(0, -1) : pathname}${search}`
}

type Place = 'text' | 'label' | 'after-label' | 'target' | 'target-rest' | 'after-link'

interface FoundCitation {
  readonly results: readonly Citable[]
  readonly start: number
  readonly end: number
}

const NONE: readonly UrlCitationAnnotation[] = []

const SCHEME = /https?$/i
/** These end an address in running text. */
const ENDS_ADDRESS = /[\s<>"`{}|\\^[\]。，、；：！？（）「」『』【】]/
/** These end a sentence, not an address. */
const TRAILING: ReadonlySet<string> = new Set(".,;:!?'*_~")
const NUMBERS = /^\[?\d{1,3}(?:\s?,\s?\d{1,3}){0,9}\]?$/

/** Reads one text. `push` and `end` return the citations that are complete, in the order of their ends. */
export class CitationScanner {
  readonly #results: CitableResults
  #found: UrlCitationAnnotation[] = []
  #place: Place = 'text'
  /** Characters read so far. */
  #at = 0
  #before = ''
  /** The last letters, which may form a URL scheme. */
  #letters = ''
  /** A URL in running text, with its start; null if none is open. */
  #address: { readonly start: number; text: string; parens: number } | null = null
  #labelStart = 0
  #isWrapped = false
  #label = ''
  #target = ''
  /** Open brackets of a label, or open parentheses of a URL. */
  #depth = 0
  /** References in a label; they count unless the label belongs to a link. */
  #inLabel: FoundCitation[] = []
  /** A link in a parenthesis that may close after it. */
  #link: FoundCitation | null = null
  #backticks = 0
  #isFenced = false
  #isQuoted = false

  constructor(results: CitableResults) {
    this.#results = results
  }

  push(text: string): readonly UrlCitationAnnotation[] {
    for (let at = 0; at < text.length; at++) {
      const character = text.charAt(at)
      this.#countBackticks(character)
      this.#read(character)
      this.#before = character
      this.#at++
    }
    return this.#drain()
  }

  end(): readonly UrlCitationAnnotation[] {
    this.#endAddress()
    if (this.#place === 'after-label') this.#endReference()
    if (this.#link !== null) this.#add(this.#link)
    this.#link = null
    this.#leaveLabel()
    for (const citation of this.#results.citeWhole(this.#at)) this.#found.push(citation)
    return this.#drain()
  }

  #drain(): readonly UrlCitationAnnotation[] {
    if (this.#found.length === 0) return NONE
    const found = this.#found
    this.#found = []
    return found
  }

  #read(character: string): void {
    switch (this.#place) {
      case 'text':
        this.#takeText(character)
        return
      case 'label':
        this.#takeLabel(character)
        return
      case 'after-label':
        this.#takeAfterLabel(character)
        return
      case 'target':
      case 'target-rest':
        this.#takeTarget(character)
        return
      case 'after-link':
        this.#takeAfterLink(character)
    }
  }

  #takeText(character: string): void {
    this.#readAddress(character)
    if (character === '[') this.#openLabel()
  }

  #openLabel(): void {
    this.#place = 'label'
    this.#labelStart = this.#at
    this.#isWrapped = this.#before === '('
    this.#label = ''
    this.#depth = 1
  }

  #takeLabel(character: string): void {
    this.#readAddress(character)
    if (character === '[') {
      // `[[1]](address)` is one label; any other bracket begins a new one.
      if (this.#label === '') this.#depth++
      else {
        this.#leaveLabel()
        this.#openLabel()
        return
      }
    } else if (character === ']') this.#depth--
    if (this.#depth === 0) this.#place = 'after-label'
    else if (this.#label.length >= LABEL_MAX_CHARS || (character === '\n' && this.#before === '\n'))
      this.#leaveLabel()
    else this.#label += character
  }

  #takeAfterLabel(character: string): void {
    if (character === '(') {
      this.#target = ''
      this.#depth = 1
      this.#place = 'target'
      return
    }
    // `[1]: address` defines a reference, and the address is read separately.
    if (character !== ':') this.#endReference()
    this.#leaveLabel()
    this.#takeText(character)
  }

  /** The URL of a link, and a title after it. */
  #takeTarget(character: string): void {
    if (character === '(') this.#depth++
    else if (character === ')') this.#depth--
    if (this.#depth === 0) {
      this.#endLink()
      return
    }
    if (character === '\n' || this.#target.length >= ADDRESS_MAX_CHARS) {
      this.#leaveLabel()
      return
    }
    if (this.#target !== '' && (character === ' ' || character === '\t')) this.#place = 'target-rest'
    if (this.#place === 'target') this.#target += character
  }

  #endLink(): void {
    const target = this.#target.trim()
    const isPointed = target.startsWith('<') && target.endsWith('>')
    const result = this.#results.byAddress(isPointed ? target.slice(1, -1) : target)
    if (result === null) {
      this.#leaveLabel()
      return
    }
    this.#inLabel = []
    const link = { results: [result], start: this.#labelStart, end: this.#at + 1 }
    this.#place = this.#isWrapped ? 'after-link' : 'text'
    if (this.#isWrapped) this.#link = link
    else this.#add(link)
  }

  /** `([title](address))`: the parentheses belong to the link if they contain nothing else. */
  #takeAfterLink(character: string): void {
    const link = this.#link
    this.#link = null
    this.#place = 'text'
    if (link !== null)
      this.#add(character === ')' ? { ...link, start: link.start - 1, end: link.end + 1 } : link)
    if (character !== ')') this.#takeText(character)
  }

  /** A label without a URL is a reference if it has only numbers. */
  #endReference(): void {
    if (this.#isFenced || this.#isQuoted || !NUMBERS.test(this.#label)) return
    const numbers = this.#label.replaceAll(/[[\]]/g, '').split(',')
    const results = numbers.flatMap(number => this.#results.byNumber(Number(number)) ?? [])
    if (results.length === numbers.length)
      this.#inLabel.push({ results, start: this.#labelStart, end: this.#at })
  }

  /** Returns to running text, and reports the references in the label. */
  #leaveLabel(): void {
    for (const found of this.#inLabel) this.#add(found)
    this.#inLabel = []
    this.#place = 'text'
  }

  #readAddress(character: string): void {
    const open = this.#address
    if (open === null) {
      this.#readScheme(character)
      return
    }
    const closes = character === ')' && open.parens === 0
    if (closes || ENDS_ADDRESS.test(character) || open.text.length >= ADDRESS_MAX_CHARS) {
      this.#endAddress()
      return
    }
    if (character === '(') open.parens++
    else if (character === ')') open.parens--
    open.text += character
  }

  #readScheme(character: string): void {
    if (character === ':' && SCHEME.test(this.#letters)) {
      const scheme = this.#letters.toLowerCase().endsWith('s') ? 5 : 4
      const text = `${this.#letters.slice(-scheme)}:`
      this.#address = { start: this.#at - scheme, text, parens: 0 }
      this.#letters = ''
      return
    }
    const isLetter = (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z')
    this.#letters = isLetter ? (this.#letters + character).slice(-5) : ''
  }

  #endAddress(): void {
    const open = this.#address
    if (open === null) return
    this.#address = null
    let end = open.text.length
    while (TRAILING.has(open.text.charAt(end - 1))) end--
    const text = open.text.slice(0, end)
    const result = this.#results.byAddress(text)
    if (result === null) return
    const found = { results: [result], start: open.start, end: open.start + text.length }
    if (this.#place === 'text') this.#add(found)
    else this.#inLabel.push(found)
  }

  #add({ results, start, end }: FoundCitation): void {
    for (const result of results) {
      const citation = this.#results.cite(result, start, end)
      if (citation !== null) this.#found.push(citation)
    }
  }

  /** Brackets in code, such as `list[1]`, are not references. */
  #countBackticks(character: string): void {
    if (character === '`') {
      this.#backticks++
      return
    }
    if (this.#backticks >= 3) this.#isFenced = !this.#isFenced
    else if (this.#backticks > 0 && !this.#isFenced) this.#isQuoted = !this.#isQuoted
    this.#backticks = 0
    if (character === '\n') this.#isQuoted = false
  }
}
