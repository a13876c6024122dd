/** Holds the import table of docs/architecture.md: which folder may import which, and no cycles. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import t from 'tap'

const SRC = resolve(import.meta.dirname, '../src')

/** Besides the leaves and the folder itself. The entries stand for themselves. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  guardrails: ['protocol'],
  providers: ['protocol'],
  dialects: ['protocol'],
  storage: ['protocol'],
  files: ['protocol', 'storage', 'upstream'],
  invalidation: ['protocol', 'storage'],
  tasks: ['protocol', 'guardrails', 'storage', 'dialects'],
  formats: ['protocol', 'providers'],
  upstream: ['providers', 'formats'],
  access: ['protocol', 'providers', 'storage', 'invalidation'],
  credentials: ['protocol', 'providers', 'storage', 'invalidation'],
  limits: ['protocol', 'providers', 'storage', 'invalidation'],
  health: ['providers'],
  pins: ['storage'],
  transcripts: ['storage'],
  exchange: ['protocol', 'formats', 'providers', 'health'],
  captures: ['protocol', 'upstream', 'exchange', 'credentials', 'storage', 'invalidation'],
  explanations: ['protocol', 'exchange', 'storage'],
  plugins: ['protocol', 'exchange', 'upstream', 'tasks', 'guardrails'],
  sandbox: [],
  tools: ['protocol', 'exchange', 'upstream', 'tasks', 'providers', 'storage', 'files', 'sandbox'],
  gateway: [
    'protocol',
    'providers',
    'formats',
    'upstream',
    'access',
    'credentials',
    'limits',
    'health',
    'pins',
    'captures',
    'exchange',
    'storage',
    'guardrails',
    'plugins',
    'tools',
    'tasks',
  ],
  batches: [
    'protocol',
    'providers',
    'formats',
    'upstream',
    'dialects',
    'access',
    'credentials',
    'limits',
    'exchange',
    'storage',
    'tasks',
    'gateway',
  ],
  api: [
    'protocol',
    'providers',
    'dialects',
    'gateway',
    'batches',
    'exchange',
    'access',
    'credentials',
    'limits',
    'invalidation',
    'storage',
    'files',
    'transcripts',
    'captures',
    'explanations',
  ],
  admission: ['protocol', 'api', 'storage', 'explanations'],
  services: ['protocol', 'providers', 'storage', 'files', 'invalidation', 'upstream', 'server'],
  server: ['protocol', 'api', 'access', 'storage', 'admission', 'explanations'],
  console: ['protocol', 'providers', 'api', 'access', 'invalidation', 'storage'],
  sim: ['protocol'],
  alerts: ['upstream', 'storage', 'limits'],
  exports: ['upstream', 'storage'],
  prove: ['sim'],
  threads: [
    'protocol',
    'providers',
    'storage',
    'formats',
    'upstream',
    'access',
    'credentials',
    'limits',
    'invalidation',
    'health',
    'pins',
    'captures',
    'exchange',
    'files',
    'gateway',
    'batches',
    'guardrails',
    'plugins',
    'tools',
    'api',
    'dialects',
    'admission',
    'services',
    'server',
    'console',
    'sim',
    'tasks',
    'sandbox',
    'transcripts',
    'alerts',
    'exports',
    'explanations',
  ],
  commands: [
    'alerts',
    'explanations',
    'threads',
    'services',
    'protocol',
    'providers',
    'storage',
    'access',
    'credentials',
    'captures',
    'prove',
  ],
  main: ['commands'],
  cli: ['commands'],
}

const LEAVES = [
  'calls',
  'config',
  'errors',
  'clock',
  'fairness',
  'ids',
  'json',
  'lists',
  'log',
  'metrics',
  'money',
  'nearest',
  'ready',
  'scrub',
  'settings',
  'signal',
  'telemetry',
]
/** Each leaf may use these others. */
const LEAF_IMPORTS: Readonly<Record<string, readonly string[]>> = {
  config: ['settings', 'log', 'providers', 'telemetry'],
  log: ['errors', 'clock'],
  errors: [],
  clock: [],
  fairness: ['clock'],
  ids: [],
  json: ['errors'],
  lists: [],
  metrics: [],
  money: [],
  nearest: [],
  ready: [],
  scrub: [],
  settings: ['nearest'],
  signal: [],
  calls: ['clock', 'ready'],
  telemetry: ['log', 'metrics', 'clock', 'money', 'fairness'],
}

/** Packages that only these files may know, so that they can be replaced in one place. */
const SOLE_IMPORTERS: Readonly<Record<string, readonly string[]>> = {
  'uWebSockets.js': ['server/uws/front.ts', 'server/uws/messages.ts', 'server/uws/socket.ts'],
  ws: ['server/node/messages.ts'],
  piscina: ['features/tasks/pool/worker-set.ts'],
  'just-bash': ['features/sandbox/embedded/child.ts'],
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

/** `pipeline/turn/attempt.ts` -> `gateway`. */
function unit(path: string): string {
  const name = relative(SRC, path)
  return name.split('/')[0]?.replace(/\.ts$/, '') ?? ''
}

/** `every folder` stands for all folders but the composition root, the entries, and what only the command line uses. */
function wordsIn(cell: string): string[] {
  if (cell === 'every folder') {
    return Object.keys(MAY_IMPORT).filter(
      name => !['threads', 'prove', 'commands', 'main', 'cli'].includes(name),
    )
  }
  return cell.match(/[a-z]+/g) ?? []
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
    if (source === target) continue
    const allowed = LEAVES.includes(source)
      ? (LEAF_IMPORTS[source] ?? [])
      : [...LEAVES, ...(MAY_IMPORT[source] ?? [])]
    if (!allowed.includes(target)) t.fail(`${relative(SRC, from)} ${relative(SRC, to)}`)
  }
})

