/** Keys, workspaces, credentials, end users and guardrails by the keyboard alone, in three windows, light and dark. */
import t, { type Test } from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { unlessExhaustive } from '../support/share.ts'
import { OWN_KEY, openWalk, type Walk, WIDTHS, walkOf } from './console-walk.ts'

async function credits(
  _: Test,
  { visit: { page }, keys, dialog, button, view, peek, send }: Walk,
): Promise<void> {
  await view('accounts')
  const opener = button('Add credits')
  await peek(opener, 'credits')
  await keys.press('Enter')
  await keys.type(dialog.getByLabel('Amount in USD'), '12.5')
  await keys.type(dialog.getByLabel('Note'), 'by keys')
  await send('Add', opener)
  await page.locator('.figure', { hasText: 'Credits' }).waitFor()
}

async function keysOfApi(t: Test, walk: Walk): Promise<void> {
  const { visit, keys, dialog, button, row, look, peek, send } = walk
  const { page } = visit
  const opener = button('New key')
  await peek(opener, 'a new key')
  await keys.press('Space')
  await keys.type(dialog.getByLabel('Name'), 'By keys')
  await keys.use(dialog.getByRole('checkbox', { name: /^Management key/ }), 'Space')
  await keys.choose(dialog.getByLabel('Role'), 'operator')
  await look('a new management key')
  await keys.use(dialog.getByRole('checkbox', { name: /^Management key/ }), 'Space')
  await keys.type(dialog.getByLabel('Limit in USD'), '5')
  await keys.choose(dialog.getByLabel('Limit period'), 'daily')
  await keys.use(dialog.getByRole('checkbox', { name: /^Requests on BYOK/ }), 'Space')
  await keys.type(dialog.getByLabel('Member'), 'ada')
  await keys.use(dialog.getByRole('button', { name: 'Create' }))
  await page.locator('output.secret').waitFor()
  await look('a secret that is shown once')
  await keys.use(dialog.getByRole('button', { name: 'Copy' }))
  await dialog.getByText(/^Copied$|^Selected/).waitFor()
  await keys.use(dialog.getByRole('button', { name: 'Close' }))
  await page.locator('dialog.form').waitFor({ state: 'detached' })
  await keys.isAt(opener)
  await row('API keys', 'By keys').getByText('0 % of $5.00 daily').waitFor()

  await peek(button('Change By keys'), 'a changed key')
  await keys.press('Enter')
  await keys.type(dialog.getByLabel('Name'), 'By hand')
  await send('Save', null)
  await row('API keys', 'By hand').waitFor()
  await keys.isAt(button('Change By hand'))
  await peek(button('Rotate By hand'), 'a rotation')
  await keys.press('Enter')
  await keys.choose(dialog.getByLabel('The current secrets keep working for'), '3600')
  await keys.use(dialog.getByRole('button', { name: 'Rotate' }))
  await page.locator('output.secret').waitFor()
  await keys.press('Escape')
  await page.locator('dialog.form').waitFor({ state: 'detached' })
  await keys.isAt(button('Rotate By hand'))
  await peek(button('disable By hand'), 'a key to disable')
  await keys.press('Enter')
  await send('Disable', null)
  await row('API keys', 'By hand').getByText('disabled', { exact: true }).waitFor()
  await keys.isAt(button('enable By hand'))
  await peek(button('enable By hand'), 'a key to enable')
  await keys.press('Enter')
  await send('Enable', null)
  await row('API keys', 'By hand').getByText('active', { exact: true }).waitFor()
  const gone = button('Delete By hand')
  await peek(gone, 'a key to delete')
  await keys.press('Enter')
  await send('Delete', null)
  await gone.waitFor({ state: 'detached' })
  await keys.isAt(page.getByRole('group', { name: 'API keys' }))
  t.pass('the focus is in the table still')
}

