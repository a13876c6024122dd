/** Charts of the last hours in a browser: from the ledger, with gaps, and the values under the pointer. */
import t from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { eventually } from '../support/stream-probe.ts'
import { openConsole } from './console-page.ts'

interface Shown {
  readonly first: number
  readonly last: number
  readonly step_seconds: number
  readonly spans: readonly { readonly from: number; readonly requests: number; readonly failed: number }[]
}

t.test('charts of an hour, six hours and a day', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t)
  await world.respond({ model: 'sim/echo', input: 'x' })
  await world.respond({ model: 'test/down', input: 'x' })
  const isStored = async () => (await world.manage('GET', '/generations')).list.length === 2
  t.ok(await eventually(isStored, 60_000))
  const visit = await open('home')
  const { page } = visit
  const range = page.getByRole('group', { name: 'Range of the charts' })
  const failed = page.getByRole('figure', { name: 'Failed' })
  let shown: Shown = { first: 0, last: 0, step_seconds: 1, spans: [] }
  for (const [name, hours] of [
    ['1 h', 1],
    ['6 h', 6],
    ['24 h', 24],
  ] as const) {
    const asked = page.waitForResponse(reply => reply.url().includes(`/spans?hours=${hours}`))
    await range.getByRole('button', { name, exact: true }).click()
    shown = (await (await asked).json()) as Shown
    t.equal(
      shown.spans.reduce((sum, { requests }) => sum + requests, 0),
      2,
      name,
    )
    await failed.locator('canvas').waitFor()
    t.equal(await range.getByRole('button', { name, exact: true }).getAttribute('aria-pressed'), 'true')
    t.equal(await page.locator('.charts figure').count(), 4)
  }
  const { first, last, step_seconds: step, spans } = shown
  const failing = spans.find(span => span.failed === 1)
  if (failing === undefined) throw new Error('no span has the failure')
  const plot = failed.locator('.u-over')
  const box = await plot.boundingBox()
  if (box === null) throw new Error('the chart is not drawn')
  await page.mouse.move(box.x + 10, box.y + 20)
  await failed.locator('time').waitFor()
  t.equal(await failed.locator('.value').count(), 0, 'a gap has no value')
  // The chart ends a little beside its first and last step.
  const share = (failing.from - first + 0.6 * step) / (last - first + 1.2 * step)
  await page.mouse.move(box.x + share * box.width, box.y + 20)
  await failed.getByText(`${100 / failing.requests} %`).waitFor()
  t.match(await failed.locator('time').textContent(), /^\d{2}:\d{2}$/)
  await page.keyboard.press('2')
  t.equal(
    await range.getByRole('button', { name: '24 h' }).getAttribute('aria-pressed'),
    'true',
    'other views keep the range',
  )
  t.same(await visit.faults(), [])
})
