/**
 * Model names without a vendor, such as `claude-opus-4-5`: finds the matching ids. Only rows of the configuration
 * define what such a bare name means, so that imports and provider lists never change it. Pure.
 *
 * A name belongs to the author of its family, found first by a row and then by a wildcard. Any other name must be the
 * end of exactly one row's id. Dots and dashes in a version are equivalent; the date of a version and `-latest` are
 * optional.
 */

/** Authors of model families, by the beginning of model names. */
const FAMILIES: readonly (readonly [RegExp, string])[] = [
  [/^claude-/, 'anthropic'],
  [/^(?:gpt|chatgpt|codex|text-embedding)-|^o\d/, 'openai'],
  [/^(?:gemini|gemma)-/, 'google'],
  [/^grok-/, 'x-ai'],
  [/^(?:mistral|codestral)-/, 'mistralai'],
  [/^deepseek-/, 'deepseek'],
  [/^qwen/, 'qwen'],
]

/** A row under one of its names. */
export interface NamedRow {
  /** With a slash, its end is the bare name; otherwise the name itself is. */
  readonly name: string
  /** Id of the model. */
  readonly id: string
}

/** The ids that a bare name may mean. Empty: unknown; several: ambiguous. */
export type BareNames = (name: string) => readonly string[]

const NO_IDS: readonly string[] = []

/**
 * @param rows of the configuration, including aliases with a slash, without wildcards
 * @param covers true for an id that a wildcard covers
 */
export function createBareNames(rows: Iterable<NamedRow>, covers: (id: string) => boolean): BareNames {
  const allNames = new NameIndex()
  const byAuthor = new Map<string, NameIndex>()
  for (const { name, id } of rows) {
    const author = name.slice(0, name.indexOf('/'))
    const bareName = name.slice(name.lastIndexOf('/') + 1)
    allNames.add(bareName, id)
    let authorNames = byAuthor.get(author)
    if (authorNames === undefined) {
      authorNames = new NameIndex()
      byAuthor.set(author, authorNames)
    }
    authorNames.add(bareName, id)
  }
  return name => {
    if (name.includes('/')) return NO_IDS
    const author = FAMILIES.find(([begins]) => begins.test(name))?.[1]
    if (author !== undefined) {
      const authorIds = byAuthor.get(author)?.find(name) ?? NO_IDS
      if (authorIds.length > 0) return authorIds
      const id = `${author}/${name}`
      if (covers(id)) return [id]
    }
    return allNames.find(name)
  }
}

/** Ends of ids in normalized spelling, without the parts that a request may leave out. */
class NameIndex {
  readonly #exact = new Map<string, string[]>()
  readonly #short = new Map<string, string[]>()

  add(name: string, id: string): void {
    const exactName = normalize(name)
    add(this.#exact, exactName, id)
    const shortName = shorten(exactName)
    if (shortName !== exactName) add(this.#short, shortName, id)
  }

  /** Only the best matches: the same version, or else the name without a date, or else a name with another ending. */
  find(name: string): readonly string[] {
    const exactName = normalize(name)
    const exact = this.#exact.get(exactName)
    if (exact !== undefined) return exact
    const shortName = shorten(exactName)
    if (shortName === exactName) return this.#short.get(exactName) ?? NO_IDS
    const undatedMatch = this.#exact.get(shortName)
    if (undatedMatch !== undefined) return undatedMatch
    // `latest` matches any version; a date matches only that version.
    return exactName.endsWith(LATEST_SUFFIX) ? (this.#short.get(shortName) ?? NO_IDS) : NO_IDS
  }
}

function add(map: Map<string, string[]>, name: string, id: string): void {
  const ids = map.get(name)
  if (ids === undefined) map.set(name, [id])
  else if (!ids.includes(id)) ids.push(id)
}

const LATEST_SUFFIX = '-latest'

/** Replaces dots between the digits of a version by dashes. */
function normalize(name: string): string {
  return name.replace(/(?<=\d)\.(?=\d)/g, '-')
}

function shorten(name: string): string {
  return name.replace(/-(?:\d{8}|latest)$/, '')
}
