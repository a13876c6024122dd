/**
 * Frame, home, requests, usage, models, batches, playground and changes by the keyboard alone, in three windows, each
 * place light and dark by axe. console-keyboard-forms.test.ts has the views of forms.
 */
import t, { type Test } from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { unlessExhaustive } from '../support/share.ts'
import { beginBatch, openWalk, VIEWS, type Walk, WIDTHS, walkOf } from './console-walk.ts'

/** The frame: links, digits, help, and that Tab comes to everything and around. */
async function frame(t: Test, walk: Walk): Promise<void> {
  const { visit, keys, dialog, button, look } = walk
  const { page } = visit
  const shown = {
    home: page.getByRole('table', { name: 'Latest requests' }),
    requests: page.getByRole('table', { name: 'Last requests, newest first' }),
    usage: page.getByRole('table', { name: 'Usage', exact: true }),
    accounts: page.getByRole('table', { name: 'End users' }),
    models: page.getByRole('table', { name: 'Wildcards' }),
    guardrails: page.getByLabel('Text', { exact: true }),
    batches: page.getByRole('table', { name: 'Batches, newest first' }),
    playground: page.getByRole('heading', { name: 'As code' }),
    changes: page.getByRole('button', { name: 'More' }),
  }
  for (const [path, name] of VIEWS) {
    await keys.use(page.getByRole('link', { name, exact: true }).first())
    await page.locator(`nav a[href="#/${path}"][aria-current="page"]`).waitFor()
    await shown[path].waitFor()
    await look(name)
    // Rows that come meanwhile would be missed.
    t.same(await keys.missed(), [], `Tab comes to everything of ${name}, and around`)
  }
  await walk.view('home')
  const help = button('Keyboard help')
  await keys.use(help)
  await dialog.waitFor()
  await look('help')
  await keys.press('Escape')
  await keys.isAt(help)
  await keys.press('?')
  await keys.use(dialog.getByRole('button', { name: 'Close' }))
  await dialog.waitFor({ state: 'detached' })
  await keys.isAt(help)
}

async function home(t: Test, { visit: { page }, keys, button, view, look }: Walk): Promise<void> {
  await view('home')
  for (const range of ['1 h', '1 min', '15 min']) {
    await keys.use(button(range), range === '1 h' ? 'Space' : 'Enter')
    await page.getByRole('button', { name: range, exact: true, pressed: true }).waitFor()
  }
  const chart = page.getByRole('figure', { name: 'Requests/s' })
  await keys.reach(chart)
  await keys.press('ArrowLeft', 'ArrowLeft', 'ArrowRight')
  await chart.locator('time').waitFor()
  await keys.press('Tab')
  await chart.locator('time').waitFor({ state: 'detached' })

  const problem = page.getByRole('list', { name: 'Current problems' }).getByRole('listitem').first()
  await keys.use(problem.getByRole('link', { name: 'Show' }))
  await page.getByRole('table', { name: 'Latest requests' }).waitFor({ state: 'detached' })
  await view('home')
  const latest = page.getByRole('table', { name: 'Latest requests' }).getByRole('button').first()
  await keys.use(latest)
  const detail = page.getByRole('region', { name: 'Request', exact: true })
  await detail.getByText('gen-').first().waitFor()
  await look('details that home led to')
  await keys.press('Escape')
  await detail.waitFor({ state: 'detached' })
  t.match(await keys.focused(), 'details of gen-', 'the focus is in the list')
}

