/**
 * Patterns of model ids in router settings: `*` matches any text, anywhere. A pattern is matched in linear time,
 * without a regular expression. Pure.
 */
export interface Patterns {
  matches(id: string): boolean
}

/** Null if no patterns were given. */
export function patternsOf(...lists: readonly (readonly string[] | null | undefined)[]): Patterns | null {
  const patterns = lists.flatMap(list => list ?? [])
  if (patterns.length === 0) return null
  const exactIds = new Set<string>()
  const wildcards = new Map<string, readonly string[]>()
  for (const pattern of patterns) {
    if (pattern.includes('*')) wildcards.set(pattern, pattern.split(/\*+/))
    else exactIds.add(pattern)
  }
  const parts = [...wildcards.values()]
  return { matches: id => exactIds.has(id) || parts.some(parts => matchesParts(id, parts)) }
}

/** The texts between the stars follow each other in the id; the first begins it and the last ends it. */
function matchesParts(id: string, parts: readonly string[]): boolean {
  const first = parts[0] ?? ''
  const last = parts.at(-1) ?? ''
  if (first.length + last.length > id.length || !id.startsWith(first) || !id.endsWith(last)) return false
  let position = first.length
  const end = id.length - last.length
  for (let index = 1; index < parts.length - 1; index++) {
    const part = parts[index] ?? ''
    const start = id.indexOf(part, position)
    if (start === -1 || start + part.length > end) return false
    position = start + part.length
  }
  return true
}
