/** What the package would have: the compiled gateway with its launcher and licence, and nothing else. */

import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { binaryFaults, installedBinaries } from '../scripts/verify-http-library.ts'

const ROOT = join(import.meta.dirname, '..')

interface Packed {
  readonly files: readonly { readonly path: string; readonly mode: number }[]
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
  const text = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [{ files } = { files: [] }] = JSON.parse(text) as Packed[]
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
  const faults = binaryFaults(folder)
  t.ok(faults.includes('uws_linux_x64_127.node: is not the binary that was chosen'))
  t.ok(faults.includes('uws_plan9_x64_127.node: is not the binary that was chosen'))
  t.ok(faults.includes('uws_linux_arm64_127.node: is missing'))
})
