/**
 * Finds citations of the gateway's own web results in a text: Markdown links, bare URLs, and numbered references such
 * as `[2]`. Reads each character once, however the text is split into pieces. Pure.
 */
import type { Citable, UrlCitationAnnotation } from '../../../protocol/parts.ts'

/** Maximum number of citations in one answer: each repeats the title and the content of its result. */
const MAX_CITATIONS = 1_000
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
      const existing = this.#byAddress.get(address)
      if (existing !== undefined) return existing.number
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
    if (this.#count >= MAX_CITATIONS) return null
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

type ScanState = 'text' | 'label' | 'after-label' | 'target' | 'target-rest' | 'after-link'

interface FoundCitation {
  readonly results: readonly Citable[]
  readonly start: number
  readonly end: number
}

const NO_CITATIONS: readonly UrlCitationAnnotation[] = []

const URL_SCHEME = /https?$/i
/** These end an address in running text. */
const ADDRESS_END = /[\s<>"`{}|\\^[\]。，、；：！？（）「」『』【】]/
/** These end a sentence, not an address. */
const SENTENCE_ENDS: ReadonlySet<string> = new Set(".,;:!?'*_~")
const REFERENCE_NUMBERS = /^\[?\d{1,3}(?:\s?,\s?\d{1,3}){0,9}\]?$/

/** Reads one text. `push` and `end` return the citations that are complete, in the order of their ends. */
export class CitationScanner {
  readonly #results: CitableResults
  #citations: UrlCitationAnnotation[] = []
  #state: ScanState = 'text'
  /** Characters read so far. */
  #position = 0
  #previous = ''
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
  #labelCitations: FoundCitation[] = []
  /** A link in a parenthesis that may close after it. */
  #link: FoundCitation | null = null
  #backticks = 0
  #isFenced = false
  #isQuoted = false

  constructor(results: CitableResults) {
    this.#results = results
  }

  push(text: string): readonly UrlCitationAnnotation[] {
    for (let index = 0; index < text.length; index++) {
      const character = text.charAt(index)
      this.#countBackticks(character)
      this.#read(character)
      this.#previous = character
      this.#position++
    }
    return this.#drain()
  }

  end(): readonly UrlCitationAnnotation[] {
    this.#endAddress()
    if (this.#state === 'after-label') this.#endReference()
    if (this.#link !== null) this.#add(this.#link)
    this.#link = null
    this.#leaveLabel()
    for (const citation of this.#results.citeWhole(this.#position)) this.#citations.push(citation)
    return this.#drain()
  }

  #drain(): readonly UrlCitationAnnotation[] {
    if (this.#citations.length === 0) return NO_CITATIONS
    const citations = this.#citations
    this.#citations = []
    return citations
  }

  #read(character: string): void {
    switch (this.#state) {
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
    this.#state = 'label'
    this.#labelStart = this.#position
    this.#isWrapped = this.#previous === '('
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
    if (this.#depth === 0) this.#state = 'after-label'
    else if (this.#label.length >= LABEL_MAX_CHARS || (character === '\n' && this.#previous === '\n'))
      this.#leaveLabel()
    else this.#label += character
  }

  #takeAfterLabel(character: string): void {
    if (character === '(') {
      this.#target = ''
      this.#depth = 1
      this.#state = 'target'
      return
    }
    // `[1]: address` defines a reference, and the address is read separately.
    if (character !== ':') this.#endReference()
    this.#leaveLabel()
    this.#takeText(character)
  }

  /** Reads the URL of a link, and skips a title after it. */
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
    if (this.#target !== '' && (character === ' ' || character === '\t')) this.#state = 'target-rest'
    if (this.#state === 'target') this.#target += character
  }

  #endLink(): void {
    const target = this.#target.trim()
    const isBracketed = target.startsWith('<') && target.endsWith('>')
    const result = this.#results.byAddress(isBracketed ? target.slice(1, -1) : target)
    if (result === null) {
      this.#leaveLabel()
      return
    }
    this.#labelCitations = []
    const link = { results: [result], start: this.#labelStart, end: this.#position + 1 }
    this.#state = this.#isWrapped ? 'after-link' : 'text'
    if (this.#isWrapped) this.#link = link
    else this.#add(link)
  }

  /** `([title](address))`: the parentheses belong to the link if they contain nothing else. */
  #takeAfterLink(character: string): void {
    const link = this.#link
    this.#link = null
    this.#state = 'text'
    if (link !== null)
      this.#add(character === ')' ? { ...link, start: link.start - 1, end: link.end + 1 } : link)
    if (character !== ')') this.#takeText(character)
  }

  /** A label without a URL is a reference if it has only numbers. */
  #endReference(): void {
    if (this.#isFenced || this.#isQuoted || !REFERENCE_NUMBERS.test(this.#label)) return
    const numbers = this.#label.replaceAll(/[[\]]/g, '').split(',')
    const results = numbers.flatMap(number => this.#results.byNumber(Number(number)) ?? [])
    if (results.length === numbers.length)
      this.#labelCitations.push({ results, start: this.#labelStart, end: this.#position })
  }

  /** Returns to running text, and reports the references in the label. */
  #leaveLabel(): void {
    for (const citation of this.#labelCitations) this.#add(citation)
    this.#labelCitations = []
    this.#state = 'text'
  }

  #readAddress(character: string): void {
    const openAddress = this.#address
    if (openAddress === null) {
      this.#readScheme(character)
      return
    }
    const closes = character === ')' && openAddress.parens === 0
    if (closes || ADDRESS_END.test(character) || openAddress.text.length >= ADDRESS_MAX_CHARS) {
      this.#endAddress()
      return
    }
    if (character === '(') openAddress.parens++
    else if (character === ')') openAddress.parens--
    openAddress.text += character
  }

  #readScheme(character: string): void {
    if (character === ':' && URL_SCHEME.test(this.#letters)) {
      const scheme = this.#letters.toLowerCase().endsWith('s') ? 5 : 4
      const text = `${this.#letters.slice(-scheme)}:`
      this.#address = { start: this.#position - scheme, text, parens: 0 }
      this.#letters = ''
      return
    }
    const isLetter = (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z')
    this.#letters = isLetter ? (this.#letters + character).slice(-5) : ''
  }

  #endAddress(): void {
    const openAddress = this.#address
    if (openAddress === null) return
    this.#address = null
    let end = openAddress.text.length
    while (SENTENCE_ENDS.has(openAddress.text.charAt(end - 1))) end--
    const text = openAddress.text.slice(0, end)
    const result = this.#results.byAddress(text)
    if (result === null) return
    const citation = { results: [result], start: openAddress.start, end: openAddress.start + text.length }
    if (this.#state === 'text') this.#add(citation)
    else this.#labelCitations.push(citation)
  }

  #add({ results, start, end }: FoundCitation): void {
    for (const result of results) {
      const citation = this.#results.cite(result, start, end)
      if (citation !== null) this.#citations.push(citation)
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
