/**
 * Builds the guide: the pages of docs/ as HTML with relative links, in dist/guide or the given folder, ready for any
 * static host. `npm run docs [-- FOLDER]`. With --if-possible it does nothing if docs/ or the development packages are
 * missing: npm runs it that way after each install. Plain JavaScript, because any version of Node may then run it.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, posix, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { DECISIONS, PARTS } from './pages.js'
import { framed, safe } from './template.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const ASSETS = fileURLToPath(new URL('assets', import.meta.url))
const words = process.argv.slice(2)
const isOptional = words.includes('--if-possible')
const target = resolve(words.find(word => !word.startsWith('--')) ?? join(ROOT, 'dist/guide'))

/** The address of a file of the repository in the guide. */
function addressOf(file) {
  if (file === 'README.md') return 'index.html'
  const below = file.startsWith('docs/') ? file.slice('docs/'.length) : `repository/${file}`
  return below.endsWith('.md') ? below.replace(/\.md$/, '.html') : below
}

async function build() {
  const { renderPage } = await import('./markdown.js')
  const decisions = readdirSync(join(ROOT, DECISIONS))
    .filter(name => name.endsWith('.md'))
    .sort()
    .map(name => `${DECISIONS}/${name}`)
  const listed = [...PARTS.flatMap(({ pages }) => pages), ...decisions]
  /** Pages by their file: those of the order first, then those that links lead to. */
  const pages = new Map()
  const copied = new Set()
  const waiting = [...listed]
  for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
    if (pages.has(file) || !existsSync(join(ROOT, file))) continue
    const out = addressOf(file)
    const link = href => {
      if (/^[a-z]+:/.test(href) || href.startsWith('#')) return href
      const [path, anchor] = href.split('#')
      const goal = posix.join(posix.dirname(file), path).replace(/\/$/, '')
      const suffix = anchor === undefined ? '' : `#${anchor}`
      if (goal === DECISIONS) return relativeTo(out)('decisions.html')
      if (!existsSync(join(ROOT, goal)) || statSync(join(ROOT, goal)).isDirectory()) return null
      if (goal.endsWith('.md')) waiting.push(goal)
      else copied.add(goal)
      return relativeTo(out)(addressOf(goal)) + suffix
    }
    pages.set(file, { file, out, ...renderPage(readFileSync(join(ROOT, file), 'utf8'), link) })
  }
  const decisionPages = decisions.map(file => pages.get(file))
  const index = decisionIndex(decisionPages)
  const parts = PARTS.map(({ name, pages: files }) => ({
    name,
    pages: files.flatMap(file => pages.get(file) ?? []),
  }))
  parts.at(-1).pages.push(index)
  const all = [...pages.values(), index]
  const order = [...parts.flatMap(part => part.pages), ...decisionPages]

  rmSync(target, { recursive: true, force: true })
  for (const page of all) {
    const at = order.indexOf(page)
    const shown = page.file?.startsWith(DECISIONS)
      ? [...parts, { name: 'Decisions', pages: decisionPages }]
      : parts
    const html = framed({
      page,
      parts: shown,
      before: order[at - 1],
      after: at === -1 ? undefined : order[at + 1],
      relative: relativeTo(page.out),
    })
    write(page.out, html)
  }
  for (const file of copied) write(addressOf(file), readFileSync(join(ROOT, file)))
  cpSync(ASSETS, join(target, 'assets'), { recursive: true })
  await writeSearch(all)
  return all.length
}

function decisionIndex(decisionPages) {
  const items = decisionPages.map(({ title, out }) => `<li><a href="./${safe(out)}">${safe(title)}</a></li>`)
  const title = 'Decisions'
  const text = 'Why it is built this way. Each page has one decision, its reasons, and what was not chosen.'
  return {
    out: 'decisions.html',
    title,
    html: `<h1 id="decisions">${title}</h1>\n<p>${text}</p>\n<ul>\n${items.join('\n')}\n</ul>\n`,
    headings: [],
    sections: [{ id: 'decisions', heading: title, text }],
  }
}

/** Every relative address begins with a dot. */
function relativeTo(from) {
  return to => {
    const path = posix.relative(posix.dirname(from), to)
    return path.startsWith('.') ? path : `./${path}`
  }
}

function write(address, content) {
  const path = join(target, address)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, content)
}

async function writeSearch(all) {
  const { default: MiniSearch } = await import('minisearch')
  const { TERMS } = await import('./assets/search-terms.js')
  const index = new MiniSearch(TERMS)
  for (const { out, title, sections } of all)
    for (const { id, heading, text } of sections)
      index.add({ id: `${out}#${id}`, page: out, title, heading, text })
  write('assets/search.json', JSON.stringify(index))
  cpSync(fileURLToPath(import.meta.resolve('minisearch')), join(target, 'assets/minisearch.js'))
}

function isPossible() {
  try {
    import.meta.resolve('markdown-it')
    import.meta.resolve('minisearch')
    return existsSync(join(ROOT, DECISIONS))
  } catch {
    return false
  }
}

if (!isOptional || isPossible()) {
  const count = await build()
  process.stdout.write(`${count} pages are in ${target}\n`)
}
