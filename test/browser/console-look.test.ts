/** All views of the console by axe, the engine for tests of accessibility; and in windows of every width. */
import t from 'tap'
import { pixelsTooWide, type Visit, WITHOUT_BROWSER } from '../support/browser.ts'
import { MARKUP } from '../support/console-world.ts'
import { findings, WITHOUT_AXE } from './axe.ts'
import { openConsole } from './console-page.ts'

/** By the path, with the name of what each shows once its data are there. */
const VIEWS = {
  home: 'Latest requests',
  requests: 'Last requests, newest first',
  usage: 'Usage',
  accounts: 'End users',
  models: 'Models and their endpoints',
  guardrails: 'Guardrails',
  batches: '',
  playground: '',
  changes: 'Changes, newest first',
} as const
const WIDTHS = [320, 768, 1280, 2560] as const

async function shown({ page }: Visit, view: keyof typeof VIEWS): Promise<void> {
  await page.evaluate(`location.hash = '#/${view}'`)
  await page.locator(`nav a[href="#/${view}"][aria-current="page"]`).waitFor()
  if (VIEWS[view] !== '') await page.getByRole('table', { name: VIEWS[view], exact: true }).first().waitFor()
}

t.test('the look of the console', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t)
  const { manage, respond } = world
  await manage('POST', '/keys', { name: MARKUP, limit: 5, limit_reset: 'daily' })
  await manage('POST', '/end-users', { user: 'ada' })
  for (const model of ['sim/echo', 'test/falls-back', 'test/down', 'sim/absent'])
    await respond({ model, input: 'x' })

  for (const colorScheme of ['light', 'dark'] as const) {
    await t.test(`axe finds nothing, ${colorScheme}`, { skip: WITHOUT_AXE }, async t => {
      const visit = await open('home', { colorScheme })
      for (const view of Object.keys(VIEWS) as (keyof typeof VIEWS)[]) {
        await shown(visit, view)
        t.same(await findings(visit), [], view)
      }
      await shown(visit, 'accounts')
      await visit.page.getByRole('button', { name: 'New key' }).click()
      await visit.page.getByRole('dialog').getByLabel('Name').waitFor()
      t.same(await findings(visit), [], 'a form')
      await visit.page.keyboard.press('Escape')
      await shown(visit, 'requests')
      // Its row is marked, and has a green word.
      await visit.page
        .getByRole('row', { name: /details of.* 200 / })
        .getByRole('button')
        .first()
        .click()
      await visit.page.getByRole('region', { name: 'Request', exact: true }).waitFor()
      t.same(await findings(visit), [], 'details')
      t.same(await visit.faults(), [])
    })
  }

  await t.test('no view scrolls sideways, from 320 to 2,560 pixels', async t => {
    const visit = await open('home')
    for (const width of WIDTHS) {
      await visit.page.setViewportSize({ width, height: 800 })
      for (const view of Object.keys(VIEWS) as (keyof typeof VIEWS)[]) {
        await shown(visit, view)
        t.equal(await pixelsTooWide(visit.page), 0, `${view} at ${width}`)
      }
    }
    t.same(await visit.faults(), [])
  })

  await t.test('a key is made by the keyboard alone', async t => {
    const visit = await open('accounts')
    const { page } = visit
    await page.getByRole('table', { name: 'API keys' }).waitFor()
    const focused = () => page.evaluate<string>('document.activeElement.textContent.trim()')
    for (let tabs = 0; (await focused()) !== 'New key'; tabs++) {
      if (tabs > 40) throw new Error('the button is not reached')
      await page.keyboard.press('Tab')
    }
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').getByLabel('Name').waitFor()
    await page.keyboard.type('By keys')
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').locator('output').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('rowheader', { name: 'By keys' }).waitFor()
    t.same(await visit.faults(), [])
  })
})
