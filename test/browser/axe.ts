/** Runs axe, the accessibility test engine, in a browser page. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Visit, WITHOUT_BROWSER } from '../support/browser.ts'

function script(): string | null {
  if (WITHOUT_BROWSER !== false) return null
  try {
    return readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
  } catch (error) {
    if (process.env['CI'] === 'true') throw error
    return null
  }
}
const axe = script()

/** Why tests by axe are left out, or false. */
export const WITHOUT_AXE: string | false = axe === null ? 'axe-core is not installed' : false

/** Findings of axe, one line for each kind of fault and its first element. */
export async function findings({ page }: Pick<Visit, 'page'>): Promise<string[]> {
  if (!(await page.evaluate<boolean>('"axe" in window'))) await page.evaluate(axe ?? '')
  return await page.evaluate<string[]>(
    `axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
      violations.map(({ id, nodes }) => id + ': ' + nodes[0].html.slice(0, 200) + ' (' + nodes.length + ')'))`,
  )
}
