/** The reference page: complete, accessible by its form, and without anything that runs or comes from elsewhere. */
import { parseHTML } from 'linkedom'
import t from 'tap'
import { createDocument } from '../../src/api/openapi/document.ts'
import { LANGUAGES, READER_URL } from '../../src/api/openapi/reference/examples.ts'
import { referencePage } from '../../src/api/openapi/reference/page.ts'
import { Reference } from '../../src/api/openapi/reference/reference.ts'
import { type ApiDocument, operationsIn } from '../support/openapi.ts'
import { allOperations } from '../support/operations.ts'

const document = createDocument(await allOperations(t))
const html = referencePage(document)
const { document: page } = parseHTML(html)
const operations = operationsIn(document as unknown as ApiDocument)

t.test('the page has a language, a title and a viewport, and its landmarks have names', async t => {
  t.match(html, /^<!doctype html>\n<html lang="en">/)
  t.match(page.querySelector('title')?.textContent, 'Sluice')
  t.equal(
    page.querySelector('meta[name=viewport]')?.getAttribute('content'),
    'width=device-width, initial-scale=1',
  )
  t.equal(page.querySelectorAll('h1').length, 1)
  t.equal(page.querySelectorAll('main').length, 1)
  t.equal(page.querySelector('nav')?.getAttribute('aria-label'), 'Operations')
  for (const each of page.querySelectorAll('details')) {
    t.ok((each.firstElementChild?.textContent ?? '') !== '', 'details begin with a summary')
  }
  // What scrolls by itself can be reached by keys, and says what it is.
  for (const each of page.querySelectorAll('pre')) {
    if (each.getAttribute('tabindex') !== '0' || !each.getAttribute('aria-label')) t.fail(each.outerHTML)
  }
})

t.test('headings follow each other without gaps', async t => {
  let last = 0
  for (const { tagName } of page.querySelectorAll('h1, h2, h3, h4')) {
    const level = Number(tagName.slice(1))
    if (level > last + 1) t.fail(`${tagName} after h${last}`)
    last = level
  }
})

t.test('the page has every operation, tag and schema', async t => {
  const articles = page.querySelectorAll('article')
  t.equal(articles.length, operations.length)
  for (const { method, path, operation } of operations) {
    const heading = page.querySelector(`#${operation.operationId}`)
    t.equal(heading?.textContent, `${method} ${path}`)
    t.match(heading?.closest('article')?.textContent, operation.summary)
  }
  for (const name of Object.keys((document as unknown as ApiDocument).components.schemas)) {
    t.ok(page.querySelector(`#schema-${name}`), name)
  }
})

t.test('every link leads to a place of the page, and each place is there once', async t => {
  const ids = [...page.querySelectorAll('[id]')].map(({ id }) => id)
  t.same(ids.length, new Set(ids).size)
  const places = new Set(ids)
  for (const link of page.querySelectorAll('a')) {
    const href = link.getAttribute('href') ?? ''
    if (!href.startsWith('#') || !places.has(href.slice(1))) t.fail(link.outerHTML)
  }
})

t.test(
  'every operation has its request in three languages, with the URL and the key of the reader',
  async t => {
    for (const { method, operation } of operations) {
      const article = page.querySelector(`#${operation.operationId}`)?.closest('article')
      for (const language of LANGUAGES) {
        const text = article?.querySelector(`pre.${language}`)?.textContent ?? ''
        t.match(text, READER_URL, `${operation.operationId} ${language}`)
        t.equal(
          text.includes('KEY'),
          operation.security.length > 0,
          `${operation.operationId} ${language}: a key`,
        )
      }
      const link = page.querySelector(`nav a[href="#${operation.operationId}"]`)
      t.ok(link?.querySelector(`.method.${method}`), 'the contents tell methods apart by colour')
      t.equal(
        link?.parentElement?.getAttribute('data-words')?.includes(operation.operationId.toLowerCase()),
        true,
      )
    }
  },
)

t.test('one script runs, beside the page, and nothing comes from elsewhere', async t => {
  t.equal(page.querySelectorAll('link, img, iframe, object, embed, form, base, [style]').length, 0)
  t.same(
    [...page.querySelectorAll('script, [src]')].map(each => [each.getAttribute('src'), each.textContent]),
    [['docs/filter.js', '']],
  )
  t.notMatch(html, /\son\w+=|https?:|@import|url\(/)
  t.ok(Buffer.byteLength(html) < 1000 * 1024, `${Buffer.byteLength(html)} bytes`)
  t.comment(`${Buffer.byteLength(html)} bytes`)
})

t.test('the style has both colour schemes, and no width that a small screen lacks', async t => {
  const style = page.querySelector('style')?.textContent ?? ''
  t.match(style, 'prefers-color-scheme: dark')
  t.match(style, 'overflow-wrap: anywhere')
  t.match(style, /pre \{[^}]*overflow-x: auto/)
  t.notMatch(style, /(?:^|[\s;{])(?:min-)?width: ?\d/)
  t.equal(page.querySelectorAll('table').length, 0)
})

t.test('texts of the document are text, whatever they have', async t => {
  const hostile = '</pre><script>alert(1)</script>"\'&'
  const grown = structuredClone(document) as unknown as ApiDocument
  const [first] = operationsIn(grown)
  if (first === undefined) throw new Error('no operation')
  first.operation.summary = hostile
  first.operation.operationId = 'a"><script>'
  grown.components.schemas['Model'] = {
    type: 'object',
    description: hostile,
    properties: { [hostile]: { enum: [hostile] } },
  }
  const { document: other } = parseHTML(referencePage(grown as unknown as typeof document))
  t.equal(other.querySelectorAll('script').length, 1)
  t.match(other.querySelector('article')?.textContent, hostile)
})

t.test('readers share the bytes of a page, and many hosts make few pages', async t => {
  const reference = new Reference(document)
  const own = reference.page('http://a.example')
  t.match(own.json.toString(), /curl [^<]*http:\/\/a\.example/)
  t.equal(reference.page('http://a.example'), own)
  const pages = Array.from({ length: 100 }, (_, at) => reference.page(`http://${at}.example`))
  t.ok(new Set(pages).size < 10)
  t.match(pages.at(-1)?.json.toString(), /curl [^<]*\$URL/, 'with the variable of the examples')
  t.equal(reference.page('http://a.example'), own)
})
