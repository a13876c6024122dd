/**
 * The reference page and the index of the admin port in a browser, as it sends them: reachable by keys and by
 * anchors, readable on small screens and in both colour schemes, complete without anything from elsewhere.
 */
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { createDocument } from '../../src/api/openapi/document.ts'
import { Reference } from '../../src/api/openapi/reference/reference.ts'
import { startAdmin } from '../../src/process/threads/admin.ts'
import {
  namedNodes,
  openBrowser,
  pixelsTooWide,
  screenshot,
  type Visit,
  WITHOUT_BROWSER,
} from '../support/browser.ts'
import { type ApiDocument, operationsIn } from '../support/openapi.ts'
import { allOperations } from '../support/operations.ts'
import { PALE } from './contrast.ts'

const SCHEMES = ['light', 'dark'] as const
/** CSS pixels at which WCAG 1.4.10 allows no scrolling sideways. */
const NARROW = 320

/** The part of the focused element that a test asks for; scripts of tests run in the page as texts. */
const FOCUSED = `(() => {
  const { tagName, textContent } = document.activeElement
  const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement)
  return {
    tag: tagName,
    href: document.activeElement.getAttribute('href'),
    text: textContent.slice(0, 100),
    isOutlined: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2,
  }
})()`

interface Focused {
  readonly tag: string
  readonly href: string | null
  readonly text: string
  readonly isOutlined: boolean
}

/** Opens all that folds below an element. */
const unfold = (page: Page, selector: string) =>
  page.evaluate(`for (const each of document.querySelectorAll('${selector} details')) each.open = true`)

/** Ids whose element is not to be seen after a jump to its anchor. */
const UNREACHED = `(ids => ids.filter(id => {
  location.hash = id
  const { top, bottom, height } = document.getElementById(id).getBoundingClientRect()
  return height === 0 || bottom <= 0 || top >= innerHeight
}))`

const focused = (page: Page): Promise<Focused> => page.evaluate<Focused>(FOCUSED)

async function holdsNames(t: Test, visit: Visit): Promise<Set<string>> {
  const nodes = await namedNodes(visit)
  t.ok(nodes.length > 0)
  t.same(
    nodes.filter(({ name }) => name === ''),
    [],
    'all that is used has a name',
  )
  return new Set(nodes.map(({ role, name }) => `${role} ${name}`))
}

