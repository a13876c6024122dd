/** The guide as it is built: complete, without dead links, for any host of files, and served by the admin port. */
import { execFileSync } from 'node:child_process'
import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, extname, join, posix } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseHTML } from 'linkedom'
import t from 'tap'
import { startAdmin } from '../src/process/threads/admin.ts'
import { Guide } from '../src/process/wiring/guide.ts'

const ROOT = join(import.meta.dirname, '..')
const folder = join(t.testdir({}), 'guide')
execFileSync(process.execPath, [join(ROOT, 'scripts/guide/build.js'), folder])
const files = globSync('**/*', { cwd: folder }).filter(name => extname(name) !== '')
const pages = files.filter(name => name.endsWith('.html') && !name.startsWith('repository/examples'))

type Parsed = ReturnType<typeof parseHTML>['document']
const parsed = new Map<string, Parsed>()
const pageOf = (name: string): Parsed => {
  const known = parsed.get(name) ?? parseHTML(readFileSync(join(folder, name), 'utf8')).document
  parsed.set(name, known)
  return known
}

t.test('every page of the docs is in it, in one place of its order', async t => {
  const { PARTS, DECISIONS } = (await import(pathToFileURL(join(ROOT, 'scripts/guide/pages.js')).href)) as {
    PARTS: readonly { name: string; pages: readonly string[] }[]
    DECISIONS: string
  }
  t.same(
    PARTS.map(({ name }) => name),
    ['Start', 'Use', 'Operate', 'Understand'],
  )
  const listed = PARTS.flatMap(part => part.pages)
  t.same(listed, [...new Set(listed)])
  const docs = readdirSync(join(ROOT, 'docs')).filter(name => name.endsWith('.md'))
  t.same(
    docs.filter(name => !listed.includes(`docs/${name}`)),
    [],
    'a new page has a line in scripts/guide/pages.js',
  )
  for (const file of listed) t.ok(existsSync(join(ROOT, file)), file)
  for (const name of readdirSync(join(ROOT, DECISIONS)))
    t.ok(pages.includes(`decisions/${name.replace('.md', '.html')}`), name)
})

t.test('every page has its navigation, a title, a language, a viewport, and nothing inline', async t => {
  t.ok(pages.length > 90, `${pages.length} pages`)
  for (const name of pages) {
    const page = pageOf(name)
    const html = readFileSync(join(folder, name), 'utf8')
    const faults = [
      page.documentElement?.getAttribute('lang') === 'en' ? '' : 'language',
      (page.querySelector('title')?.textContent ?? '') === '' ? 'title' : '',
      page.querySelector('meta[name=viewport]') === null ? 'viewport' : '',
      page.querySelectorAll('h1').length === 1 ? '' : 'one h1',
      page.querySelectorAll('nav#pages a').length > 40 ? '' : 'navigation',
      page.querySelectorAll('style, [style], iframe, form, base').length === 0 ? '' : 'inline',
      [...page.querySelectorAll('script')].every(script => script.textContent === '') ? '' : 'script',
      /\son\w+="|javascript:/.test(html.replace(/<pre[\s\S]*?<\/pre>/g, '')) ? 'handler' : '',
    ].filter(fault => fault !== '')
    if (faults.length > 0) t.fail(`${name}: ${faults.join(', ')}`)
    if (page.querySelectorAll('nav [aria-current]').length > 1) t.fail(`${name}: two current pages`)
  }
})