async function requests(t: Test, { visit: { page }, keys, button, view, look }: Walk): Promise<void> {
  await view('requests')
  const list = page.getByRole('table', { name: 'Last requests, newest first' })
  const detail = page.getByRole('region', { name: 'Request', exact: true })
  await keys.use(button('6 h'))
  await page.getByRole('button', { name: '6 h', exact: true, pressed: true }).waitFor()
  await keys.press('/')
  await keys.isAt(page.getByLabel('Filter'))
  await page.keyboard.type('test/down')
  await page.getByText(/^[12] of \d+ requests$/).waitFor()
  await keys.press('Control+A', 'Delete')
  await page.getByText(/^\d+ requests$/).waitFor()
  await keys.press('Escape')
  const failures = page.getByLabel('Failures only')
  await keys.use(failures, 'Space')
  await page.getByText(/^\d+ of \d+ requests$/).waitFor()
  await keys.press('Space')
  await keys.use(button('Pause'))
  await keys.isAt(button('Resume'))
  await keys.press('Space')
  await keys.isAt(button('Pause'))

  await keys.press('j', 'ArrowDown', 'k', 'ArrowUp', 'j')
  const second = list.getByRole('button').nth(1)
  await keys.isAt(second)
  await keys.press('Enter')
  await detail.getByText('input tokens').waitFor()
  await look('details of a request')
  await keys.press('Escape')
  await detail.waitFor({ state: 'detached' })
  await keys.isAt(second)
  await keys.press('Space')
  await keys.use(button('Close details'))
  await detail.waitFor({ state: 'detached' })
  await keys.isAt(second)

  await keys.use(button('Search the ledger'))
  const found = page.getByRole('table', { name: 'Found requests, newest first' })
  await found.waitFor()
  await keys.use(button('Search older records'))
  await page.getByText(/^\d{2} requests, no others match$/).waitFor()
  await look('search')
  await keys.type(page.getByLabel('Session'), 'session-7')
  await keys.press('Enter')
  await page.getByText('1 requests, no others match').waitFor()
  await keys.use(found.getByRole('button').first())
  await detail.getByText('session-7').waitFor()
  await look('details of a found request')
  await keys.press('Escape')
  await keys.isAt(found.getByRole('button').first())
  await keys.use(button('Clear'))
  await keys.choose(page.getByLabel('Outcome'), 'failed')
  await keys.use(button('Search'))
  await page.getByText(/^\d requests, no others match$/).waitFor()
  await keys.type(page.getByLabel('Model', { exact: true }), 'test/none')
  await keys.press('Enter')
  await page.getByText('No record matches').waitFor()
  for (const [label, text] of [
    ['Id', 'gen'],
    ['Provider', 'sim'],
    ['End user', 'ada'],
    ['Cost from, USD', '1'],
  ] as const) {
    await keys.type(page.getByLabel(label, { exact: true }), text)
    t.equal(await page.getByLabel(label, { exact: true }).inputValue(), text)
  }
  await keys.choose(page.getByLabel('When'), '1')
  await keys.choose(page.getByLabel('When'), 'own')
  const from = page.getByLabel('From', { exact: true })
  await keys.reach(from)
  await keys.reach(page.getByLabel('Before', { exact: true }))
  await keys.reach(page.getByRole('combobox', { name: 'Key', exact: true }))
  await keys.use(button('Clear'))
  await from.waitFor({ state: 'detached' })
  await keys.use(button('Live'))
  await list.waitFor()
}

async function usage(t: Test, { visit: { page }, keys, button, view, look, world }: Walk): Promise<void> {
  await view('usage')
  const table = page.getByRole('table', { name: 'Usage', exact: true })
  await table.waitFor()
  const rows = table.locator('tbody tr')
  await keys.use(page.getByRole('checkbox', { name: 'Day', exact: true }), 'Space')
  await page.getByRole('columnheader', { name: 'Day', exact: true }).waitFor({ state: 'detached' })
  await keys.use(page.getByRole('checkbox', { name: 'Key', exact: true }), 'Space')
  await page.getByRole('columnheader', { name: 'Key', exact: true }).waitFor()
  await keys.use(button('Requests'))
  await page.locator('th[aria-sort="descending"]', { hasText: 'Requests' }).waitFor()
  await keys.use(rows.first().getByRole('button', { name: 'test/priced' }))
  t.equal(await page.getByLabel('Model', { exact: true }).first().inputValue(), 'test/priced')
  await page.locator('.figure', { hasText: 'Requests' }).getByText('56', { exact: true }).waitFor()
  await keys.reach(button('Download CSV'))
  const [download] = await Promise.all([page.waitForEvent('download'), keys.press('Enter')])
  t.match(download.suggestedFilename(), /^usage-.*\.csv$/)
  await keys.reach(button('Refresh'))
  const isAsked = page.waitForResponse(reply => reply.url().includes('/activity?'))
  await Promise.all([isAsked, keys.press('Enter')])
  await keys.choose(page.getByLabel('Chart by'), 'provider')
  await keys.choose(page.getByLabel('Figure'), 'requests')
  const chart = page.getByRole('figure', { name: 'Requests by day and provider' })
  await keys.reach(chart)
  await keys.press('ArrowLeft')
  await chart.locator('time').waitFor()
  await look('usage with a filter')
  const { list } = await world.manage('GET', '/keys')
  const hash = String(list.find(({ name }) => name === 'Website')?.['hash'])
  await keys.choose(page.getByRole('combobox', { name: 'Key', exact: true }), hash)
  await page.getByText('No usage in these days').waitFor()
  await look('usage of nothing')
  await keys.choose(page.getByRole('combobox', { name: 'Key', exact: true }), '')
  await keys.reach(page.getByRole('combobox', { name: 'Workspace', exact: true }))
  for (const label of ['Model', 'Provider', 'End user']) {
    const field = page.getByRole('searchbox', { name: label, exact: true })
    await keys.type(field, label === 'End user' ? 'ada' : '')
    await keys.press('Enter')
  }
  await page.locator('.figure', { hasText: 'Requests' }).getByText('1', { exact: true }).waitFor()
  await keys.choose(page.getByLabel('Range'), 'own')
  const first = page.getByLabel('First day')
  const day = await first.inputValue()
  await keys.reach(first)
  await keys.press('ArrowUp')
  t.not(await first.inputValue(), day)
  await keys.reach(page.getByLabel('Last day'))
  await keys.choose(page.getByLabel('Range'), '7')
  await rows.first().waitFor()
}

