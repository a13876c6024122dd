/** The guide in a browser, as the admin port sends it: search without a network, small screens, both colour schemes. */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { startAdmin } from '../../src/process/threads/admin.ts'
import { Guide } from '../../src/process/wiring/guide.ts'
import { namedNodes, openBrowser, pixelsTooWide, WITHOUT_BROWSER } from '../support/browser.ts'
import { PALE } from './contrast.ts'

const BUILD = join(import.meta.dirname, '../../scripts/guide/build.js')
/** Pages with wide tables, long code, pictures, many headings. */
const PAGES = [
  '',
  'routing.html',
  'configuration.html',
  'errors.html',
  'console.html',
  'decisions.html',
  'architecture.html',
]

t.test('the guide in a browser', { skip: WITHOUT_BROWSER }, async t => {
  const folder = join(t.testdir({}), 'guide')
  execFileSync(process.execPath, [BUILD, folder])
  const admin = await startAdmin(
    { host: '127.0.0.1', port: 0, hosts: [] },
    { metrics: async () => '', unreadyReason: () => null, guide: new Guide(folder) },
  )
  t.teardown(() => admin.close())
  const browser = await openBrowser(t)
  const visit = await browser.visit({ origin: admin.url })
  const { page } = visit

  await t.test('the first page leads to the others, with and without a slash at its end', async t => {
    for (const path of ['/guide', '/guide/']) {
      await page.goto(`${admin.url}${path}`)
      await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Routing' }).click()
      t.equal(new URL(page.url()).pathname, '/guide/routing.html')
      t.equal(await page.locator('nav [aria-current=page]').innerText(), 'Routing')
    }
  })

  await t.test('the search finds a place of a page, by keys alone', async t => {
    await page.goto(`${admin.url}/guide`)
    await page.keyboard.press('/')
    await page.keyboard.type('circuit breaker')
    const result = page.locator('#results a').first()
    await result.waitFor()
    t.match(await page.locator('#found').innerText(), /^\d+ found$/)
    await result.focus()
    await page.keyboard.press('Enter')
    await page.waitForURL(/#/)
    const { pathname, hash } = new URL(page.url())
    t.equal(pathname, '/guide/routing.html')
    t.ok(await page.locator(hash).isVisible())
    await page.getByRole('searchbox', { name: 'Search' }).fill('zzzzqqqq')
    await page.locator('#found', { hasText: 'Nothing found' }).waitFor()
  })

  for (const colorScheme of ['light', 'dark'] as const) {
    await t.test(`pages are readable in the ${colorScheme} scheme, and at 320 pixels`, async t => {
      await page.emulateMedia({ colorScheme })
      for (const name of PAGES) {
        await page.setViewportSize({ width: 320, height: 800 })
        await page.goto(`${admin.url}/guide/${name}`)
        t.equal(await pixelsTooWide(page), 0, name)
        t.same(await page.evaluate(PALE), [], name)
        await page.setViewportSize({ width: 1280, height: 800 })
        t.equal(await pixelsTooWide(page), 0, name)
      }
      const [isDark] = await page.evaluate<[boolean]>(
        `[getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)']`,
      )
      t.equal(isDark, colorScheme === 'dark')
    })
  }

  await t.test('all that is used has a name', async t => {
    await page.goto(`${admin.url}/guide/routing.html`)
    t.same(
      (await namedNodes(visit)).filter(({ name }) => name === ''),
      [],
    )
  })

  t.same(await visit.faults(), [], 'no page did what it must not')
})
