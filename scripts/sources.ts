/** Generates the lists of docs/sources.md: every source file with its head comment, folder by folder. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

const SRC = join(import.meta.dirname, '../src')

/** The first paragraph of the comment at the head of a file, in one line; null if there is none. */
export function headOf(source: string): string | null {
  const [, comment = ''] = /^(?:#!.*\n)?\/\*\*(.*?)\*\//s.exec(source) ?? []
  const lines = comment.split('\n').map(line => line.replace(/^\s*\*? ?/, '').trim())
  if (lines[0] === '') lines.shift()
  const end = lines.indexOf('')
  const text = (end === -1 ? lines : lines.slice(0, end)).join(' ').trim()
  // Not the beginning of a list that follows.
  return /^.*[.!?](?= |$)/.exec(text)?.[0] ?? null
}

/** Files of a folder, from there, in the order of their names. */
const filesOf = (folder: string): readonly string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && /\.(?:ts|js)$/.test(entry.name))
    .map(entry => relative(folder, join(entry.parentPath, entry.name)))
    .sort()

/** @throws Error that names each file without a head */
export function sourcesList(folder = SRC): string {
  const heads = filesOf(folder).map(file => [file, headOf(readFileSync(join(folder, file), 'utf8'))] as const)
  const faults = heads.filter(([, head]) => head === null).map(([file]) => file)
  if (faults.length > 0)
    throw new Error(`no comment that ends in a full stop at the head of ${faults.join(', ')}`)
  const rooms = Map.groupBy(heads, ([file]) => dirname(file))
  return [...rooms]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([room, rows]) => {
      const title = room === '.' ? 'src' : `src/${room}`
      const list = rows.map(([file, head]) => `- \`${file.slice(file.lastIndexOf('/') + 1)}\`: ${head}`)
      return `## ${title}\n\n${list.join('\n')}\n`
    })
    .join('\n')
}
