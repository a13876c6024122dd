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

/** An object with more numbers is a table of data. */
const OBJECT_NUMBERS_MAX = 12
/** Names of our own. Other names in an object are those of a document or of data. */
const FIELD = /^[a-z][A-Za-z\d]*$/
/** Numbers in objects there are those of examples. */
const EXAMPLES = /^api\/openapi\//
const NUMBER = /^[A-Z\d][\w.]*(?: [*/+-] [\w.]+)*$/
/** A number, or an object to the brace that closes it, at the beginning of a line or in its only line. */
const CONSTANT =
  /(?:\/\*\*((?:(?!\*\/).)*)\*\/\n)?^(?:export )?const ([A-Z][A-Z0-9_]*)(?:: [^\n]+?)? =\s+(?:([\w.]+(?: [*/+-] [\w.]+)*)$|(\{(?:[^\n]+\}|\n.*?^\}))(?: as const| satisfies [^\n]+)*$)/gms
/** In an object: comments, texts, brackets, separators, and what lies between. */
const TOKEN = /\/\*\*?(.*?)\*\/|\/\/[^\n]*|'(?:\\.|[^'\\])*'|`[^`]*`|[{}[\](),:]|[^\s{}[\](),:'`/]+|\//gs

interface Constant {
  /** Of a number in an object with its path, such as `RESTART.firstMs`. */
  readonly name: string
  readonly value: string
  readonly meaning: string
}

/**
 * The numbers that a file gives a name in upper case, alone or in an object, each with its comment, in their order. Of
 * objects those that are data are left out, and zeros, with which counts begin.
 */
export function constantsOf(source: string): readonly Constant[] {
  return [...source.matchAll(CONSTANT)].flatMap(([, comment = '', name = '', value = '', object]) => {
    if (object === undefined) return isNumber(value) ? [{ name, value, meaning: textOf(comment) }] : []
    const all = numbersIn(name, object)
    const isData = all.length > OBJECT_NUMBERS_MAX || all.some(({ name }) => !isOurs(name))
    const [first, ...others] = isData ? [] : all.filter(({ value }) => value !== '0')
    if (first === undefined) return []
    return [first.meaning === '' ? { ...first, meaning: textOf(comment) } : first, ...others]
  })
}

const isOurs = (path: string): boolean =>
  path
    .split('.')
    .slice(1)
    .every(name => FIELD.test(name))

const isNumber = (text: string): boolean => NUMBER.test(text) && /\d/.test(text)

const textOf = (comment: string): string => comment.replace(/\s*\n\s*\*?\s*/g, ' ').trim()

/** The numbers in an object and in the objects in it, but not in lists and calls. */
function numbersIn(name: string, object: string): readonly Constant[] {
  const found: Constant[] = []
  /** Names of the open objects; null: another bracket. */
  const open: (string | null)[] = []
  let key: string | null = null
  let words: string[] = []
  let meaning = ''
  const endField = (): void => {
    const value = words.join(' ')
    if (key !== null && isNumber(value)) found.push({ name: [...open, key].join('.'), value, meaning })
    if (key !== null) meaning = ''
    key = null
    words = []
  }
  for (const [token, comment] of object.matchAll(TOKEN)) {
    const isField = open.at(-1) !== null
    if (comment !== undefined) meaning = textOf(comment)
    else if (token.startsWith('//')) continue
    else if (token === '{' && open.length === 0) open.push(name)
    else if (token === '{' && isField && key !== null && words.length === 0) {
      open.push(key)
      key = null
    } else if ('{[('.includes(token)) open.push(null)
    else if ('}])'.includes(token)) {
      if (isField) endField()
      open.pop()
      words.push('…')
    } else if (!isField) continue
    else if (token === ',') endField()
    else if (token === ':' && key === null && words.length === 1) key = words.pop() ?? null
    else words.push(token)
  }
  return found
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

/** Every number with a name, with its value and its comment; of examples no numbers in objects. */
export function constantsList(folder = SRC): string {
  return byRoom(
    filesOf(folder).flatMap(file =>
      constantsOf(readFileSync(join(folder, file), 'utf8'))
        .filter(({ name }) => !(name.includes('.') && EXAMPLES.test(file)))
        .map(({ name, value, meaning }): readonly [string, string] => [
          file,
          ` \`${name} = ${value}\`${meaning && `: ${meaning}`}`,
        ]),
    ),
  )
}

/** A chapter for each folder, a line for each row: a file, and what follows its name. */
function byRoom(rows: readonly (readonly [file: string, text: string])[]): string {
  return [...Map.groupBy(rows, ([file]) => dirname(file))]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([folder, lines]) => {
      const title = folder === '.' ? 'src' : `src/${folder}`
      const list = lines.map(([file, text]) => `- \`${file.slice(file.lastIndexOf('/') + 1)}\`${text}`)
      return `## ${title}\n\n${list.join('\n')}\n`
    })
    .join('\n')
}
