/** Tables of the console fit a window of 1440 pixels: no cell is cut, and none is printed over its neighbour. */
import t from 'tap'
import { WITHOUT_BROWSER } from '../support/browser.ts'
import { openConsole } from './console-page.ts'

/** Texts of cells that are wider than their cell, and tables that are wider than their frame. */
const FAULTS = `(() => {
  const faults = []
  for (const frame of document.querySelectorAll('.frame')) {
    if (frame.scrollWidth > frame.clientWidth + 1) faults.push('too wide: ' + (frame.scrollWidth - frame.clientWidth) + ' ' + frame.innerText.slice(0, 40))
    for (const cell of frame.querySelectorAll('td, th')) {
      if (cell.scrollWidth > cell.clientWidth + 1) faults.push('cut: ' + cell.innerText)
    }
  }
  return faults
})()`

t.test('tables fit a window of 1440 by 900', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t)
  await world.manage('POST', '/keys', { name: 'A key of the back office', limit: 0 })
  await world.manage('POST', '/byok', {
    provider: 'openai',
    key: 'sk-example-0123456789abcdef',
    name: 'Team',
  })
  for (const view of ['changes', 'models', 'accounts']) {
    const { page } = await open(view, { width: 1440, height: 900 })
    await page.getByRole('table').first().waitFor()
    t.same(await page.evaluate(FAULTS), [], view)
    if (process.env['PICTURES'] !== undefined)
      await page.screenshot({ path: `${process.env['PICTURES']}/${view}.png` })
    await page.close()
  }
})
