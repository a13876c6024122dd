/**
 * The reference page and the index of the admin port in a browser, as it sends them: reachable by keys and by
 * anchors, readable on small screens and in both colour schemes, complete without anything from elsewhere.
 */
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { createDocument } from '../../src/api/openapi/document.ts'
import { referencePage } from '../../src/api/openapi/reference/page.ts'
import { startAdmin } from '../../src/threads/admin.ts'
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

const SCHEMES = ['light', 'dark'] as const
/** CSS pixels at which WCAG 1.4.10 allows no scrolling sideways. */
const NARROW = 320
/** WCAG 1.4.3. */
const CONTRAST_MIN = 4.5

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

/** Texts whose colour is too close to what is behind them, by the formula of WCAG. */
const PALE = `(least => {
  const parts = text => text.match(/[\\d.]+/g).map(Number)
  const light = text => {
    const [r, g, b] = parts(text).map(each => each / 255).map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const behind = element => {
    for (; element !== null; element = element.parentElement) {
      const { backgroundColor } = getComputedStyle(element)
      if (parts(backgroundColor)[3] !== 0) return backgroundColor
    }
    return getComputedStyle(document.documentElement).colorScheme === 'dark' ? 'rgb(18,18,18)' : 'rgb(255,255,255)'
  }
  const pale = new Map()
  for (const element of document.body.querySelectorAll('*')) {
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim() !== '')) continue
    const colors = [getComputedStyle(element).color, behind(element)]
    const [low, high] = colors.map(light).sort((a, b) => a - b)
    if ((high + 0.05) / (low + 0.05) < least) pale.set(colors.join(' on '), element.textContent.slice(0, 40))
  }
  return [...pale].map(each => each.join(': '))
})(${CONTRAST_MIN})`

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
  const html = referencePage(document)
  const sources = { metrics: async () => '', unreadyReason: () => null, reference: () => html }
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
    for (let at = await press('Tab'); at.href !== '#schemas'; at = await press('Tab')) {
      if (!at.isOutlined) t.fail(`${at.text}: the focus is not seen`)
      if (at.tag === 'SUMMARY') {
        folds.push(at.text)
        await page.keyboard.press('Enter')
      } else if (at.href === null) throw new Error(`focus is lost at ${at.tag} ${at.text}`)
      else links.add(at.href)
    }
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
      await operation.locator('summary', { hasText: `Example of the ${what}` }).focus()
      await page.keyboard.press('Enter')
    }
    t.match(await operation.locator('pre').first().innerText(), /"limit_reset": "monthly"/)
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
