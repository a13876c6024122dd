/** Holds the reference pages equal to the code they describe. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { PAGES, withTables } from '../scripts/config-docs.ts'
import { FAILURES } from '../src/base/errors.ts'
import { STAGES } from '../src/base/metrics/stages.ts'
import { gatewayTools } from '../src/protocol/gateway-tools.ts'
import { allMetrics, genAiMetrics } from './support/metrics.ts'

const page = (name: string) => readFileSync(join(import.meta.dirname, '../docs', name), 'utf8')

/** Rows of the Markdown tables of a page whose first cell is in backticks. */
function rows(text: string): string[][] {
  return text
    .split('\n')
    .filter(line => line.startsWith('| `'))
    .map(line =>
      line
        .split('|')
        .slice(1, -1)
        .map(cell => cell.trim()),
    )
}

t.test('docs/errors.md lists every failure with its status, type and retry', async t => {
  const documented = rows(page('errors.md')).map(cells => cells.slice(0, 4))
  const actual = Object.entries(FAILURES).map(([code, failure]) => [
    `\`${code}\``,
    String(failure.status),
    `\`${failure.errorType}\``,
    failure.retry,
  ])
  t.same(documented.toSorted(), actual.toSorted())
})

t.test('docs/metrics.md lists every metric with its kind and labels', async t => {
  const documented = rows(page('metrics.md'))
    .filter(cells => cells.length === 4 && /^`(gateway|process|gen_ai)_/.test(cells[0] ?? ''))
    .map(cells => cells.slice(0, 3))
  const actual = [...allMetrics(), ...genAiMetrics()].map(({ name, kind, labelNames }) => [
    `\`${name}\``,
    kind,
    labelNames.map(label => `\`${label}\``).join(', '),
  ])
  t.same(documented.toSorted(), actual.toSorted())
})

t.test('docs/tools.md lists every server tool', async t => {
  const documented = rows(page('tools.md')).flatMap(([cell = '']) => cell.match(/gateway:\w+/g) ?? [])
  const actual = Object.keys(gatewayTools).filter(type => type.startsWith('gateway:'))
  t.same(documented.toSorted(), actual.toSorted())
})

t.test('docs/metrics.md lists every stage in order', async t => {
  const names = rows(page('metrics.md')).map(cells => cells[0] ?? '')
  t.same(
    names.filter(name => !/^`(gateway|process|gen_ai)_/.test(name)),
    STAGES.map(stage => `\`${stage}\``),
  )
})

t.test('the pages have the tables that `npm run docs:config` makes', async t => {
  for (const { file, tables } of PAGES) {
    const text = readFileSync(file, 'utf8')
    t.equal(text, withTables(text, tables), file)
  }
})

t.test('pages, decisions and READMEs of rooms name source files that exist', async t => {
  const root = join(import.meta.dirname, '..')
  const below = (folder: string) => readdirSync(join(root, folder)).map(name => `${folder}/${name}`)
  const rooms = below('src').map(folder => `${folder}/README.md`)
  const pages = [...below('docs'), ...below('docs/decisions'), ...rooms].filter(name => name.endsWith('.md'))
  for (const name of [...pages, 'README.md', 'CONTRIBUTING.md']) {
    if (!existsSync(join(root, name))) continue
    const text = readFileSync(join(root, name), 'utf8')
    const folders = ['.', 'src', dirname(name)]
    // Names in capitals stand for any name.
    for (const [, path = ''] of text.matchAll(/`([a-z][a-z-]*(?:\/[a-z0-9.-]+)+\.ts)`/g)) {
      if (!folders.some(folder => existsSync(join(root, folder, path)))) t.fail(`${name}: ${path}`)
    }
  }
})

t.test('the README names both commands of the set-up', async t => {
  const readme = readFileSync(join(import.meta.dirname, '../README.md'), 'utf8')
  t.match(readme, 'npm ci && npm start')
  t.match(readme, 'npm ci && npm test')
})
