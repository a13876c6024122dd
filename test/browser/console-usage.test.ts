/** The usage view in a browser: figures that equal the ledger, filters by a click, and a file for spreadsheets. */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { MARKUP } from '../support/console-world.ts'
import { eventually } from '../support/stream-probe.ts'
import { openConsole } from './console-page.ts'

const PAGE = '../../src/apps/console/page/csv.js'
const { csvOf } = (await import(PAGE)) as {
  csvOf(rows: readonly (readonly (string | number | null | undefined)[])[]): string
}

const FORMULA = '=HYPERLINK("http://elsewhere.example")'

t.test('cells of a file that look like formulas, or have signs of their own, stay texts', async t => {
  t.equal(
    csvOf([
      ['name', 'usage'],
      ['=1+1', 1.5],
      ['+x', 0],
      ['-x', -2],
      ['@x', null],
      ['\tx', undefined],
      ['a "b", c\nd', 3],
      [FORMULA, 1],
    ]),
    [
      'name,usage',
      "'=1+1,1.5",
      "'+x,0",
      "'-x,-2",
      "'@x,",
      "'\tx,",
      '"a ""b"", c\nd",3',
      '"\'=HYPERLINK(""http://elsewhere.example"")",1',
      '',
    ].join('\r\n'),
  )
})

t.test('usage by day, model and key', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t)
  const { manage, respond } = world
  const named = await manage('POST', '/keys', { name: FORMULA })
  const key = String(named.document['key'])
  const marked = String((await manage('POST', '/keys', { name: MARKUP })).document['key'])
  for (let at = 0; at < 3; at++) await respond({ model: 'sim/echo', input: 'one two three' }, key)
  await respond({ model: 'sim/write', input: 'x' }, marked)
  await respond({ model: 'test/falls-back', input: 'x', session_id: 'session-1', user: 'ada' }, marked)
  const sums = async (dimensions: string) => (await manage('GET', `/activity?dimensions=${dimensions}`)).list
  const isCounted = async () =>
    (await sums('key')).reduce((sum, row) => sum + Number(row['requests']), 0) === 5
  t.ok(await eventually(isCounted, 60_000))

  const visit = await open('usage')
  const { page } = visit
  const table = page.getByRole('table', { name: 'Usage' })
  await table.waitFor()
  await page.getByRole('figure', { name: /Cost by day and model/ }).waitFor()
  const rows = async () => await table.locator('tbody tr').count()
  t.equal(await rows(), 3, 'a row for each model of the day')
  await page.locator('.figure', { hasText: 'Requests' }).getByText('5', { exact: true }).waitFor()

  await page.getByLabel('Day', { exact: true }).uncheck()
  await page.getByRole('checkbox', { name: 'Key' }).check()
  await table.getByRole('button', { name: FORMULA }).waitFor()
  await table.getByRole('button', { name: MARKUP }).first().waitFor()
  t.equal(await page.locator('img').count(), 0, 'names are text')
  const [shown, stored] = [await rows(), await sums('model,key')]
  t.equal(shown, stored.length)

  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download CSV' }).click(),
  ])
  const file = await readFile(await download.path(), 'utf8')
  const [head = '', ...lines] = file.trim().split('\r\n')
  t.match(head, /^model,key,key_name,usage,requests,/)
  t.equal(lines.length, stored.length)
  t.match(file, `"'=HYPERLINK(""http`)
  const costs = lines.map(line => Number(/,(\d[\d.e-]*),(\d+),\d+,\d+,\d+,[\d.]+$/.exec(line)?.[1]))
  const told = stored.map(row => Number(row['usage']))
  t.same(costs.toSorted(), told.toSorted(), 'figures of the file are those of the API')

  await page.getByLabel('Chart by').selectOption('session')
  await page
    .getByRole('figure', { name: /by day and session/ })
    .getByText('session-1')
    .waitFor()
  await page.getByLabel('Chart by').selectOption('user')
  await page
    .getByRole('figure', { name: /by day and end user/ })
    .getByText('ada')
    .waitFor()
  await page.getByLabel('Chart by').selectOption('session')
  await page.getByLabel('Figure').selectOption('requests')
  await page.getByRole('figure', { name: /Requests by day and session/ }).waitFor()
  await page.getByLabel('Chart by').selectOption('key')
  await table.getByRole('button', { name: FORMULA }).click()
  await page.locator('.figure', { hasText: 'Requests' }).getByText('3', { exact: true }).waitFor()

  const plot = page.locator('.plot').first()
  const box = await plot.boundingBox()
  if (box !== null) await page.mouse.move(box.x + box.width - 30, box.y + 60)
  await page.locator('figcaption time').waitFor()
  t.match(
    await page.locator('figcaption time').textContent(),
    /^\d{4}-\d{2}-\d{2}$/,
    'the day under the pointer',
  )

  await page.getByLabel('Range').selectOption('own')
  await page.getByLabel('First day').fill('2020-01-01')
  await page.getByLabel('Last day').fill('2020-12-31')
  await page.getByText('No usage in these days').waitFor()
  t.same(await visit.faults(), [])
})
