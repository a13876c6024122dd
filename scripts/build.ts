/**
 * `npm run build`: compiles `src`, joins its modules into a few files below `dist/code`, and copies its other files to
 * the same places as in `src`. Joining saves time at startup: Node needs a third of a millisecond per module and
 * thread.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { type BuildOptions, build, type Plugin } from 'esbuild'

const ROOT = join(import.meta.dirname, '..')
const DIST = join(ROOT, 'dist')
/** Each module compiled for itself. */
const COMPILED = join(ROOT, 'node_modules/.cache/compiled')
const CODE = 'code'

/** Modules that a process, a thread or a worker begins with. They stay where they were, and load what was joined. */
const ENTRIES = [
  'cli',
  'process/threads/serve',
  'process/threads/batch',
  'process/start/early-serve',
  'features/tasks/pool/worker',
  // Last: a product that has it was made whole.
  'main',
]

/** The same for processes that may read their own folder alone: each is one file with all of its modules. */
const CONFINED = ['features/sandbox/embedded/child', 'features/sandbox/embedded/confine']

/** Packages of some hundred modules each, which every thread loads. All others stay as they are installed. */
const JOINED_PACKAGES: ReadonlySet<string> = new Set(['kysely', '@sinclair/typebox'])

const namedPackages: Plugin = {
  name: 'named packages',
  setup({ onResolve }) {
    onResolve({ filter: /^[^./]/ }, ({ path }) => {
      const [name = path] = /^(?:@[^/]+\/)?[^/]+/.exec(path) ?? []
      return JOINED_PACKAGES.has(name) ? null : { path, external: true }
    })
  },
}

/** A module finds the files that stand beside it in `src`, although it is below `code` now. */
const ownPlaces: Plugin = {
  name: 'own places',
  setup({ onLoad }) {
    onLoad({ filter: /\.js$/ }, ({ path }) => {
      const place = relative(COMPILED, path)
      const text = place.startsWith('..') ? '' : readFileSync(path, 'utf8')
      if (!text.includes('import.meta.url')) return null
      const address = `new URL(${JSON.stringify(join('..', place))}, import.meta.url).href`
      return { contents: text.replaceAll('import.meta.url', address) }
    })
  },
}

const OPTIONS = {
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node22',
  logLevel: 'warning',
} as const satisfies BuildOptions

rmSync(DIST, { recursive: true, force: true })
rmSync(COMPILED, { recursive: true, force: true })
execFileSync('npx', ['tsc', '-p', 'tsconfig.build.json'], { cwd: ROOT, stdio: 'inherit' })
cpSync(join(ROOT, 'src'), DIST, { recursive: true, filter: path => !/\.(?:ts|md)$/.test(path) })
const places = (names: readonly string[]): string[] => names.map(name => join(COMPILED, `${name}.js`))
await build({
  ...OPTIONS,
  entryPoints: places(CONFINED),
  outbase: COMPILED,
  outdir: DIST,
  packages: 'external',
})
await build({
  ...OPTIONS,
  entryPoints: places(ENTRIES),
  outbase: COMPILED,
  outdir: join(DIST, CODE),
  splitting: true,
  entryNames: '[name]',
  chunkNames: '[name]-[hash]',
  plugins: [namedPackages, ownPlaces],
})
for (const name of ENTRIES) {
  const joined = relative(join(DIST, dirname(name)), join(DIST, CODE))
  mkdirSync(join(DIST, dirname(name)), { recursive: true })
  writeFileSync(
    join(DIST, `${name}.js`),
    `export * from '${joined.startsWith('.') ? '' : './'}${joined}/${name.split('/').at(-1)}.js'\n`,
  )
}
