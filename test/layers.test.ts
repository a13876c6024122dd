/** Which room may import which, who may know which package, and no cycles. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import t from 'tap'

const SRC = resolve(import.meta.dirname, '../src')

/** The rooms, from the ground up: a room may import those above it in this list, unless NEVER says otherwise. */
const ROOMS = [
  'base',
  'protocol',
  'dialects',
  'formats',
  'storage',
  'providers',
  'callers',
  'exchange',
  'features',
  'pipeline',
  'batches',
  'api',
  'server',
  'process',
  'apps',
]

/** What a room may not import although it stands above, except below the folders of `but`. */
const NEVER: Readonly<
  Record<string, { readonly rooms: readonly string[]; readonly but?: readonly string[] }>
> = {
  formats: { rooms: ['dialects'] },
  storage: { rooms: ['dialects', 'formats'] },
  providers: { rooms: ['dialects'] },
  callers: { rooms: ['dialects', 'formats'] },
  exchange: { rooms: ['dialects'] },
  // They meet in the contracts of `exchange`; guardrails are rules and texts that the guard stage applies.
  pipeline: { rooms: ['dialects', 'features'], but: ['features/guardrails', 'features/tasks/pool'] },
  api: { rooms: ['formats'] },
  server: { rooms: ['dialects', 'formats', 'providers', 'pipeline', 'batches'] },
}

/** Against the order of the list: what stands beside the gateway is wired like the rest. */
const WIRED: Readonly<Record<string, readonly string[]>> = { process: ['apps/console', 'apps/simulator'] }

/** Rooms of separate parts, and which part may import which. */
const PARTS: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  features: {
    'features/tasks': ['features/guardrails'],
    'features/plugins': ['features/guardrails', 'features/tasks'],
    'features/tools': ['features/files', 'features/sandbox', 'features/tasks'],
  },
  apps: { 'apps/commands': ['apps/prove'], 'apps/prove': ['apps/simulator'] },
}

/** Packages that only these files may know, so that they can be replaced in one place. */
const SOLE_IMPORTERS: Readonly<Record<string, readonly string[]>> = {
  'uWebSockets.js': ['server/uws/front.ts', 'server/uws/socket.ts', 'server/uws/websockets.ts'],
  ws: ['server/node/websockets.ts'],
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

const isBelow = (place: string, folders: readonly string[]): boolean =>
  folders.some(folder => place.startsWith(`${folder}/`))

/** Why a file may not import the other, both below `src`; null: it may. */
function fault(from: string, to: string): string | null {
  const [room = '', other = ''] = [from, to].map(path => path.split('/')[0])
  if (room === other) {
    const [part = '', otherPart = ''] = [from, to].map(path => path.split('/').slice(0, 2).join('/'))
    const parts = PARTS[room]
    return parts === undefined || part === otherPart || parts[part]?.includes(otherPart) === true
      ? null
      : 'is another part'
  }
  // The entries.
  if (!from.includes('/')) return other === 'apps' ? null : 'is not for entries'
  if (ROOMS.indexOf(other) > ROOMS.indexOf(room))
    return isBelow(to, WIRED[room] ?? []) ? null : 'stands below'
  const { rooms = [], but = [] } = NEVER[room] ?? {}
  return rooms.includes(other) && !isBelow(to, but) ? 'is kept apart' : null
}

const files = sourceFiles()
const imports: Import[] = files.flatMap(file =>
  specifiers(file)
    .filter(specifier => specifier.startsWith('.'))
    .map(specifier => ({ from: file, to: resolve(dirname(file), specifier) })),
)

t.test('every import goes up the list of rooms', async t => {
  t.ok(files.length > 20, 'the sources were found')
  for (const { from, to } of imports) {
    const [file, imported] = [relative(SRC, from), relative(SRC, to)]
    const why = fault(file, imported)
    if (why !== null) t.fail(`${file}: ${imported} ${why}`)
  }
})

t.test('every folder at the top of the source is a room with a README', async t => {
  const folders = readdirSync(SRC, { withFileTypes: true }).filter(entry => entry.isDirectory())
  t.same(folders.map(({ name }) => name).toSorted(), ROOMS.toSorted())
  for (const { name } of folders) t.ok(existsSync(join(SRC, name, 'README.md')), name)
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
  'apps/commands': 'run.ts',
  'apps/commands/connect': 'clients.ts',
  'apps/commands/doctor': 'doctor.ts',
  'features/guardrails/expressions': 'engine.ts',
  'features/sandbox/embedded': 'embedded.ts',
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
    files: ['features/sandbox/embedded/confine.ts', 'process/config/config.ts', 'server/uws/front.ts'],
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
