/** The first view and the search over the ledger in a browser. */
import t from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { MARKUP } from '../support/console-world.ts'
import { eventually } from '../support/stream-probe.ts'
import { openConsole } from './console-page.ts'

t.test('home and search', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t)
  const { manage, respond } = world
  const idOf = async (body: object): Promise<string> => {
    const { text } = await respond(body)
    return String((JSON.parse(text) as { id?: unknown }).id)
  }
  for (let at = 0; at < 60; at++) await respond({ model: 'sim/echo', input: 'many' })
  const special = await idOf({ model: 'sim/write', input: 'x', user: MARKUP, session_id: 'session-7' })
  for (let at = 0; at < 6; at++) await respond({ model: 'test/down', input: 'x' })
  const failures = async () => (await manage('GET', '/generations?outcome=failed')).list.length
  t.ok(await eventually(async () => (await failures()) >= 5, 60_000))

  await t.test('home tells what is wrong, with the way to it, and money', async t => {
    await manage('POST', '/keys', { name: MARKUP, limit: 0 })
    const visit = await open('home')
    const { page } = visit
    const health = page.getByRole('list', { name: 'Current problems' })
    await health.getByText(/^\d of the last \d+ requests failed/).waitFor()
    await health.getByText(`Key ${MARKUP} has a limit of $0.`).waitFor()
    t.equal(await page.locator('img').count(), 0)
    const models = page.getByRole('table', { name: 'Models of the last 15 minutes' })
    await models
      .locator('tr', { hasText: 'test/down' })
      .getByText(/\(100 %\)/)
      .waitFor()
    await models.locator('tr', { hasText: 'sim/echo' }).getByText('60', { exact: true }).waitFor()
    for (const name of ['Today (UTC)', 'This month', 'First token', 'Running now'])
      t.equal(await page.locator('.figure', { hasText: name }).count(), 1, name)
    await page.getByRole('button', { name: '5 min', exact: true }).click()
    await health.locator('li', { hasText: 'requests failed' }).getByRole('link', { name: 'Show' }).click()
    await page.getByRole('table', { name: 'Last requests, newest first' }).waitFor()
    t.same(await visit.faults(), [])
  })

  await t.test('the whole ledger is searched by id, model, user, session, outcome and cost', async t => {
    const visit = await open('requests')
    const { page } = visit
    await page.getByRole('button', { name: 'Search the ledger' }).click()
    const found = page.getByRole('table', { name: 'Found requests, newest first' })
    await found.waitFor()
    const count = async () => await found.locator('tbody tr').count()
    t.equal(await count(), 50, 'a page')
    await page.getByRole('button', { name: 'Search older records' }).click()
    await page.getByText(/^6\d requests, no others match/).waitFor()
    const search = async (label: string, value: string, told: RegExp) => {
      await page.getByRole('button', { name: 'Clear' }).click()
      if (label === 'Outcome') await page.getByRole('combobox', { name: label }).selectOption(value)
      else await page.getByLabel(label, { exact: true }).fill(value)
      await page.getByRole('button', { name: 'Search', exact: true }).click()
      await page.getByText(told).first().waitFor()
    }
    await search('Id', special, /^1 requests/)
    t.equal(await found.locator(`[data-id="${special}"]`).count(), 1)
    await search('End user', MARKUP, /^1 requests/)
    await search('Session', 'session-7', /^1 requests/)
    await search('Model', 'test/down', /^[4-6] requests/)
    await search('Outcome', 'failed', /^[56] requests/)
    await search('Cost from, USD', '1000', /^0 requests|No record matches/)
    t.same(await visit.faults(), [])
    await search('Id', 'gen-unknown', /Generation not found/)
    t.ok((await visit.faults()).every(fault => /status of 404/.test(fault)))
    await search('Session', 'session-7', /^1 requests/)
    await found.locator(`[data-id="${special}"]`).click()
    const detail = page.getByRole('region', { name: 'Request', exact: true })
    await detail.getByText('session-7').waitFor()
    await detail.getByText('GATEWAY_API_KEY').waitFor()
    await page.keyboard.press('Escape')
    await detail.waitFor({ state: 'detached' })
    t.same(await visit.faults(), [])
  })
})
