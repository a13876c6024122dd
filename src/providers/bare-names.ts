/**
 * Model names without a vendor, such as `claude-opus-4-5`: finds the matching ids. Only rows of the configuration
 * define the meaning of a bare name, so that imports and provider lists never change it. Pure.
 *
 * A name belongs to the author of its family, found first by a row and then by a wildcard; any other name must be the
 * end of exactly one row's id. Dots and dashes in a version are equivalent; the date of a version and `-latest` are
 * optional.
 */

/** Authors of families, by how the names of their models begin. */
const FAMILIES: readonly (readonly [RegExp, string])[] = [
  [/^claude-/, 'anthropic'],
  [/^(?:gpt|chatgpt|codex|text-embedding)-|^o\d/, 'openai'],
  [/^(?:gemini|gemma)-/, 'google'],
  [/^grok-/, 'x-ai'],
  [/^(?:mistral|codestral)-/, 'mistralai'],
  [/^deepseek-/, 'deepseek'],
  [/^qwen/, 'qwen'],
]

/** A row by one of its names. */
export interface NamedRow {
  /** With a slash, else it is found as it is. */
  readonly name: string
  /** The id of its model. */
  readonly id: string
}

/** The ids that a bare name may mean. None: it means nothing; several: it is ambiguous. */
export type BareNames = (name: string) => readonly string[]

const NONE: readonly string[] = []

/**
 * @param rows of the configuration, aliases with a slash included, wildcards not
 * @param covers true for an id that a wildcard covers
 */
export function createBareNames(rows: Iterable<NamedRow>, covers: (id: string) => boolean): BareNames {
  const all = new Names()
  const byAuthor = new Map<string, Names>()
  for (const { name, id } of rows) {
    const author = name.slice(0, name.indexOf('/'))
    const bare = name.slice(name.lastIndexOf('/') + 1)
    all.add(bare, id)
    let own = byAuthor.get(author)
    if (own === undefined) {
      own = new Names()
      byAuthor.set(author, own)
    }
    own.add(bare, id)
  }
  return name => {
    if (name.includes('/')) return NONE
    const author = FAMILIES.find(([begins]) => begins.test(name))?.[1]
    if (author !== undefined) {
      const own = byAuthor.get(author)?.find(name) ?? NONE
      if (own.length > 0) return own
      const id = `${author}/${name}`
      if (covers(id)) return [id]
    }
    return all.find(name)
  }
}

/** Ends of ids, in the spelling of rows and without the parts that a request may leave out. */
class Names {
  readonly #exact = new Map<string, string[]>()
  readonly #short = new Map<string, string[]>()

  add(name: string, id: string): void {
    const spelt = oneSpelling(name)
    put(this.#exact, spelt, id)
    const short = shortened(spelt)
    if (short !== spelt) put(this.#short, short, id)
  }

  /** The nearest ones alone: the same version before one without a date, and that before one with another ending. */
  find(name: string): readonly string[] {
    const spelt = oneSpelling(name)
    const exact = this.#exact.get(spelt)
    if (exact !== undefined) return exact
    const short = shortened(spelt)
    if (short === spelt) return this.#short.get(spelt) ?? NONE
    const dateless = this.#exact.get(short)
    if (dateless !== undefined) return dateless
    // The latest is any one that there is; a date is that version and no other.
    return spelt.endsWith(LATEST) ? (this.#short.get(short) ?? NONE) : NONE
  }
}

function put(map: Map<string, string[]>, name: string, id: string): void {
  const ids = map.get(name)
  if (ids === undefined) map.set(name, [id])
  else if (!ids.includes(id)) ids.push(id)
}

const LATEST = '-latest'

/** Dots between the digits of a version are dashes. */
function oneSpelling(name: string): string {
  return name.replace(/(?<=\d)\.(?=\d)/g, '-')
}

function shortened(name: string): string {
  return name.replace(/-(?:\d{8}|latest)$/, '')
}
