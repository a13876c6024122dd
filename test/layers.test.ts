/** Holds the import table of docs/architecture.md: which folder may import which, and no cycles. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import t from 'tap'

const SRC = resolve(import.meta.dirname, '../src')

/** Besides the leaves and the folder itself. `exchange.ts` and the entries stand for themselves. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  guardrails: ['protocol'],
  tasks: ['protocol', 'guardrails'],
  providers: ['protocol'],
  storage: ['protocol'],
  formats: ['protocol', 'providers'],
  upstream: ['providers', 'formats'],
  access: ['protocol', 'providers', 'storage'],
  exchange: ['protocol', 'formats', 'providers'],
  plugins: ['protocol', 'exchange', 'upstream', 'tasks'],
  gateway: [
    'protocol',
    'providers',
    'formats',
    'upstream',
    'access',
    'exchange',
    'storage',
    'guardrails',
    'plugins',
    'tasks',
  ],
  server: ['protocol', 'gateway', 'exchange', 'access', 'storage'],
  sim: ['protocol'],
  threads: [
    'protocol',
    'providers',
    'storage',
    'formats',
    'upstream',
    'access',
    'exchange',
    'gateway',
    'guardrails',
    'plugins',
    'server',
    'sim',
    'tasks',
  ],
  main: ['threads'],
  cli: ['threads', 'storage', 'access'],
}

const LEAVES = [
  'terminal',
  'config',
  'settings',
  'errors',
  'clock',
  'ids',
  'log',
  'log-output',
  'instant',
  'metrics',
  'exchange-series',
  'series',
  'money',
  'stages',
]
/** Each leaf may use the leaves on its right. */
const LEAF_IMPORTS: Readonly<Record<string, readonly string[]>> = {
  terminal: [],
  config: ['settings', 'log'],
  settings: ['log'],
  log: ['errors', 'instant', 'log-output'],
  'log-output': [],
  instant: [],
  errors: [],
  clock: [],
  ids: [],
  metrics: ['exchange-series', 'series'],
  'exchange-series': ['series', 'stages'],
  series: [],
  money: [],
  stages: [],
}

/** Packages that only one file may know, so that they can be replaced in one place. */
const SOLE_IMPORTERS: Readonly<Record<string, readonly string[]>> = {
  'uWebSockets.js': ['server/http.ts'],
  piscina: ['tasks/pool.ts'],
}

interface Import {
  readonly from: string
  readonly to: string
}

function sourceFiles(): string[] {
  return readdirSync(SRC, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && entry.name.endsWith('.ts'))
    .map(entry => join(entry.parentPath, entry.name))
}

function specifiers(file: string): string[] {
  const text = readFileSync(file, 'utf8')
  const found = text.matchAll(
    /(?:^|\n)\s*(?:import|export)\s[^'"]*?from\s+'([^']+)'|import\(\s*'([^']+)'\s*\)|(?:^|\n)import\s+'([^']+)'/g,
  )
  return [...found].map(match => match[1] ?? match[2] ?? match[3] ?? '')
}

/** `gateway/attempt.ts` -> `gateway`, `exchange.ts` -> `exchange`. */
function unit(path: string): string {
  return relative(SRC, path).split('/')[0]?.replace(/\.ts$/, '') ?? ''
}

const files = sourceFiles()
const imports: Import[] = files.flatMap(file =>
  specifiers(file)
    .filter(specifier => specifier.startsWith('.'))
    .map(specifier => ({ from: file, to: resolve(dirname(file), specifier) })),
)

t.test('every import goes the way the table allows', async t => {
  t.ok(files.length > 20, 'the sources were found')
  for (const { from, to } of imports) {
    const [source, target] = [unit(from), unit(to)]
    if (source === target && !LEAVES.includes(source)) continue
    const allowed = LEAVES.includes(source)
      ? (LEAF_IMPORTS[source] ?? [])
      : [...LEAVES, ...(MAY_IMPORT[source] ?? [])]
    if (!allowed.includes(target)) t.fail(`${relative(SRC, from)} must not import ${relative(SRC, to)}`)
  }
})

t.test('every source folder stands in the table', async t => {
  for (const file of files) {
    const name = unit(file)
    t.ok(LEAVES.includes(name) || name in MAY_IMPORT, `${name} has a row`)
  }
})

t.test('there are no import cycles', async t => {
  const graph = new Map<string, string[]>()
  for (const { from, to } of imports) graph.set(from, [...(graph.get(from) ?? []), to])
  const done = new Set<string>()
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) {
      t.fail(
        `cycle: ${[...path.slice(path.indexOf(file)), file].map(each => relative(SRC, each)).join(' -> ')}`,
      )
      return
    }
    if (done.has(file)) return
    for (const next of graph.get(file) ?? []) visit(next, [...path, file])
    done.add(file)
  }
  for (const file of graph.keys()) visit(file, [])
  t.ok(done.size > 20)
})

t.test('packages with a sole importer are imported nowhere else', async t => {
  for (const [name, importers] of Object.entries(SOLE_IMPORTERS)) {
    const found = files.filter(file => specifiers(file).includes(name)).map(file => relative(SRC, file))
    t.same(found, importers, name)
  }
})

t.test(
  'the environment is touched in config.ts, and where the HTTP library wants its header limit',
  async t => {
    const readers = files
      .filter(file => /process\.env\b/.test(readFileSync(file, 'utf8')))
      .map(file => relative(SRC, file))
    t.same(readers.toSorted(), ['config.ts', 'server/head-limit.ts', 'server/http.ts'])
  },
)