async function models(t: Test, walk: Walk): Promise<void> {
  const { visit, keys, button, view, look, dialog, peek } = walk
  const { page } = visit
  await view('models')
  const filter = page.getByLabel('Filter')
  await keys.press('/')
  await keys.isAt(filter)
  await page.keyboard.type('silent')
  await page.getByText('1 of 1 models').waitFor()
  await look('models of a filter')
  await keys.press('Escape')
  const opener = button('Try key of silent for test/silent')
  await peek(opener, 'the trial of a key')
  await keys.press('Enter')
  await keys.use(dialog.getByRole('button', { name: 'Try it' }))
  await dialog.getByText('works', { exact: true }).waitFor()
  await look('a verdict')
  const { list } = await walk.world.manage('GET', '/workspaces')
  await keys.choose(dialog.getByLabel('Key of'), String(list[0]?.['id']))
  await dialog.getByText('No BYOK credential for silent there.').waitFor()
  await keys.choose(dialog.getByLabel('Call'), 'model')
  await keys.use(dialog.getByRole('button', { name: 'Close' }))
  await page.locator('dialog.form').waitFor({ state: 'detached' })
  await keys.isAt(opener)
  await keys.reach(button('Try key of silent for silent/*'))
  t.pass('wildcards have the button too')
}

async function batches(_: Test, walk: Walk): Promise<void> {
  const { visit, keys, button, view, world, peek, send } = walk
  const id = await beginBatch(world, 'test/silent')
  await view('batches')
  const opener = button(`Stop ${id}`)
  await peek(opener, 'the end of a batch')
  await keys.press('Enter')
  await send('Stop the batch', null)
  const row = visit.page.locator('tr', { has: visit.page.getByRole('rowheader', { name: id }) })
  await row.getByText('cancelled', { exact: true }).waitFor()
  await opener.waitFor({ state: 'detached' })
}

async function playground(t: Test, walk: Walk): Promise<void> {
  const { visit, keys, button, view, look, world } = walk
  const { page } = visit
  await view('playground')
  await keys.type(page.getByLabel('API key'), world.gateway.apiKey)
  await keys.type(page.getByLabel('Max output tokens'), '200')
  await keys.type(page.getByLabel('Temperature'), '0.5')
  await keys.type(page.getByLabel('Top P'), '0.9')
  await keys.choose(page.getByLabel('Reasoning effort'), 'low')
  await keys.type(page.getByLabel('System prompt'), 'Be short')
  await keys.type(page.getByLabel('Question'), '# Title\n\n**bold** `code` [site](https://example.com/)')
  await keys.type(page.getByLabel('Model', { exact: true }), 'sim/echo')
  await keys.use(button('Compare another model'))
  await keys.type(page.getByLabel('Model 2'), 'sim/write')
  await keys.use(button('Send'))
  const lanes = page.locator('.lane')
  for (const at of [0, 1]) await lanes.nth(at).getByText('done', { exact: true }).waitFor()
  await look('two answers')
  for (const name of ['Text', 'JSON', 'Formatted']) {
    await keys.use(button(name))
    await page.getByRole('button', { name, exact: true, pressed: true }).waitFor()
  }
  for (const name of ['Python', 'JavaScript', 'curl']) {
    await keys.use(button(name))
    await page.getByLabel(`The request in ${name}`).waitFor()
  }
  await keys.use(button('Copy the code'))
  await page.getByText(/^Copied$|select the text$/).waitFor()
  await keys.use(button('Remove a model'))
  await keys.type(page.getByLabel('Model', { exact: true }), 'test/slow')
  await keys.use(button('Send'))
  await lanes.first().locator('output').filter({ hasText: /.{20}/ }).waitFor()
  await keys.use(button('Stop'))
  await page.getByText('stopped', { exact: true }).waitFor()
  await keys.use(button('Send'))
  await keys.isAt(button('Send'))
  await keys.use(button('Stop'))
  await page.getByText('stopped', { exact: true }).waitFor()
  t.equal(await page.getByLabel('API key').inputValue(), world.gateway.apiKey)
}

async function changes(_: Test, { visit: { page }, keys, button, view, look }: Walk): Promise<void> {
  await view('changes')
  await keys.use(button('More'))
  await page.getByText(/^51 to /).waitFor()
  await look('older changes')
  await keys.use(button('Back'))
  await page.getByText(/^1 to 50 of /).waitFor()
}

async function leave(_: Test, { visit: { page }, keys, button, look }: Walk): Promise<void> {
  await keys.use(button('Sign out'))
  await keys.isAt(page.getByLabel('Management key'))
  await look('signed out')
}

const PARTS = { frame, home, requests, usage, models, batches, playground, changes, leave }

t.test('the console by the keyboard alone', { skip: WITHOUT_BROWSER || unlessExhaustive }, async t => {
  const { world, open } = await openWalk(t)
  for (const width of WIDTHS) {
    await t.test(`at ${width} pixels`, async t => {
      const visit = await open('home', { width, height: 900 })
      const walk = (t: Test) => walkOf(t, visit, world)
      for (const [name, part] of Object.entries(PARTS)) {
        await t.test(name, async t => {
          await part(t, walk(t))
          t.same(await visit.faults(), [], 'nothing went wrong')
        })
      }
    })
  }
})