t.test('every source folder stands in the table', async t => {
  for (const file of files) {
    const name = unit(file)
    t.ok(LEAVES.includes(name) || name in MAY_IMPORT, `${name} has a row`)
  }
})

t.test('docs/architecture.md has the same table', async t => {
  const page = readFileSync(resolve(SRC, '../docs/architecture.md'), 'utf8')
  const [, section = ''] = /\n## Who may import whom\n([\s\S]*?)(?:\n## |$)/.exec(page) ?? []
  const documented = section
    .split('\n')
    .filter(line => line.startsWith('| `'))
    .map(line => line.split('|').map(cell => cell.trim()))
    .map(([, name = '', names = '']) => [name.replaceAll('`', ''), wordsIn(names).toSorted()])
  t.same(
    Object.fromEntries(documented),
    Object.fromEntries(Object.entries(MAY_IMPORT).map(([name, names]) => [name, names.toSorted()])),
  )
  const leaves = /\nLeaves: (.*)\n/.exec(section)?.[1] ?? ''
  t.same(wordsIn(leaves).toSorted(), LEAVES.toSorted(), 'leaves')
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

/** The only file of a folder that other folders may import, for folders that have such a door. */
const DOORS: Readonly<Record<string, string>> = {
  'api/models': 'models.ts',
  commands: 'run.ts',
  'commands/connect': 'clients.ts',
  'commands/doctor': 'doctor.ts',
  console: 'console.ts',
  files: 'files.ts',
  'gateway/answer': 'answer.ts',
  'gateway/guard': 'guard.ts',
  'gateway/routing': 'rank.ts',
  'gateway/accounting': 'account.ts',
  'guardrails/expressions': 'engine.ts',
  'sandbox/embedded': 'embedded.ts',
  'server/node': 'front.ts',
  'server/uws': 'front.ts',
  'storage/migrations': 'migrate.ts',
}

t.test('folders with a door are entered by it', async t => {
  for (const [name, door] of Object.entries(DOORS)) {
    const folder = join(SRC, name, '/')
    const entered = imports.filter(({ from, to }) => to.startsWith(folder) && !from.startsWith(folder))
    t.ok(entered.length > 0, name)
    for (const { from, to } of entered) {
      if (to !== join(folder, door)) t.fail(`${relative(SRC, from)} ${relative(SRC, to)}`)
    }
  }
})

t.test('no two folders import each other', async t => {
  const between = new Set(imports.map(({ from, to }) => `${unit(from)} ${unit(to)}`))
  for (const pair of between) {
    const [one = '', other = ''] = pair.split(' ')
    if (one >= other) continue
    if (between.has(`${other} ${one}`)) t.fail(`${one} and ${other}`)
  }
})

t.test('packages with a sole importer are imported nowhere else', async t => {
  for (const [name, importers] of Object.entries(SOLE_IMPORTERS)) {
    const found = files.filter(file => specifiers(file).includes(name)).map(file => relative(SRC, file))
    t.same(found.toSorted(), importers, name)
  }
})

/** State of the whole process. A thread that changes it changes it for all others, some of which run already. */
const PROCESS_STATE: readonly {
  readonly what: string
  readonly use: RegExp
  readonly files: readonly string[]
}[] = [
  {
    what: 'the environment is read in process/config/config.ts, set where the HTTP library wants its header limit, and cleared in the child of the sandbox',
    use: /process\.env\b|process\[\s*'env'\s*\]|\{[^}]*\benv\b[^}]*\}\s*=\s*process\b/,
    files: ['process/config/config.ts', 'features/sandbox/embedded/confine.ts', 'server/uws/front.ts'],
  },
  { what: 'no source sets a flag of V8 at run time', use: /setFlagsFromString/, files: [] },
  {
    what: 'no source looks for a collector of garbage',
    use: /globalThis\.gc\b|global\.gc\b|expose[-_]gc/,
    files: [],
  },
  {
    what: 'no source changes the folder, the mask of files or the user of the process',
    use: /process\s*\.\s*(?:chdir|umask|set(?:e?[ug]id|groups)|initgroups)\b/,
    files: [],
  },
]

for (const { what, use, files: users } of PROCESS_STATE)
  t.test(what, async t => {
    const found = files.filter(file => use.test(readFileSync(file, 'utf8'))).map(file => relative(SRC, file))
    t.same(found.toSorted(), users)
  })

t.test('the launcher gives Node no flag that changes how V8 works', async t => {
  const launcher = readFileSync(resolve(SRC, '../bin/sluice.js'), 'utf8')
  const [, list = ''] = /const FLAGS = \[([^\]]*)\]/.exec(launcher) ?? []
  t.same(list.match(/--[a-z0-9-]+/g), ['--disable-warning', '--disable-sigusr1'])
})
