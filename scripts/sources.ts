/** The lists of docs/sources.md: every source file with the first sentence of its head, folder by folder. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

const SRC = join(import.meta.dirname, '../src')

/** The first sentence of the comment at the head of a file; null if there is none. */
export function firstSentence(source: string): string | null {
  const [, comment = ''] = /^(?:#!.*\n)?\/\*\*(.*?)\*\//s.exec(source) ?? []
  const text = comment
    .split('\n')
    .map(line => line.replace(/^\s*\*? ?/, ''))
    .join(' ')
    .replace(/\s+/g, ' ')
    .trim()
  // Not behind an abbreviation: a sentence begins with a capital letter, a number or code.
  const [sentence = ''] = /^.+?[.!?](?= [A-Z0-9`"'(]|$)/.exec(text) ?? []
  return sentence === '' ? null : sentence
}

/** Files of a folder, from there, in the order of their names. */
const filesOf = (folder: string): readonly string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && /\.(?:ts|js)$/.test(entry.name))
    .map(entry => relative(folder, join(entry.parentPath, entry.name)))
    .sort()

/** @throws Error that names each file without a first sentence */
export function sourcesList(folder = SRC): string {
  const sentences = filesOf(folder).map(
    file => [file, firstSentence(readFileSync(join(folder, file), 'utf8'))] as const,
  )
  const faults = sentences.filter(([, sentence]) => sentence === null).map(([file]) => file)
  if (faults.length > 0) throw new Error(`no first sentence at the head of ${faults.join(', ')}`)
  const rooms = Map.groupBy(sentences, ([file]) => dirname(file))
  return [...rooms]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([room, rows]) => {
      const title = room === '.' ? 'src' : `src/${room}`
      const list = rows.map(
        ([file, sentence]) => `- \`${file.slice(file.lastIndexOf('/') + 1)}\`: ${sentence}`,
      )
      return `## ${title}\n\n${list.join('\n')}\n`
    })
    .join('\n')
}
