/** Playground, guardrails and models in a browser. */
import t from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { MARKUP } from '../support/console-world.ts'
import { openConsole } from './console-page.ts'

const MARKDOWN = [
  '# Title',
  '',
  `**bold** and \`code\` and ${MARKUP}`,
  '',
  '- one',
  '- two',
  '',
  '```js',
  'let x = "<b>"',
  '```',
  '',
  '[site](https://example.com/a) [bad](javascript:alert(1))',
].join('\n')

t.test('the views of models and rules', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t, {
    models: [
      { id: 'test/slow', endpoints: [{ provider: 'sim', upstreamModel: 'write-300-200' }] },
      {
        id: 'test/priced',
        endpoints: [{ provider: 'sim', upstreamModel: 'echo', pricing: { request: '1' } }],
      },
      { id: 'star/*', endpoints: [{ provider: 'sim', upstreamModel: 'echo' }] },
    ],
  })

  await t.test('two models side by side, formatted, as JSON, and as code', async t => {
    const visit = await open('playground')
    const { page } = visit
    await page.getByLabel('API key').fill(world.gateway.apiKey)
    await page.getByLabel('Model', { exact: true }).fill('sim/echo')
    await page.getByRole('button', { name: 'Compare another model' }).click()
    await page.getByLabel('Model 2').fill('sim/write')
    await page.getByLabel('System prompt').fill("It's a test")
    await page.getByLabel('Temperature').fill('0.5')
    await page.getByLabel('Question').fill(MARKDOWN)
    await page.getByRole('button', { name: 'Send' }).click()
    const lanes = page.locator('.lane')
    for (const at of [0, 1]) await lanes.nth(at).getByText('done', { exact: true }).waitFor()
    const first = lanes.nth(0).locator('output')
    await first.locator('strong', { hasText: 'bold' }).waitFor()
    t.equal(await first.locator('li').count(), 2)
    t.equal(await first.locator('pre').textContent(), 'let x = "<b>"')
    t.same(
      await page.evaluate<string[]>(
        `[...document.querySelectorAll('.lane output a')].map(link => link.href)`,
      ),
      ['https://example.com/a'],
    )
    t.equal(await page.locator('img').count(), 0, 'pictures are not loaded')
    t.match(await first.textContent(), MARKUP)
    await page.getByRole('button', { name: 'JSON', exact: true }).click()
    const json = JSON.parse(String(await first.textContent())) as { status: string; model: string }
    t.match(json, { status: 'completed' })
    const code = page.locator('pre.code')
    t.match(await code.textContent(), `It'\\''s a test`)
    await page.getByRole('button', { name: 'Python' }).click()
    t.match(await code.textContent(), /temperature=0\.5,/)
    await page.getByRole('button', { name: 'JavaScript' }).click()
    t.match(await code.textContent(), 'client.responses.create({')
    t.notMatch(await code.textContent(), world.gateway.apiKey)
    await page.getByRole('link', { name: 'Home' }).click()
    await page.getByRole('link', { name: 'Playground' }).first().click()
    t.equal(await page.getByLabel('API key').inputValue(), world.gateway.apiKey, 'asked once a tab')

    await page.getByRole('button', { name: 'Remove a model' }).click()
    await page.getByLabel('Model', { exact: true }).fill('test/slow')
    await page.getByRole('button', { name: 'Send' }).click()
    await page.locator('.lane output').filter({ hasText: /.{20}/ }).waitFor()
    await page.getByRole('button', { name: 'Stop' }).click()
    await page.getByText('stopped', { exact: true }).waitFor()
    await visit.faults()
  })

  await t.test('a guardrail is made, tried and changed', async t => {
    const visit = await open('guardrails')
    const { page } = visit
    const dialog = page.getByRole('dialog')
    await page.getByRole('button', { name: 'New guardrail' }).click()
    await dialog.getByLabel('Name', { exact: true }).fill(MARKUP)
    await dialog.getByLabel('email in requests').selectOption('redact')
    await dialog.getByLabel('Custom patterns in requests').fill('block \\bACME-[0-9]{6}\\b\nflag wor[dk]')
    await dialog.getByLabel('Budget of each key in USD').fill('5')
    await dialog.getByLabel('Budget period').selectOption('daily')
    await dialog.getByRole('button', { name: 'Create' }).click()
    const table = page.getByRole('table', { name: 'Guardrails' })
    await table.getByText('email: redact').waitFor()
    await table.getByText('$5 daily').or(table.getByText('$5.00 daily')).first().waitFor()
    const budgets = page.getByRole('region', { name: `Budgets of ${MARKUP}` })
    await budgets.getByText('No keys have this budget yet').waitFor()
    await page.getByRole('combobox', { name: 'Guardrail', exact: true }).selectOption({ label: MARKUP })
    const check = async (text: string) => {
      await page.getByLabel('Text', { exact: true }).fill(text)
      await page.getByRole('button', { name: 'Check' }).click()
    }
    await check('Write to ada@example.com')
    await page.getByLabel('The text that would be sent').getByText('Write to [EMAIL]').waitFor()
    await check(`ACME-123456 ${MARKUP}`)
    await page.getByText('The request would be refused.').waitFor()
    t.equal(await page.locator('mark').textContent(), 'ACME-123456')
    await check('nothing')
    await page.getByText('Nothing was found').waitFor()
    await page.getByRole('button', { name: `Change guardrail ${MARKUP}` }).click()
    await dialog.getByLabel('Custom patterns in requests').fill('block (?=a)b')
    await dialog.getByRole('button', { name: 'Save' }).click()
    await dialog.getByRole('alert').getByText('must not use lookaround').waitFor()
    t.ok((await visit.faults()).every(fault => /status of 400/.test(fault)))
    await dialog.getByLabel('Custom patterns in requests').fill('')
    await dialog.getByLabel('secrets in replies').selectOption('block')
    await dialog.getByRole('button', { name: 'Save' }).click()
    await table.getByText('secrets: block').waitFor()
    const { list } = await world.manage('GET', '/guardrails')
    t.match(
      list.find(({ name }) => name === MARKUP),
      {
        content_filters: null,
        output: { content_filter_builtins: [{ slug: 'secrets', action: 'block' }] },
        limit_usd: 5,
      },
    )
    const id = String(list.find(({ name }) => name === MARKUP)?.['id'])
    const { document } = await world.manage('POST', '/keys', { name: 'Spender' })
    await world.manage('POST', `/guardrails/${id}/assignments/keys`, {
      key_hashes: [(document['data'] as { hash: string }).hash],
    })
    await world.respond({ model: 'test/priced', input: 'x' }, String(document['key']))
    const spent = budgets.locator('tr', { has: page.getByRole('rowheader', { name: 'Spender' }) })
    await spent.getByText('20 % of $5 daily').or(spent.getByText('20 % of $5.00 daily')).waitFor()
    await spent.getByText('$4.00', { exact: true }).waitFor()
    await spent.getByText(/^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/).waitFor()
    await page.getByRole('button', { name: `Delete guardrail ${MARKUP}` }).click()
    await dialog.getByRole('button', { name: 'Delete' }).click()
    await table.getByText('secrets: block').waitFor({ state: 'detached' })
    t.same(await visit.faults(), [])
  })

  await t.test('models show what a wildcard covers, and why a figure is missing', async t => {
    const visit = await open('models')
    const { page } = visit
    await page.getByRole('table', { name: 'Wildcards' }).getByText('star/*').waitFor()
    const row = page.locator('tr', { hasText: 'test/slow' })
    await row.getByText('< 100 attempts').waitFor()
    t.same(await visit.faults(), [])
  })
})
