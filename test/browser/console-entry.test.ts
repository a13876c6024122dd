/** The page before anybody has signed in: by axe, dark and light, in every width, and by the keyboard alone. */
import t from 'tap'
import { openBrowser, pixelsTooWide, WITHOUT_BROWSER } from '../support/browser.ts'
import { startSignInConsole } from '../support/sign-in-world.ts'
import { findings, WITHOUT_AXE } from './axe.ts'

const WIDTHS = [320, 1280, 2560] as const

t.test('the page of the sign-in', { skip: WITHOUT_BROWSER }, async t => {
  const { origin, world } = await startSignInConsole(t, { sub: 'bob-1', roles: ['nobody'] })
  const browser = await openBrowser(t)
  /** Faults but those that the test itself makes: an answer that refuses, and the site of the provider. */
  const others = (faults: readonly string[]) =>
    faults.filter(fault => !/status of 40[13]|localhost/.test(fault))

  for (const colorScheme of ['light', 'dark'] as const) {
    await t.test(`can be read and reached, ${colorScheme}`, async t => {
      const visit = await browser.visit({ origin, colorScheme, width: 800, height: 480 })
      const { page } = visit
      const isWell = async (name: string) => {
        if (WITHOUT_AXE === false) t.same(await findings(visit), [], name)
        for (const width of WIDTHS) {
          await page.setViewportSize({ width, height: 480 })
          t.equal(await pixelsTooWide(page), 0, `${name} at ${width}`)
        }
        await page.setViewportSize({ width: 800, height: 480 })
      }
      await page.goto(`${origin}/console`)
      await page.getByRole('button', { name: 'Sign in' }).waitFor()
      await isWell('the form')
      await page.getByLabel('Management key').fill('nonsense')
      await page.keyboard.press('Enter')
      await page.getByRole('alert').waitFor()
      await isWell('a key that is refused')
      await page.getByRole('button', { name: 'Sign in' }).click()
      await page.getByText('your account has no role here').waitFor()
      await isWell('a person without a role')
      t.same(others(await visit.faults()), [])
    })
  }

  await t.test('is used by the keyboard alone', async t => {
    const visit = await browser.visit({ origin })
    const { page } = visit
    await page.goto(`${origin}/console`)
    await page.getByRole('button', { name: 'Sign in' }).waitFor()
    const focused = () =>
      page.evaluate<string>(
        'document.activeElement.getAttribute("type") + " " + document.activeElement.textContent',
      )
    t.equal(await focused(), 'password ', 'the field of the key')
    await page.keyboard.press('Tab')
    t.equal(await focused(), 'submit Open')
    await page.keyboard.press('Shift+Tab')
    await page.keyboard.press('Shift+Tab')
    t.equal(await focused(), 'button Sign in')
    await page.keyboard.press('Enter')
    await page.getByText('your account has no role here').waitFor()
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await page.getByLabel('Management key').waitFor()
    await page.getByRole('button', { name: 'Sign in' }).waitFor()
    await page.keyboard.type(world.managementKey)
    await page.keyboard.press('Enter')
    await page.getByText('live', { exact: true }).waitFor()
    t.same(others(await visit.faults()), [])
  })
})