async function workspaces(t: Test, walk: Walk): Promise<void> {
  const { visit, keys, dialog, button, peek, send, world } = walk
  const table = visit.page.getByRole('table', { name: 'Workspaces' })
  await peek(button('New workspace'), 'a new workspace')
  await keys.press('Enter')
  await keys.type(dialog.getByLabel('Name'), 'Research')
  await keys.type(dialog.getByLabel('Slug'), 'research')
  await send('Create', button('New workspace'))
  await table.getByText('research', { exact: true }).waitFor()
  await peek(button('Change workspace Research'), 'a changed workspace')
  await keys.press('Enter')
  await keys.type(dialog.getByLabel('Description'), 'For papers')
  await keys.type(dialog.getByLabel('Server tools that are off'), 'gateway:web_search')
  await send('Save', button('Change workspace Research'))
  await table.getByText('For papers').waitFor()

  const { list } = await world.manage('GET', '/workspaces')
  const id = String(list.find(({ slug }) => slug === 'research')?.['id'])
  await world.manage('POST', '/keys', { name: 'Of research', workspace_id: id })
  // The page reads its keys again after a change.
  await keys.use(button('Change workspace Research'))
  await send('Save', button('Change workspace Research'))
  await button('Disable keys of Research').and(visit.page.locator(':enabled')).waitFor()
  await peek(button('Disable keys of Research'), 'keys to disable')
  await keys.press('Enter')
  await send('Disable them', null)
  const stored = (await world.manage('GET', '/keys?include_disabled=true')).list
  t.match(
    stored.find(({ name }) => name === 'Of research'),
    { disabled: true },
  )
}

async function credentials(_: Test, walk: Walk): Promise<void> {
  const { visit, keys, dialog, button, world, peek, send, look } = walk
  const { page } = visit
  const { list } = await world.manage('GET', '/workspaces')
  const id = String(list.find(({ slug }) => slug === 'research')?.['id'])
  await keys.choose(page.getByRole('combobox', { name: 'Workspace', exact: true }), id)
  const opener = button('New credential')
  await peek(opener, 'a new credential')
  await keys.press('Enter')
  await keys.type(dialog.getByLabel('Provider'), 'silent')
  await keys.type(dialog.getByLabel('Key', { exact: true }), OWN_KEY)
  await keys.type(dialog.getByLabel('Name'), 'Team')
  await keys.type(dialog.getByLabel('Only for these models'), 'test/silent')
  for (const name of [/^Required/, /^Fallback/, /^Own only/])
    await keys.use(dialog.getByRole('checkbox', { name }), 'Space')
  await keys.press('Space')
  await keys.use(dialog.getByRole('checkbox', { name: /^Fallback/ }), 'Space')
  await send('Add', opener)
  await page.getByText('required', { exact: true }).waitFor()
  await peek(button('Try credential Team'), 'the trial of a credential')
  await keys.press('Enter')
  await keys.use(dialog.getByRole('button', { name: 'Try it' }))
  await dialog.getByText('works', { exact: true }).waitFor()
  await keys.isAt(dialog.getByRole('button', { name: 'Try it' }))
  await keys.press('Escape')
  await page.locator('dialog.form').waitFor({ state: 'detached' })
  await peek(button('Change credential Team'), 'a changed credential')
  await keys.press('Enter')
  await keys.use(dialog.getByRole('checkbox', { name: 'Disabled' }), 'Space')
  await send('Save', button('Change credential Team'))
  await look('credentials')
  await peek(button('Delete credential Team'), 'a credential to delete')
  await keys.press('Enter')
  await send('Delete', null)
  await page.getByText('No credentials yet').waitFor()
  await peek(button('Delete workspace Research'), 'a workspace to delete')
  await keys.press('Enter')
  await send('Delete', null)
  await button('Delete workspace Research').waitFor({ state: 'detached' })
}

async function endUsers(t: Test, walk: Walk): Promise<void> {
  const { visit, keys, dialog, button, row, peek, send, world } = walk
  const opener = button('Register an end user')
  const user = `user-${visit.page.viewportSize()?.width}`
  await peek(opener, 'a new end user')
  await keys.press('Enter')
  await keys.type(dialog.getByLabel('User'), user)
  await keys.type(dialog.getByLabel('Weight'), '3')
  await send('Register', opener)
  const change = button(`Change end user ${user}`)
  await peek(change, 'a changed end user')
  await keys.press('Enter')
  await keys.use(dialog.getByRole('checkbox', { name: 'Active' }), 'Space')
  await send('Save', change)
  await row('End users', user).getByText('inactive').waitFor()
  const { list } = await world.manage('GET', '/end-users?include_inactive=true&limit=100')
  t.match(
    list.find(each => each['user'] === user),
    { weight: 3, is_active: false },
  )
}

