/** The page of the console in a real browser: every view, the keyboard, dark and light, a narrow window. */
import t from 'tap'
import { namedNodes, openBrowser, pixelsTooWide, type Visit, WITHOUT_BROWSER } from '../../support/browser.ts'
import { type ConsoleWorld, MARKUP, startConsoleWorld } from '../../support/console-world.ts'

/** Views by their tab, and what each shows once its data are there. */
const VIEWS: readonly (readonly [tab: string, path: string, shows: string])[] = [
  ['Home', 'home', 'Latest requests'],
  ['Requests', 'requests', 'Last requests, newest first'],
  ['Usage', 'usage', 'Usage'],
  ['Keys and workspaces', 'accounts', 'End users'],
  ['Models', 'models', 'Models and their endpoints'],
  ['Guardrails', 'guardrails', 'Hits by detector'],
  ['Batches', 'batches', 'Batches, newest first'],
  ['Playground', 'playground', 'Answer'],
]
const SECRET_TEXT = 'text-canary-0815'

t.test('the page of the console', { skip: WITHOUT_BROWSER }, async t => {
  const world = await startConsoleWorld(t)
  await fill(world)
  const origin = world.gateway.adminUrl
  const browser = await openBrowser(t)
  const signIn = async ({ page }: Visit, key = world.managementKey) => {
    await page.goto(`${origin}/console`)
    await page.getByLabel('Management key').fill(key)
    await page.keyboard.press('Enter')
  }
  const signedIn = async (visit: Visit) => {
    await signIn(visit)
    await visit.page.getByRole('navigation', { name: 'Views' }).waitFor()
    await visit.page.getByText('live', { exact: true }).waitFor()
  }
  const isNamed = async (visit: Visit) => {
    const nameless = (await namedNodes(visit)).filter(({ name }) => name === '')
    t.same(nameless, [], 'everything has a name')
  }

  await t.test('asks for a management key, and says why one is refused', async t => {
    const visit = await browser.visit({ origin })
    const { page } = visit
    await page.goto(`${origin}/console`)
    t.equal(await page.title(), 'Sluice console')
    await isNamed(visit)
    t.same(await visit.faults(), [])
    await signIn(visit, world.gateway.apiKey)
    await page.getByRole('alert').getByText('A management key is required').waitFor()
    await signIn(visit, 'nonsense')
    await page.getByRole('alert').getByText('Invalid API key').waitFor()
    await signIn(visit, 'ключ')
    await page.getByRole('alert').waitFor()
    // The browser itself reports each answer that refuses.
    t.ok((await visit.faults()).every(fault => /status of 40[13]/.test(fault)))
  })

  for (const colorScheme of ['light', 'dark'] as const) {
    await t.test(`shows every view, ${colorScheme}`, async t => {
      const visit = await browser.visit({ origin, colorScheme })
      const { page } = visit
      await signedIn(visit)
      for (const [at, [tab, path, shows]] of VIEWS.entries()) {
        await page.keyboard.press(String(at + 1))
        await page.waitForURL(`**/console#/${path}`)
        // The address changes before the page hears of it.
        await page.locator('nav a[aria-current="page"]', { hasText: tab }).waitFor()
        await page.locator(`[aria-label="${shows}"], h3:text-is("${shows}")`).first().waitFor()
        await isNamed(visit)
        await page.mouse.move(0, 0)
        t.same(await visit.faults(), [], tab)
      }
      const ground = await page.evaluate<string>('getComputedStyle(document.body).backgroundColor')
      t.equal(ground, colorScheme === 'dark' ? 'rgb(13, 18, 20)' : 'rgb(255, 255, 255)')
      t.ok((await contrasts(visit)) >= 4.5, 'text can be read')
    })
  }

  await t.test('is used by the keyboard alone', async t => {
    const visit = await browser.visit({ origin, colorScheme: 'dark' })
    const { page } = visit
    await signedIn(visit)
    await page.keyboard.press('2')
    await page.getByRole('table', { name: 'Last requests, newest first' }).waitFor()
    const focused = () => page.evaluate<string | null>('document.activeElement.getAttribute("data-id")')
    await page.keyboard.press('j')
    const first = await focused()
    t.match(first, /^gen-/)
    await page.keyboard.press('ArrowDown')
    const second = await focused()
    t.not(second, first)
    await page.keyboard.press('k')
    t.equal(await focused(), first)
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    const detail = page.getByRole('region', { name: 'Request', exact: true })
    await detail.waitFor()
    t.match(await detail.textContent(), String(second))
    await page.keyboard.press('Escape')
    await detail.waitFor({ state: 'detached' })
    t.equal(await focused(), second, 'the focus goes back')

    await page.keyboard.press('/')
    await page.keyboard.type('falls-back sim')
    await page.getByText('2 of', { exact: false }).waitFor()
    t.equal(await page.getByRole('button', { name: /details of/ }).count(), 2)
    await page.keyboard.press('Escape')
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keyboard' }).waitFor()
    await page.keyboard.press('3')
    t.match(page.url(), /#\/requests$/, 'the dialog has the keys')
    await page.keyboard.press('Escape')
    await page
      .getByRole('dialog')
      .waitFor({ state: 'detached' })
      .catch(() => undefined)
    await page.keyboard.press('8')
    await page.getByLabel('Question').fill('123456 j k ?')
    t.equal(await page.getByLabel('Question').inputValue(), '123456 j k ?')
    t.match(page.url(), /#\/playground$/, 'typing is typing')
    t.same(await visit.faults(), [])
  })

  await t.test('lists requests live, with stages, fallback and cause', async t => {
    const visit = await browser.visit({ origin, colorScheme: 'dark' })
    const { page } = visit
    await signedIn(visit)
    await page.keyboard.press('2')
    for (let at = 0; at < 12; at++)
      await world.respond({
        model: at % 3 === 0 ? 'sim/write' : 'sim/echo',
        input: SECRET_TEXT,
        stream: true,
      })
    await world.respond({ model: 'test/down', input: SECRET_TEXT })
    const { text } = await world.respond({ model: 'test/falls-back', input: SECRET_TEXT })
    const { id } = JSON.parse(text) as { id: string }
    const row = page.locator('tr', { has: page.locator(`[data-id="${id}"]`) })
    await row.getByText('down 502').or(row.getByText('down ECONNREFUSED')).first().waitFor()
    await row.getByText('$0', { exact: true }).waitFor()
    await page
      .getByText(/ECONNREFUSED/)
      .first()
      .waitFor()
    await row.click()
    const detail = page.getByRole('region', { name: 'Request', exact: true })
    await detail.getByText('until the provider answers').waitFor()
    await detail.getByText('input tokens').waitFor()
    t.equal(await detail.getByRole('img').count(), 1, 'the bar of the stages')
    // Until the span of the requests is over, the charts do not show it.
    await page
      .getByRole('figure', { name: 'First token' })
      .getByText(/p50 .*ms/)
      .first()
      .waitFor()
    t.notMatch(await page.content(), SECRET_TEXT)
    t.same(await visit.faults(), [])
  })

  await t.test('tries a model with an API key, streams, and stops', async t => {
    const visit = await browser.visit({ origin, colorScheme: 'light' })
    const { page } = visit
    await signedIn(visit)
    await page.keyboard.press('8')
    await page.getByLabel('API key').fill(world.gateway.apiKey)
    await page.getByLabel('Model', { exact: true }).fill('sim/echo')
    await page.getByLabel('Question').fill(MARKUP)
    await page.getByRole('button', { name: 'Send' }).click()
    const answer = page.locator('output')
    await page.getByText('done', { exact: true }).waitFor()
    t.equal((await answer.textContent())?.includes(MARKUP), true, 'markup is text')
    await page.getByRole('status').filter({ hasText: 'first token' }).waitFor()
    t.same(await visit.faults(), [])

    await page.getByLabel('Model', { exact: true }).fill('test/slow')
    await page.getByRole('button', { name: 'Send' }).click()
    await answer.filter({ hasText: /.{20}/ }).waitFor()
    await page.getByRole('button', { name: 'Stop' }).click()
    await page.getByText('stopped', { exact: true }).waitFor()
    await visit.faults()

    await page.getByLabel('API key').fill('sk-gw-v1-wrong')
    await page.getByRole('button', { name: 'Send' }).click()
    await page.getByText('401: Invalid API key').waitFor()
    await page.keyboard.press('Escape')
    const kept = await page.evaluate<string>(
      'JSON.stringify([localStorage, sessionStorage, document.cookie])',
    )
    t.equal(kept, '[{},{},""]', 'nothing is kept')
    await page.reload()
    await page.getByLabel('Management key').waitFor()
  })

  await t.test('names with markup are text', async t => {
    const visit = await browser.visit({ origin })
    const { page } = visit
    await signedIn(visit)
    await page.keyboard.press('4')
    await page.getByRole('table', { name: 'API keys' }).getByRole('rowheader', { name: MARKUP }).waitFor()
    await page.getByRole('table', { name: 'End users' }).getByRole('rowheader', { name: MARKUP }).waitFor()
    await page.keyboard.press('6')
    await page.getByRole('rowheader', { name: MARKUP }).first().waitFor()
    t.equal(await page.locator('img').count(), 0)
    t.same(await visit.faults(), [])
  })

  await t.test('is used in a window of 320 pixels', async t => {
    const visit = await browser.visit({ origin, width: 320, height: 640 })
    const { page } = visit
    await page.goto(`${origin}/console`)
    t.equal(await pixelsTooWide(page), 0, 'before')
    await signedIn(visit)
    for (const [tab, , shows] of VIEWS) {
      await page.getByRole('link', { name: tab, exact: true }).click()
      await page.locator(`[aria-label="${shows}"], h3:text-is("${shows}")`).first().waitFor()
      t.equal(await pixelsTooWide(page), 0, tab)
    }
    await page.getByRole('link', { name: 'Requests', exact: true }).click()
    await page
      .getByRole('button', { name: /details of/ })
      .first()
      .click()
    await page.getByRole('button', { name: 'Close details' }).waitFor()
    t.equal(await pixelsTooWide(page), 0, 'details')
    await page.getByRole('button', { name: 'Close details' }).click()
    t.same(await visit.faults(), [])
  })

  await t.test('empty views say what to do', async t => {
    const empty = await startConsoleWorld(t)
    const visit = await browser.visit({ origin: empty.gateway.adminUrl })
    const { page } = visit
    await page.goto(`${empty.gateway.adminUrl}/console`)
    await page.getByLabel('Management key').fill(empty.managementKey)
    await page.keyboard.press('Enter')
    for (const [key, told] of [
      ['1', 'No problems.'],
      ['2', 'No requests yet'],
      ['3', 'No usage in these days'],
      ['4', 'No end users yet'],
      ['6', 'No guardrail has found anything yet'],
      ['7', 'No batches yet'],
    ] as const) {
      await page.getByRole('navigation', { name: 'Views' }).waitFor()
      await page.keyboard.press(key)
      await page.getByText(told).waitFor()
    }
    t.same(await visit.faults(), [])
    // A gateway that goes away is told, and found again.
    await empty.gateway.kill()
    await page.getByText('lost', { exact: true }).waitFor()
  })
})

/** Something for every view. */
async function fill(world: ConsoleWorld): Promise<void> {
  const { manage, respond, gateway } = world
  await manage('POST', '/keys', { name: MARKUP, limit: 5, limit_reset: 'daily' })
  await manage('POST', '/end-users', { user: MARKUP })
  await manage('POST', '/credits', { amount: 20, note: 'test' })
  await manage('POST', '/guardrails', { name: MARKUP, workspace_id: 'ws_default' })
  const { list } = await manage('GET', '/guardrails')
  const id = String(list.find(guardrail => guardrail['is_workspace_default'] === true)?.['id'])
  await manage('PATCH', `/guardrails/${id}`, {
    content_filter_builtins: [{ slug: 'email', action: 'redact' }],
  })
  await respond({ model: 'sim/echo', input: 'Write to someone@example.com', user: MARKUP })
  for (const model of ['sim/echo', 'test/falls-back', 'test/falls-back', 'test/down', 'sim/absent'])
    await respond({ model, input: SECRET_TEXT })
  await fetch(`${gateway.url}/v1/batches`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      endpoint: '/v1/responses',
      model: 'sim/echo',
      requests: [{ custom_id: 'one', body: { input: SECRET_TEXT } }],
    }),
  })
}

/** The smallest contrast of text to what is behind it, by the formula of WCAG 2. */
async function contrasts({ page }: Visit): Promise<number> {
  return await page.evaluate<number>(`(() => {
    const rgb = text => text.match(/[\\d.]+/g).map(Number)
    const light = ([r, g, b]) => {
      const [R, G, B] = [r, g, b].map(each => {
        const share = each / 255
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
      })
      return 0.2126 * R + 0.7152 * G + 0.0722 * B
    }
    const behind = element => {
      for (let at = element; at !== null; at = at.parentElement) {
        const colour = rgb(getComputedStyle(at).backgroundColor)
        if (colour.length === 3 || colour[3] > 0) return colour
      }
      return [255, 255, 255]
    }
    let least = 21
    for (const element of document.querySelectorAll('body *')) {
      const isText = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim() !== '')
      if (!isText || element.matches(':disabled, noscript') || element.getClientRects().length === 0) continue
      const [one, other] = [light(rgb(getComputedStyle(element).color)), light(behind(element))]
      least = Math.min(least, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05))
    }
    return least
  })()`)
}
