import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { DIFFERENCES } from './differences.ts'

t.test('the differences of the transports are those of the decision record', t => {
  const page = readFileSync(
    join(import.meta.dirname, '../../../docs/decisions/0012-own-http-client.md'),
    'utf8',
  )
  const table = page.split('| where | undici |\n| --- | --- |\n')[1]?.split('\n\n')[0] ?? ''
  t.same(
    table.split('\n'),
    Object.entries(DIFFERENCES).map(([where, what]) => `| ${where} | ${what} |`),
  )
  t.end()
})