t.test('pages of the admin port in a browser', { skip: WITHOUT_BROWSER }, async t => {
  const document = createDocument(await allOperations(t))
  const operations = operationsIn(document as unknown as ApiDocument)
  const html = new Reference(document).page('https://gateway.test').json
  const sources = {
    metrics: async () => '',
    unreadyReason: () => null,
    reference: () => Promise.resolve(html),
  }
  const admin = await startAdmin({ host: '127.0.0.1', port: 0, hosts: [] }, sources)
  t.teardown(() => admin.close())
  const origin = admin.url
  const browser = await openBrowser(t)
  // One visit for all tests of the page: it is large.
  const visit = await browser.visit({ origin })
  const { page } = visit
  await page.goto(`${origin}/docs`)

  await t.test('the reference: every operation by keys alone', async t => {
    const press = async (key: string): Promise<Focused> => {
      await page.keyboard.press(key)
      return await focused(page)
    }
    t.equal((await press('Tab')).href, '#main', 'first comes a way past the contents')
    const links = new Set<string>()
    const folds: string[] = []
    // Contents that fold are opened on the way, and so their links are next.
    let inputs = 0
    for (let at = await press('Tab'); at.href !== '#schemas'; at = await press('Tab')) {
      if (!at.isOutlined) t.fail(`${at.tag} ${at.text}: the focus is not seen`)
      // The filter, and the choice of a language.
      if (at.tag === 'INPUT') inputs++
      else if (at.tag === 'SUMMARY') {
        folds.push(at.text)
        await page.keyboard.press('Enter')
      } else if (at.href === null) throw new Error(`focus is lost at ${at.tag} ${at.text}`)
      else links.add(at.href)
    }
    t.equal(inputs, 2)
    t.equal(folds.length, new Set(operations.flatMap(({ operation }) => operation.tags)).size)
    for (const { operation } of operations)
      t.ok(links.has(`#${operation.operationId}`), operation.operationId)
    // A link takes the focus along: what comes next is in its operation.
    for (const id of ['createResponse', 'deleteFile', 'getInterface']) {
      await page.locator(`nav a[href="#${id}"]`).focus()
      await page.keyboard.press('Enter')
      await page.keyboard.press('Tab')
      const [at] = await page.evaluate<[string | null]>(
        `[document.activeElement.closest('article')?.getAttribute('aria-labelledby') ?? null]`,
      )
      t.equal(at, id)
    }
  })

  await t.test('the reference: a filter leaves what has all its words, and opens it', async t => {
    const shown = () =>
      page.evaluate<string[]>(
        `[...document.querySelectorAll('nav li')].filter(each => each.checkVisibility()).map(each => each.textContent)`,
      )
    const filter = page.getByRole('searchbox', { name: 'Filter' })
    await filter.fill('guardrails DELETE')
    t.same(await shown(), ['DELETE /guardrails/{id}'])
    t.equal(await page.getByRole('status').innerText(), '1 found')
    await filter.fill('no such thing')
    t.same(await shown(), [])
    await filter.fill('')
    t.equal(await page.getByRole('status').innerText(), '')
  })

  await t.test('the reference: requests in the language of one choice, for copying', async t => {
    const request = page.locator('article[aria-labelledby=createKey] pre:visible').first()
    t.match(
      await request.innerText(),
      'curl "https://gateway.test/v1/keys" \\\n  -H "Authorization: Bearer $MANAGEMENT_KEY"',
    )
    await page.getByRole('radio', { name: 'Python' }).check()
    t.match(await request.innerText(), 'requests.post(')
    await page.getByRole('radio', { name: 'JavaScript' }).check()
    t.match(await request.innerText(), "await fetch('https://gateway.test/v1/keys', {")
    await page.getByRole('radio', { name: 'curl' }).check()
    await page.setViewportSize({ width: 1280, height: 800 })
    await page.evaluate(`document.getElementById('getInterface').scrollIntoView()`)
    t.ok(await page.getByRole('searchbox', { name: 'Filter' }).isVisible())
    const top = await page.evaluate<number>(`document.querySelector('nav').getBoundingClientRect().top`)
    t.equal(top, 0, 'the contents stay where they are')
  })

  await t.test('the reference: names for those who do not see it', async t => {
    // The contents are open from the test before.
    const named = await holdsNames(t, visit)
    for (const { method, path } of operations) {
      for (const role of ['heading', 'link'])
        t.ok(named.has(`${role} ${method} ${path}`), `${role} ${method} ${path}`)
    }
  })

  await t.test('the reference: examples unfold, and schemas are one link away', async t => {
    const operation = page.locator('article[aria-labelledby=createKey]')
    for (const what of ['body', 'answer']) {
      await operation
        .locator('summary', { hasText: `Example of the ${what}` })
        .first()
        .focus()
      await page.keyboard.press('Enter')
    }
    t.match(await operation.locator('details pre').first().innerText(), /"limit_reset": "monthly"/)
    await page.evaluate(
      `document.activeElement.blur(), document.getElementById('createKey').scrollIntoView()`,
    )
    await screenshot(page, 'reference')
    await operation.getByRole('link', { name: 'KeyCreation' }).focus()
    await page.keyboard.press('Enter')
    t.ok(await page.locator('#schema-KeyCreation', { hasText: 'limit_reset' }).isVisible())
  })

  await t.test('the reference: every operation and some schemas by their anchors', async t => {
    const ids = await page.evaluate<string[]>(
      `[...new Set([...document.querySelectorAll('a')].map(each => each.hash.slice(1)))]`,
    )
    const all = operations.map(({ operation }) => operation.operationId)
    for (const id of all) t.ok(ids.includes(id), id)
    const schemas = ids.filter((id, at) => id.startsWith('schema-') && at % 20 === 0)
    t.ok(schemas.length > 5)
    const asked = ['main', 'schemas', ...all, ...schemas]
    t.same(await page.evaluate(`${UNREACHED}(${JSON.stringify(asked)})`), [])
  })

  for (const colorScheme of SCHEMES) {
    await t.test(`the reference: readable in the ${colorScheme} scheme, and on a small screen`, async t => {
      await page.emulateMedia({ colorScheme })
      await page.setViewportSize({ width: NARROW, height: 800 })
      t.equal(await pixelsTooWide(page), 0)
      await unfold(page, 'body')
      t.equal(await pixelsTooWide(page), 0, 'with all that folds open')
      t.same(await page.evaluate(PALE), [])
      const [isDark] = await page.evaluate<[boolean]>(
        `[getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)']`,
      )
      t.equal(isDark, colorScheme === 'dark')
    })
  }

  await t.test('the index: its pages are there, by keys too, in both schemes', async t => {
    await page.goto(`${origin}/`)
    t.equal(await pixelsTooWide(page), 0)
    await holdsNames(t, visit)
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme })
      t.same(await page.evaluate(PALE), [])
    }
    const links = await page.evaluate<string[]>(
      `[...document.querySelectorAll('a')].map(each => each.getAttribute('href'))`,
    )
    t.ok(links.includes('/docs'))
    for (const href of links) {
      t.equal((await fetch(origin + href)).status, 200, href)
      await page.keyboard.press('Tab')
      t.equal((await focused(page)).href, href)
    }
  })

  t.same(await visit.faults(), [], 'no page did what it must not')
})
