/** Generates the lists of docs/sources.md and docs/constants.md: files with their head comments, and named numbers. */
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

const NUMBER =
  /(?:\/\*\*((?:(?!\*\/).)*)\*\/\n)?^(?:export )?const ([A-Z][A-Z0-9_]*) =\s+([\w.]+(?: [*/+-] [\w.]+)*)$/gms

/** The numbers that a file gives a name, each with its comment, in their order. */
export function constantsOf(source: string): readonly { name: string; value: string; meaning: string }[] {
  return [...source.matchAll(NUMBER)].flatMap(([, comment = '', name = '', value = '']) => {
    if (!/^[A-Z\d]/.test(value) || !/\d/.test(value)) return []
    return [{ name, value, meaning: comment.replace(/\s*\n\s*\*?\s*/g, ' ').trim() }]
  })
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
  return byRoom(heads.map(([file, head]) => [file, `: ${head}`]))
}

/** Every number with a name, with its value and its comment. */
export function constantsList(folder = SRC): string {
  return byRoom(
    filesOf(folder).flatMap(file =>
      constantsOf(readFileSync(join(folder, file), 'utf8')).map(
        ({ name, value, meaning }): readonly [string, string] => [
          file,
          ` \`${name} = ${value}\`${meaning && `: ${meaning}`}`,
        ],
      ),
    ),
  )
}

/** A chapter for each folder, a line for each row: a file, and what follows its name. */
function byRoom(rows: readonly (readonly [file: string, text: string])[]): string {
  return [...Map.groupBy(rows, ([file]) => dirname(file))]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([room, lines]) => {
      const title = room === '.' ? 'src' : `src/${room}`
      const list = lines.map(([file, text]) => `- \`${file.slice(file.lastIndexOf('/') + 1)}\`${text}`)
      return `## ${title}\n\n${list.join('\n')}\n`
    })
    .join('\n')
}
