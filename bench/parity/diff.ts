/** Differences between two texts, short enough for a list. Pure. */

const AROUND = 60

/** The first place where two texts differ, with what surrounds it; null when they are equal. */
export function shortDiff(before: string, after: string): string | null {
  if (before === after) return null
  const [a, b] = [before.split('\n'), after.split('\n')]
  const lines = Math.max(a.length, b.length)
  let first = 0
  while (first < lines && a[first] === b[first]) first++
  let differing = 0
  for (let at = first; at < lines; at++) if (a[at] !== b[at]) differing++
  const more = differing > 1 ? `, and ${differing - 1} more` : ''
  const at = firstDifference(a[first] ?? '', b[first] ?? '')
  return [`line ${first + 1}${more}`, `- ${excerpt(a[first], at)}`, `+ ${excerpt(b[first], at)}`].join('\n')
}

function firstDifference(a: string, b: string): number {
  let at = 0
  while (at < a.length && a[at] === b[at]) at++
  return at
}

function excerpt(line: string | undefined, at: number): string {
  if (line === undefined) return '(no such line)'
  const from = Math.max(0, at - AROUND)
  const to = at + AROUND
  return `${from > 0 ? '…' : ''}${line.slice(from, to)}${to < line.length ? '…' : ''}`
}
