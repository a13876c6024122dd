/**
 * A real Chromium for pages of the product. Each visit has its own profile, and records everything that a page must not
 * do: errors in the console and in scripts, failed requests, policy violations, requests to other hosts.
 */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core'
import type { Test } from 'tap'
import { withPalette } from './png.ts'

const ROOT = resolve(import.meta.dirname, '../..')
/** Where the packages of Linux distributions and of macOS have it. */
const PLACES = [
  process.env['CHROMIUM'] ?? '',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
]
const executable = PLACES.find(place => place !== '' && existsSync(place))
const MISSING = 'Chromium is not installed; $CHROMIUM may name its path'
/** For machines that are slow and busy; nothing waits as long where all is well. */
const WAIT_MS = Number(process.env['DEV_WAIT'] ?? 60_000)

/** Why tests of pages are left out, or false; where everything has to run, missing it is a failure. */
export const WITHOUT_BROWSER: string | false =
  executable !== undefined || process.env['CI'] === 'true' ? false : MISSING

interface VisitOptions {
  /** The pages under test: requests elsewhere are faults. */
  readonly origin: string
  /** Default: the light one. */
  readonly colorScheme?: 'dark' | 'light'
  /** Of the window, in CSS pixels. Default: 1280 by 800. */
  readonly width?: number
  readonly height?: number
}

export interface Visit {
  readonly page: Page
  readonly context: BrowserContext
  /** All faults since the last call, one line each. Tests end with `t.same(await visit.faults(), [])`. */
  faults(): Promise<string[]>
}

interface TestBrowser {
  visit(options: VisitOptions): Promise<Visit>
}

/** Ends with the test, and all visits with it. */
export async function openBrowser(t: Pick<Test, 'teardown'>): Promise<TestBrowser> {
  if (executable === undefined) throw new Error(MISSING)
  const browser: Browser = await chromium.launch({
    executablePath: executable,
    // Chromium's own sandbox does not work for root.
    chromiumSandbox: process.getuid?.() !== 0,
    // Nothing but this machine has a name: pages cannot reach elsewhere, and each try is a fault.
    args: ['--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost'],
    timeout: WAIT_MS,
  })
  t.teardown(() => browser.close())
  return { visit: options => visit(browser, options) }
}

async function visit(browser: Browser, options: VisitOptions): Promise<Visit> {
  const { origin, colorScheme = 'light', width = 1280, height = 800 } = options
  const context = await browser.newContext({
    colorScheme,
    viewport: { width, height },
    reducedMotion: 'reduce',
    locale: 'en-GB',
    timezoneId: 'UTC',
  })
  context.setDefaultTimeout(WAIT_MS)
  let faults: string[] = []
  const note = (kind: string, text: string) => void faults.push(`${kind}: ${text}`)
  context.on('console', message => {
    if (message.type() === 'error') note('console', `${message.text()} ${message.location().url}`)
  })
  context.on('weberror', event => note('script', String(event.error())))
  context.on('requestfailed', request => {
    const reason = request.failure()?.errorText
    // The page itself has left it. Chromium says so even of some streams that were read to their end.
    if (reason !== 'net::ERR_ABORTED') note('failed', `${request.url()} ${reason}`)
  })
  context.on('request', request => {
    if (new URL(request.url()).origin !== origin) note('elsewhere', request.url())
  })
  // Scripts of the test run even where the page's policy allows none.
  await context.addInitScript(
    `document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) =>
      console.error('policy: ' + violatedDirective + ' ' + blockedURI))`,
  )
  const page = await context.newPage()
  return {
    page,
    context,
    async faults() {
      // The answer comes after all that the page has reported before.
      await page.evaluate('0')
      const found = faults
      faults = []
      return found
    },
  }
}

/** Roles of what is used or announced by its name. */
const NAMED_ROLES = new Set(
  `alertdialog button checkbox combobox dialog DisclosureTriangle heading image link listbox menuitem meter navigation
  option progressbar radio radiogroup region searchbox slider spinbutton switch tab table textbox`.split(
    /\s+/,
  ),
)

interface AccessibleNode {
  readonly ignored: boolean
  readonly role?: { readonly value?: unknown }
  readonly name?: { readonly value?: unknown }
}

/** What assistive software is told: role and name of each node that has to have a name. */
export async function namedNodes({ page, context }: Visit): Promise<{ role: string; name: string }[]> {
  const session = await context.newCDPSession(page)
  const { nodes } = await session.send('Accessibility.getFullAXTree')
  await session.detach()
  return (nodes as readonly AccessibleNode[])
    .filter(({ ignored, role }) => !ignored && NAMED_ROLES.has(String(role?.value)))
    .map(({ role, name }) => ({ role: String(role?.value), name: String(name?.value ?? '').trim() }))
}

/** Pixels by which the page is wider than its window: it would scroll sideways. */
export async function pixelsTooWide(page: Page): Promise<number> {
  return await page.evaluate<number>(
    'document.documentElement.scrollWidth - document.documentElement.clientWidth',
  )
}

/** Writes `docs/images/NAME.png`, and only with SCREENSHOTS=1: pictures differ from machine to machine. */
export async function screenshot(page: Page, name: string): Promise<void> {
  if (process.env['SCREENSHOTS'] !== '1') return
  const path = join(ROOT, 'docs/images', `${name}.png`)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, withPalette(await page.screenshot({ animations: 'disabled', caret: 'hide' })))
}
