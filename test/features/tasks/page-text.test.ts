/** Pages as Markdown: what a reader sees, and pages that want to cost much. */
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { type PageTextInput, pageText } from '../../../src/features/tasks/page-text.ts'
import { plainHtml } from '../../../src/features/tasks/plain-html.ts'
import { createTaskPool } from '../../../src/features/tasks/pool/pool.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import { share } from '../../support/share.ts'

const page = (html: string | Uint8Array, parts: Partial<PageTextInput> = {}) =>
  pageText({
    bytes: typeof html === 'string' ? Buffer.from(html) : html,
    type: 'text/html',
    charset: null,
    url: 'https://example.com/docs/page',
    maxChars: 100_000,
    ...parts,
  })
const SENTENCE =
  '<p>Some words that go on for a while, with commas, so that a reader takes this for the text of the page.</p>'
const article = (inner: string): string =>
  `<!doctype html><html><head><title>The &amp; title</title><style>p{}</style></head><body>
  <nav><a href="/">Home</a> <a href="/x">Menu</a></nav><article><h1>Heading</h1>${inner}${SENTENCE.repeat(8)}</article>
  <footer>Imprint</footer><script>alert(1)</script></body></html>`

t.test('the main content becomes Markdown with whole links, and menus and scripts are left out', async t => {
  const { title, text, cut } = page(
    article(
      '<h2>Part</h2><ul><li>one</li><li><a href="../a?b=1">two</a></li></ul><pre><code>x = 1</code></pre><p><a href="javascript:alert(1)">bad</a> <img src="data:image/png;base64,AAAA" alt="A picture"></p>',
    ),
  )
  t.equal(title, 'The & title')
  t.equal(cut, false)
  t.match(text, '## Part')
  t.match(text, '[two](https://example.com/a?b=1)')
  t.match(text, /-\s+one/)
  t.match(text, 'x = 1')
  t.match(text, 'A picture')
  t.notMatch(text, 'javascript:')
  t.notMatch(text, 'base64')
  t.notMatch(text, 'alert(1)')
  t.notMatch(text, 'Menu')
})

t.test('tables keep their rows', async t => {
  const { text } = page(
    article('<table><tr><th>Name</th><th>Price</th></tr><tr><td>Tea</td><td>2 €</td></tr></table>'),
  )
  t.match(text, /\| Name \| Price \|\n\| --- \| --- \|\n\|? ?\| ?Tea \| 2 € \|/)
})