async function guardrails(_: Test, walk: Walk): Promise<void> {
  const { visit, keys, dialog, button, row, world, view, look, peek, send } = walk
  const { page } = visit
  await view('guardrails')
  const opener = button('New guardrail')
  await peek(opener, 'a new guardrail')
  await keys.press('Enter')
  await keys.type(dialog.getByLabel('Name', { exact: true }), 'Team')
  await keys.choose(dialog.getByLabel('email in requests'), 'redact')
  await keys.choose(dialog.getByLabel('secrets in replies'), 'block')
  await keys.type(dialog.getByLabel('Custom patterns in requests'), 'flag wor[dk]')
  await keys.type(dialog.getByLabel('Budget of each key in USD'), '5')
  await keys.choose(dialog.getByLabel('Budget period'), 'daily')
  await keys.choose(dialog.getByLabel('If content cannot be checked'), 'open')
  await send('Create', opener)
  await row('Guardrails', 'Team').getByText('email: redact').waitFor()
  const { list } = await world.manage('GET', '/guardrails')
  const id = String(list.find(({ name }) => name === 'Team')?.['id'])
  await world.manage('POST', `/guardrails/${id}/assignments/members`, { member_user_ids: ['ada'] })
  await page.getByRole('table', { name: 'Budgets of Team' }).getByText('member ada').waitFor()
  await look('guardrails with budgets')
  await keys.choose(page.getByRole('combobox', { name: 'Guardrail', exact: true }), id)
  await keys.choose(page.getByRole('combobox', { name: 'As', exact: true }), 'input')
  await keys.type(page.getByLabel('Text', { exact: true }), 'Write to ada@example.com about work')
  await keys.use(button('Check'))
  await page.getByLabel('The text that would be sent').waitFor()
  await look('a text with findings')
  const change = button('Change guardrail Team')
  await peek(change, 'a changed guardrail')
  await keys.press('Enter')
  await keys.choose(dialog.getByLabel('secrets in replies'), '')
  await keys.type(dialog.getByLabel('Allowed models'), 'test/priced')
  await send('Save', change)
  await row('Guardrails', 'Team').getByText('not checked').waitFor()
  const gone = button('Delete guardrail Team')
  await peek(gone, 'a guardrail to delete')
  await keys.press('Enter')
  await send('Delete', null)
  await gone.waitFor({ state: 'detached' })
  await keys.isAt(page.getByRole('group', { name: 'Guardrails', exact: true }))
}

/** Comes last: with so many keys every way is long. */
async function pages(_: Test, { visit: { page }, keys, world, view }: Walk): Promise<void> {
  for (let at = 0; at < 60; at++) await world.manage('POST', '/keys', { name: `Many ${at}` })
  await view('accounts')
  const turned = page.getByRole('navigation', { name: 'Pages of keys' })
  await turned.getByText('1 to 50 of').waitFor()
  await keys.use(turned.getByRole('button', { name: 'More' }))
  await turned.getByText(/^51 to/).waitFor()
  await keys.use(turned.getByRole('button', { name: 'Back' }))
  await turned.getByText('1 to 50 of').waitFor()
}

const PARTS = { credits, keysOfApi, workspaces, credentials, endUsers, guardrails }

t.test('forms by the keyboard alone', { skip: WITHOUT_BROWSER || unlessExhaustive }, async t => {
  const { world, open } = await openWalk(t)
  for (const width of WIDTHS) {
    await t.test(`at ${width} pixels`, async t => {
      const visit = await open('home', { width, height: 900 })
      for (const [name, part] of Object.entries(PARTS)) {
        await t.test(name, async t => {
          await part(t, walkOf(t, visit, world))
          t.same(await visit.faults(), [], 'nothing went wrong')
        })
      }
    })
  }
  await t.test('pages of a long list', async t => {
    const visit = await open('home')
    await pages(t, walkOf(t, visit, world))
    t.same(await visit.faults(), [])
  })
})