t.test('no link is dead, and none depends on where the files are', async t => {
  let links = 0
  const places = new Map<string, ReadonlySet<string>>()
  const idsOf = (name: string) => {
    const known = places.get(name) ?? new Set([...pageOf(name).querySelectorAll('[id]')].map(({ id }) => id))
    places.set(name, known)
    return known
  }
  for (const name of pages) {
    for (const element of pageOf(name).querySelectorAll('[href], [src]')) {
      const address = element.getAttribute('href') ?? element.getAttribute('src') ?? ''
      if (/^(?:https?|data):/.test(address)) {
        if (element.tagName !== 'A' && address !== 'data:,') t.fail(`${name} loads ${address}`)
        continue
      }
      links++
      if (!/^(?:\.\.?\/|#)/.test(address)) t.fail(`${name}: ${address} is not relative`)
      const [path = '', anchor] = address.split('#')
      const goal = path === '' ? name : posix.join(posix.dirname(name), path)
      if (!existsSync(join(folder, goal))) t.fail(`${name}: ${address} leads nowhere`)
      else if (anchor !== undefined && goal.endsWith('.html') && !idsOf(goal).has(anchor))
        t.fail(`${name}: ${address} has no such place`)
    }
  }
  t.ok(links > 5_000, `${links} links`)
})

t.test('links of the docs lead to files of the repository and to headings that are there', async t => {
  // What the guide shows as plain text is a link that leads nowhere in the docs too.
  for (const name of pages)
    for (const span of pageOf(name).querySelectorAll('main span'))
      if (!['LICENSE', 'Apache-2.0', 'grafana/'].includes(span.textContent ?? ''))
        t.fail(`${name}: ${span.textContent}`)
})

t.test('the search finds by words of headings and of texts', async t => {
  const load = async (name: string) =>
    (await import(pathToFileURL(join(folder, 'assets', name)).href)) as never
  interface Index {
    search(words: string, options?: object): { page: string }[]
  }
  const { default: MiniSearch } = (await load('minisearch.js')) as {
    default: { loadJSON(text: string, terms: unknown): Index }
  }
  const { TERMS, searched } = (await load('search-terms.js')) as {
    TERMS: unknown
    searched(index: Index, words: string): { page: string }[]
  }
  const index = MiniSearch.loadJSON(readFileSync(join(folder, 'assets/search.json'), 'utf8'), TERMS)
  const first = (words: string) => searched(index, words)[0]?.page
  t.equal(first('breaker'), 'routing.html')
  t.equal(first('resumable streams'), 'resumable-streams.html')
  t.equal(first('Coming from LiteLLM'), 'from-litellm.html')
  t.ok(
    index
      .search('limits.openPerKey')
      .slice(0, 8)
      .some(({ page }) => page === 'configuration.html' || page === 'end-users.html'),
  )
  t.same(searched(index, 'zzzzqqqq'), [])

  // The words that people have, and the page that answers; none of them is for those who change Sluice.
  for (const [words, page] of [
    ['reverse proxy', 'operations.html'],
    ['rotate provider key', 'byok.html'],
    ['redis down', 'operations.html'],
    ['fallback model', 'routing.html'],
    ['limit end user', 'end-users.html'],
    ['cost of a request', 'costs.html'],
    ['lost key', 'operations.html'],
  ] as const)
    t.ok(
      searched(index, words)
        .slice(0, 5)
        .some(hit => hit.page === page),
      `${words}: ${page}`,
    )
  t.ok(searched(index, 'breaker zzzzqqqq').length > 0, 'one strange word does not hide all places')
})

t.test('the admin port serves it, and no other file', async t => {
  const admin = await startAdmin(
    { host: '127.0.0.1', port: 0, hosts: [] },
    { metrics: async () => '', unreadyReason: () => null, guide: new Guide(folder) },
  )
  t.teardown(() => admin.close())
  const ask = (path: string, init?: RequestInit) => fetch(`${admin.url}${path}`, init)
  const bare = await ask('/guide')
  t.equal(bare.status, 200)
  const html = await bare.text()
  const links = [...html.matchAll(/ (?:href|src)="(\.[^"#]*)/g)].map(([, path = '']) => path)
  t.ok(links.length > 40)
  for (const link of new Set(links)) {
    const path = new URL(link, `${admin.url}/guide`).pathname
    t.equal((await ask(path)).status, 200, path)
  }
  const policy = bare.headers.get('content-security-policy') ?? ''
  t.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self';.*frame-ancestors 'none'/)
  t.equal(bare.headers.get('x-content-type-options'), 'nosniff')

  for (const [path, type] of [
    ['/guide/', 'text/html; charset=utf-8'],
    ['/guide/routing.html', 'text/html; charset=utf-8'],
    ['/guide/assets/style.css', 'text/css; charset=utf-8'],
    ['/guide/assets/search.json', 'application/json'],
    ['/guide/images/console.png', 'image/png'],
    ['/guide/repository/examples/compose.yaml', 'text/plain; charset=utf-8'],
  ] as const) {
    const reply = await ask(path)
    t.equal(reply.status, 200, path)
    t.equal(reply.headers.get('content-type'), type, path)
    const etag = reply.headers.get('etag') ?? ''
    await reply.arrayBuffer()
    t.equal((await ask(path, { headers: { 'if-none-match': etag } })).status, 304, path)
  }
  t.equal(await (await ask('/guide/routing.html', { method: 'HEAD' })).text(), '')
  for (const path of [
    '/guide/none.html',
    '/guide/..%2f..%2fpackage.json',
    '/guide//etc/passwd',
    '/guide/assets',
  ])
    t.equal((await ask(path)).status, 404, path)
  t.equal((await ask('/guidebook')).status, 404)
  t.equal((await ask('/guide', { method: 'POST', body: 'x' })).status, 405)
})

t.test('where it is not built, the page says how to build it, and shows it from then on', async t => {
  const place = join(t.testdir({}), 'later')
  const admin = await startAdmin(
    { host: '127.0.0.1', port: 0, hosts: [] },
    { metrics: async () => '', unreadyReason: () => null, guide: new Guide(place) },
  )
  t.teardown(() => admin.close())
  const before = await fetch(`${admin.url}/guide`)
  t.equal(before.status, 503)
  t.match(await before.text(), 'npm run docs')
  mkdirSync(dirname(join(place, 'index.html')), { recursive: true })
  writeFileSync(join(place, 'index.html'), '<!doctype html><title>built</title>')
  const after = await fetch(`${admin.url}/guide`)
  t.equal(after.status, 200)
  t.match(await after.text(), 'built')
})