t.test('a page without main content is read whole', async t => {
  t.match(page('<h1>Short</h1><p>note</p>').text, /# Short\n\nnote/)
  t.equal(page('').text, '')
  t.equal(page('just words').text, 'just words')
})

t.test('the charset comes from the header, else from the page, else from the bytes', async t => {
  const latin = Buffer.from('<p>caf\xe9</p>', 'latin1')
  t.equal(page(latin).text, 'café')
  t.equal(page(latin, { charset: 'iso-8859-1' }).text, 'café')
  t.equal(page(Buffer.from('<p>café</p>')).text, 'café')
  t.equal(page(Buffer.from('<meta charset="windows-1251"><p>\xcc\xe8\xf0</p>', 'latin1')).text, 'Мир')
  t.equal(page(Buffer.from('<p>café</p>'), { charset: 'no-such' }).text, 'café')
  t.equal(page(Buffer.from([0x82, 0xa0]), { type: 'text/plain', charset: 'shift_jis' }).text, 'あ')
})

t.test('other text stays as it is, and long text is cut', async t => {
  t.equal(page('{"a": "<b>"}', { type: 'application/json' }).text, '{"a": "<b>"}')
  const cut = page('x'.repeat(50), { type: 'text/plain', maxChars: 10 })
  t.same(cut, { title: '', text: 'x'.repeat(10), cut: true })
  t.equal(page(SENTENCE.repeat(100), { maxChars: 50 }).text.length, 50)
})

t.test('plain reading needs no tree', async t => {
  const read = (html: string) => plainHtml(html, 1_000)
  t.equal(read('<p>a &amp; b &#65;&#x42; &euro;</p><p>c</p>'), 'a & b AB €\n\nc')
  t.equal(read('a<script>if (1 < 2) {"</p>"}</script>b<style>x</style>c'), 'a\nb\nc')
  t.equal(read('a <!-- <p>no</p> --> b'), 'a b')
  t.equal(read('1 < 2 and <b>bold</b>'), '1 < 2 and bold')
  t.equal(read('open <script> for ever'), 'open')
  t.equal(read('<'), '<')
  t.equal(read('&#55296;&#0;&nosuch;'), '&nosuch;')
  t.equal(page(article(''), { plain: true }).title, 'The & title')
})

const MB = 1024 * 1024
const filled = (unit: string, bytes: number): string => unit.repeat(Math.ceil(bytes / unit.length))
/** Pages that cost a reader much more than their bytes. */
const HOSTILE: Readonly<Record<string, () => string>> = {
  'ten megabytes of tags': () => filled('<b>', 10 * MB),
  'ten megabytes of unfinished tags': () => filled('<', 10 * MB),
  'ten megabytes of unfinished comments': () => filled('<!--', 10 * MB),
  'ten megabytes of unfinished scripts': () => filled('<script ', 10 * MB),
  'ten megabytes of entities': () => filled('&amp;', 10 * MB),
  'ten megabytes of ends': () => filled('</p>', 10 * MB),
  'ten megabytes of blanks': () => `<p>${filled(' ', 10 * MB)}</p>`,
  'ten megabytes of line ends': () => `<pre>${filled('\n', 10 * MB)}</pre>`,
  'a hundred thousand levels': () => `${'<div>'.repeat(100_000)}deep`,
  'five hundred levels': () => `${'<div><span>'.repeat(250)}deep${'</span></div>'.repeat(250)}`,
  'a table of half a million cells': () => `<table>${'<tr><td>1<td>2'.repeat(250_000)}</table>`,
  'tables in tables': () => `${'<table><tr><td>'.repeat(30)}deep`,
  'one tag with a hundred thousand attributes': () =>
    `<p ${Array.from({ length: 100_000 }, (_, at) => `a${at}=1`).join(' ')}>x</p>`,
  'many lists of commas': () => `<div>${'<p>,,,,,,,,,,,,,,,,,,,,</p>'.repeat(9_000)}</div>`,
  'a title that never ends': () => `<title>${filled('x', 5 * MB)}`,
  'only quotes': () => `<p class="${filled('"', 3 * MB)}`,
}

t.test('no hostile page takes its worker beyond deadline or memory', async t => {
  const tasks = createTaskPool({ threads: 1, clock: systemClock, metrics: createMetrics() })
  t.teardown(() => tasks.close())
  const signal = new AbortController().signal
  for (const [name, html] of share(Object.entries(HOSTILE), 4)) {
    const input = {
      bytes: Buffer.from(html()),
      type: 'text/html',
      charset: null,
      url: 'https://example.com/',
      maxChars: 100_000,
    }
    const run = (plain: boolean) =>
      // A busy machine may take its time for what has to succeed.
      tasks
        .run(
          'page-text',
          { ...input, plain },
          { deadlineMs: plain ? 120_000 : 2_000, waitMs: 60_000, signal },
        )
        .then(
          ({ text }) => (text.length <= 100_000 ? 'ok' : 'too long'),
          error => (error instanceof TaskError ? error.outcome : String(error)),
        )
    // Slow ones end by the deadline, and are then read without a tree.
    const outcome = await run(false)
    t.ok(['ok', 'timeout'].includes(outcome), `${name}: ${outcome}`)
    t.equal(await run(true), 'ok', `${name}, plain`)
  }
})
