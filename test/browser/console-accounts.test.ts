/** Keys, workspaces, credentials and end users, changed by clicks alone; the API has what the page did. */
import t from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { MARKUP } from '../support/console-world.ts'
import { openConsole } from './console-page.ts'

t.test('keys and workspaces', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t)
  const { manage, respond } = world
  const visit = await open('accounts')
  const { page } = visit
  const dialog = page.getByRole('dialog')
  const keys = page.getByRole('table', { name: 'API keys' })
  const row = (name: string) =>
    keys.locator('tr', { has: page.getByRole('rowheader', { name, exact: true }) })

  await t.test('a new key is shown once, works, and is kept nowhere', async t => {
    await page.getByRole('button', { name: 'New key' }).click()
    await dialog.getByLabel('Name').fill(MARKUP)
    await dialog.getByLabel('Limit in USD').fill('2.5')
    await dialog.getByLabel('Limit period').selectOption('monthly')
    await dialog.getByLabel('Requests per minute').fill('60')
    await dialog.getByLabel('Requests at once').fill('4')
    await dialog.getByLabel('Requests on BYOK credentials count too').check()
    await dialog.getByLabel('Member').fill('ada')
    await dialog.getByRole('button', { name: 'Create' }).click()
    // Not inside of the dialog: a closed one has no role, and its content is still there until it is drawn anew.
    const secret = page.locator('output.secret')
    await secret.waitFor()
    const key = String(await secret.textContent())
    t.match(key, /^sk-gw-v1-[0-9a-f]{64}$/)
    await dialog.getByRole('button', { name: 'Copy' }).click()
    await dialog.getByText(/Copied|Selected/).waitFor()
    await dialog.getByRole('button', { name: 'Close' }).click()
    await secret.waitFor({ state: 'detached' })
    t.notMatch(await page.content(), key, 'it is gone with its dialog')
    await row(MARKUP).getByText('$2.50 monthly').waitFor()
    await row(MARKUP).getByText('60 req/min, 4 at once').waitFor()
    t.equal(await page.locator('img').count(), 0, 'a name is text')
    t.equal((await respond({ model: 'sim/echo', input: 'x' }, key)).status, 200)
    const { list } = await manage('GET', '/keys')
    t.match(
      list.find(({ name }) => name === MARKUP),
      {
        limit: 2.5,
        limit_reset: 'monthly',
        include_byok_in_limit: true,
        creator_user_id: 'ada',
        rate_limit: { requests_per_minute: 60, tokens_per_minute: null, parallel: 4 },
      },
    )

    await t.test('it is rotated: the new secret is shown once, the old one ends', async t => {
      await row(MARKUP)
        .getByRole('button', { name: /^Rotate/ })
        .click()
      await dialog.getByLabel('The current secrets keep working for').selectOption('3600')
      await dialog.getByRole('button', { name: 'Rotate' }).click()
      const rotated = String(await dialog.locator('output').textContent())
      t.match(rotated, /^sk-gw-v1-[0-9a-f]{64}$/)
      t.not(rotated, key)
      await dialog.getByRole('button', { name: 'Close' }).click()
      for (const secret of [key, rotated])
        t.equal((await respond({ model: 'sim/echo', input: 'x' }, secret)).status, 200)
    })

    await t.test('it is changed, disabled, enabled and deleted', async t => {
      await row(MARKUP)
        .getByRole('button', { name: /^Change/ })
        .click()
      await dialog.getByLabel('Name').fill('Renamed')
      await dialog.getByLabel('Limit in USD').fill('')
      await dialog.getByLabel('Limit period').selectOption('')
      await dialog.getByLabel('Requests per minute').fill('')
      await dialog.getByLabel('Requests at once').fill('')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await row('Renamed').getByText('none').waitFor()
      await row('Renamed')
        .getByRole('button', { name: /^disable/i })
        .click()
      await dialog.getByRole('button', { name: 'Disable' }).click()
      await row('Renamed').getByText('disabled', { exact: true }).waitFor()
      t.equal((await respond({ model: 'sim/echo', input: 'x' }, key)).status, 401)
      await row('Renamed')
        .getByRole('button', { name: /^enable/i })
        .click()
      await dialog.getByRole('button', { name: 'Enable' }).click()
      await row('Renamed').getByText('active', { exact: true }).waitFor()
      await row('Renamed')
        .getByRole('button', { name: /^Delete/ })
        .click()
      await dialog.getByRole('button', { name: 'Cancel' }).click()
      await row('Renamed')
        .getByRole('button', { name: /^Delete/ })
        .click()
      await dialog.getByRole('button', { name: 'Delete' }).click()
      await row('Renamed').waitFor({ state: 'detached' })
      t.equal((await respond({ model: 'sim/echo', input: 'x' }, key)).status, 401)
    })
  })

  await t.test('a management key that may only read, and one whose traces are trusted', async t => {
    await page.getByRole('button', { name: 'New key' }).click()
    await dialog.getByLabel('Name').fill('dashboard')
    await dialog.getByLabel('Limit in USD').waitFor()
    await dialog.getByRole('checkbox', { name: /^Management key/ }).check()
    await dialog.getByLabel('Limit in USD').waitFor({ state: 'detached' })
    t.equal(await dialog.getByLabel('Role').inputValue(), 'viewer', 'the least role is the first choice')
    t.equal(await dialog.getByLabel('Name').inputValue(), 'dashboard', 'what was typed stays')
    await dialog.getByRole('button', { name: 'Create' }).click()
    const key = String(await dialog.locator('output').textContent())
    await dialog.getByRole('button', { name: 'Close' }).click()
    await row('dashboard').getByText('viewer').waitFor()
    const asked = async (path: string, init: RequestInit = {}) => {
      const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
      return (await fetch(`${world.gateway.url}/v1/${path}`, { ...init, headers })).status
    }
    t.equal(await asked('keys'), 200)
    t.equal(await asked('keys', { method: 'POST', body: '{"name":"x"}' }), 403)
    await row('dashboard')
      .getByRole('button', { name: /^Change/ })
      .click()
    await dialog.getByLabel('Role').selectOption('operator')
    await dialog.getByRole('button', { name: 'Save' }).click()
    await row('dashboard').getByText('operator').waitFor()
    t.equal(await asked('keys', { method: 'POST', body: '{"name":"traced"}' }), 201)

    await page.getByRole('button', { name: 'New key' }).click()
    await dialog.getByLabel('Name').fill('trusted')
    await dialog.getByRole('checkbox', { name: /traceparent/ }).check()
    await dialog.getByRole('button', { name: 'Create' }).click()
    await dialog.getByRole('button', { name: 'Close' }).click()
    const { list } = await manage('GET', '/keys')
    t.match(
      list.find(({ name }) => name === 'trusted'),
      { trace_trusted: true, is_management_key: false },
    )

    await page.keyboard.press('9')
    const changes = page.getByRole('table', { name: 'Changes, newest first' })
    const change = changes.locator('tr', { has: page.getByText('key.update', { exact: true }) }).first()
    await change.getByText('GATEWAY_MANAGEMENT_KEY').waitFor()
    await change.getByRole('rowheader', { name: 'dashboard' }).waitFor()
    const made = changes.locator('tr', { has: page.getByRole('rowheader', { name: 'traced' }) })
    await made.getByText('dashboard').waitFor()
    await page.keyboard.press('4')
    await keys.waitFor()
  })

  await t.test('what the gateway refuses is told in the form, and nothing is lost', async t => {
    await page.getByRole('button', { name: 'New workspace' }).click()
    await dialog.getByLabel('Name').fill('Research')
    await dialog.getByLabel('Slug').fill('research')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('table', { name: 'Workspaces' }).getByText('research', { exact: true }).waitFor()
    t.same(await visit.faults(), [])
    await page.getByRole('button', { name: 'New workspace' }).click()
    await dialog.getByLabel('Name').fill('Another')
    await dialog.getByLabel('Slug').fill('research')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await dialog.getByRole('alert').getByText('slug: already used').waitFor()
    t.equal(await dialog.getByLabel('Name').inputValue(), 'Another')
    // The browser itself reports the refusal.
    t.ok((await visit.faults()).every(fault => /status of 409/.test(fault)))
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Change workspace Research' }).click()
    await dialog.getByLabel('Server tools that are off').fill('gateway:web_search')
    await dialog.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('table', { name: 'Workspaces' }).getByText('gateway:web_search').waitFor()
  })

  await t.test('a BYOK credential is added to the chosen workspace, and its key is never shown', async t => {
    await page.getByRole('combobox', { name: 'Workspace', exact: true }).selectOption({ label: 'Research' })
    await page.getByRole('button', { name: 'New credential' }).click()
    await dialog.getByLabel('Provider').fill('openai')
    await dialog.getByLabel('Key', { exact: true }).fill('sk-example-0123456789abcdef')
    await dialog.getByLabel('Name').fill('Team')
    await dialog.getByLabel('Only for these models').fill('openai/gpt-5')
    await dialog.getByRole('checkbox', { name: 'Required' }).check()
    await dialog.getByRole('button', { name: 'Add' }).click()
    const table = page.getByRole('table', { name: 'Provider credentials (BYOK)' })
    await table.getByText('required', { exact: true }).waitFor()
    t.notMatch(await page.content(), '0123456789')
    await table.getByRole('button', { name: 'Change credential Team' }).click()
    await dialog.getByRole('checkbox', { name: 'Disabled' }).check()
    await dialog.getByRole('button', { name: 'Save' }).click()
    await table.getByText('disabled', { exact: true }).waitFor()
    await table.getByRole('button', { name: 'Delete credential Team' }).click()
    await dialog.getByRole('button', { name: 'Delete' }).click()
    await page.getByText('No credentials yet').waitFor()
  })

  await t.test('end users and credits', async t => {
    await page.getByRole('button', { name: 'Register an end user' }).click()
    await dialog.getByLabel('User').fill('"quoted" & user/1')
    await dialog.getByLabel('Weight').fill('3')
    await dialog.getByLabel('Tokens per minute').fill('9000')
    await dialog.getByRole('button', { name: 'Register' }).click()
    await page.getByRole('button', { name: 'Change end user "quoted" & user/1' }).click()
    await page.getByRole('table', { name: 'End users' }).getByText('9.0k tok/min').waitFor()
    await dialog.getByLabel('Active').uncheck()
    await dialog.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('table', { name: 'End users' }).getByText('inactive').waitFor()
    await page.getByRole('button', { name: 'Add credits' }).click()
    await dialog.getByLabel('Amount in USD').fill('12.5')
    await dialog.getByRole('button', { name: 'Add' }).click()
    await page.locator('.figure', { hasText: 'Credits' }).getByText('$12.50').waitFor()
    const { list } = await manage('GET', '/audit?limit=100')
    const actions = new Set(list.map(entry => entry['action']))
    for (const action of [
      'key.create',
      'key.update',
      'key.delete',
      'workspace.update',
      'credential.delete',
      'credit.create',
    ])
      t.ok(actions.has(action), action)
    t.same(await visit.faults(), [])
  })
})
