import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { DIFFERENCES } from './differences.ts'

t.test('the differences of the fronts are those of the decision record', async t => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/decisions/0044-two-fronts.md'), 'utf8')
  const table = page.split('| where | node |\n| --- | --- |\n')[1]?.split('\n\n')[0] ?? ''
  t.same(
    table.split('\n'),
    Object.entries(DIFFERENCES).map(([where, what]) => `| ${where} | ${what} |`),
  )
})
