/** The page of the console in a browser, signed in, for tests of its views. */
import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import { openBrowser, type Visit } from '../support/browser.ts'
import { type ConsoleWorld, startConsoleWorld } from '../support/console-world.ts'

type TestBrowser = Awaited<ReturnType<typeof openBrowser>>
type VisitOptions = Parameters<TestBrowser['visit']>[0]

interface ConsolePage {
  readonly world: ConsoleWorld
  /** A signed-in visit at a view, by its path. */
  open(view: string, options?: Omit<VisitOptions, 'origin'>): Promise<Visit>
}

/** @param settings further fields of the configuration file */
export async function openConsole(
  t: Pick<Test, 'teardown'>,
  settings: Readonly<Record<string, unknown>> = {},
): Promise<ConsolePage> {
  const world = await startConsoleWorld(t, settings)
  const browser = await openBrowser(t)
  const origin = world.gateway.adminUrl
  return {
    world,
    async open(view, options = {}) {
      const visit = await browser.visit({ origin, ...options })
      await signIn(visit.page, origin, world.managementKey, view)
      return visit
    },
  }
}

async function signIn(page: Page, origin: string, key: string, view = 'home'): Promise<void> {
  await page.goto(`${origin}/console#/${view}`)
  await page.getByLabel('Management key').fill(key)
  await page.keyboard.press('Enter')
  await page.getByText('live', { exact: true }).waitFor()
}
