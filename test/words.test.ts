/** Holds the words of docs/architecture.md: one word has one meaning, and one name has one type. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import t from 'tap'

const ROOT = resolve(import.meta.dirname, '..')
const SRC = join(ROOT, 'src')

/** Words that mean nothing of their own here, or only in their homes; the glossary has the word to use instead. */
const BANNED = ['Step', 'Look', 'Wire', 'Desk', 'Hand', 'Crew', 'Line', 'House', 'Remembered']
/** Names in which a banned word has its plain meaning. */
const ALLOWED: ReadonlySet<string> = new Set([
  // The body and the path of a provider request, before it has an address.
  'WireRequest',
  // Lines of the log.
  'ExchangeLine',
  // Lines of a reply of a batch service.
  'JsonLinesTerms',
  'RefusedLines',
  'jsonLines',
  // Steps of tools, as the interface counts them.
  'TOOL_STEPS_MAX',
  'FUSION_TOOL_STEPS_MAX',
  // Questions about the form of a text.
  'looksLikeJson',
  'looksLikePdf',
  // The tools of a request, not the dependencies of a class.
  'ServerTools',
  'EncodedTools',
])
/** Folders in which a banned word has the meaning of the glossary. */
const HOMES: Readonly<Record<string, RegExp>> = { Line: /^(batches|storage|sim)\// }

interface Export {
  readonly name: string
  readonly isType: boolean
  /** Below `src`. */
  readonly path: string
}

function exportsOf(file: string): Export[] {
  const declared = readFileSync(file, 'utf8').matchAll(
    /^export (?:declare |abstract |async )*(type|interface|class|const|let|function)\*? (\w+)/gm,
  )
  return [...declared].map(([, kind = '', name = '']) => ({
    name,
    isType: kind === 'type' || kind === 'interface' || kind === 'class',
    path: relative(SRC, file),
  }))
}

const exported = readdirSync(SRC, { recursive: true, withFileTypes: true })
  .filter(entry => entry.isFile() && entry.name.endsWith('.ts'))
  .flatMap(entry => exportsOf(join(entry.parentPath, entry.name)))

/** `SseParser` -> `Sse`, `Parser`; `MAX_LINES` -> `Max`, `Line`. */
function wordsOf(name: string): string[] {
  const words = /[a-z]/.test(name) ? name.split(/(?=[A-Z])/) : name.split('_')
  return words.map(word => (word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase()).replace(/s$/, ''))
}

/** `UsageRecords` and `usage records` -> `Record`. */
function lastWord(name: string): string {
  return wordsOf(name.split(' ').at(-1) ?? '').at(-1) ?? ''
}

function isBanned({ name, isType, path }: Export): boolean {
  const banned = wordsOf(name).filter(word => BANNED.includes(word) && HOMES[word]?.test(path) !== true)
  return banned.length > 0 || (isType && name.endsWith('Tools'))
}

/** Rows of the glossary: a word, its meaning, and the identifiers that stand for it. */
function glossary(): { word: string; identifiers: string[] }[] {
  const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8')
  const [, words = ''] = /\n## Words\n([\s\S]*?)\n## /.exec(page) ?? []
  return words
    .split('\n')
    .filter(line => line.startsWith('| **'))
    .map(line => line.split('|').slice(1, -1))
    .map(cells => ({
      word: (cells[0] ?? '').replaceAll('*', '').trim(),
      identifiers: [...(cells[2] ?? '').matchAll(/`(\w+)`/g)].map(([, name = '']) => name),
    }))
}

/** Words that need no row: their meaning is the plain one. */
function plainWords(): string[] {
  const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8')
  const [, words = ''] = /\nPlain words:\n\n```\n([\s\S]*?)\n```\n/.exec(page) ?? []
  return words.split(/\s+/)
}

t.test('no two exported types share a name', async t => {
  t.ok(exported.length > 100, 'the sources were found')
  const places = new Map<string, Set<string>>()
  for (const { name, isType, path } of exported) {
    if (isType) places.set(name, (places.get(name) ?? new Set()).add(path))
  }
  const shared = [...places].filter(([, paths]) => paths.size > 1)
  t.same(
    shared.map(([name, paths]) => `${name}: ${[...paths].join(', ')}`),
    [],
  )
})

t.test('the name of each exported type ends in a word of docs/architecture.md', async t => {
  const plain = plainWords()
  const known = new Set([
    ...plain.map(lastWord),
    ...glossary().flatMap(({ word, identifiers }) => [...word.split(', '), ...identifiers].map(lastWord)),
  ])
  const types = exported.filter(({ isType }) => isType)
  for (const { name, path } of types)
    if (!known.has(lastWord(name))) t.fail(`${name}: ${path}: ${lastWord(name)} is no word of the page`)
  const used = new Set(types.map(({ name }) => lastWord(name)))
  t.same(
    plain.filter(word => !used.has(lastWord(word))),
    [],
    'nothing is named with these words',
  )
})

t.test('no exported name has a banned word', async t => {
  const banned = exported.filter(isBanned).map(({ name, path }) => ({ name, path }))
  for (const { name, path } of banned) {
    if (!ALLOWED.has(name)) t.fail(`${name}: ${path}`)
  }
  for (const name of ALLOWED) {
    t.ok(
      banned.some(each => each.name === name),
      `the exception ${name} is needed`,
    )
  }
})

t.test('the glossary has each word and each identifier once', async t => {
  const rows = glossary()
  t.ok(rows.length > 20, 'the glossary was found')
  const words = rows.map(({ word }) => word.toLowerCase())
  t.same(words, [...new Set(words)])
  const identifiers = rows.flatMap(row => row.identifiers)
  t.same(identifiers, [...new Set(identifiers)])
})

t.test('the identifiers of the glossary exist', async t => {
  const names = new Set(exported.map(({ name }) => name))
  for (const { word, identifiers } of glossary()) {
    for (const name of identifiers) t.ok(names.has(name), `${word}: ${name}`)
  }
})
