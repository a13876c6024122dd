import { spawnSync } from 'node:child_process'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { wanted } from '../scripts/heavy.ts'
import { PROCESS_FILES } from './contract/processes.ts'
import { ALONE, GROUPS, groupOf, HEAVY_FILES, NAMED } from './heavy/groups.ts'
import { testFiles } from './support/suite.ts'

const HERE = import.meta.dirname

t.test('every folder with tests has a suite that runs them', async t => {
  const folders = new Set(globSync('*/**/*.test.ts', { cwd: HERE }).map(file => file.split('/')[0] ?? ''))
  folders.delete('heavy')
  t.ok(folders.size > 15)
  for (const folder of folders)
    t.ok(existsSync(join(HERE, folder, 'all.suite.ts')), `test/${folder}/all.suite.ts`)
})

t.test('the parts of a suite run each of its files once', async t => {
  const folder = join(HERE, 'contract')
  const isWanted = (file: string) => !PROCESS_FILES.includes(file)
  const all = testFiles(folder, isWanted)
  t.ok(all.length > 100)
  const parts = [1, 2, 3, 4].map(part => testFiles(folder, isWanted, `${part}/4`))
  t.same(parts.flat().toSorted(), all)
  const sizes = parts.map(files => files.length)
  t.ok(Math.max(...sizes) - Math.min(...sizes) <= 1, `${sizes}`)
})

t.test('the files named for the suite of processes are there, and it runs them', async t => {
  for (const file of PROCESS_FILES) {
    t.ok(existsSync(join(HERE, 'contract', file)), file)
    t.notOk(HEAVY_FILES.has(`contract/${file}`), file)
  }
})

t.test('each heavy file is in one group, or runs alone', async t => {
  const named = [...Object.values(GROUPS).flat(), ...ALONE, ...Object.values(NAMED).flat()].toSorted()
  t.same(named, [...new Set(named)], 'none is named twice')
  t.same(
    named.filter(file => !existsSync(join(HERE, file))),
    [],
  )
  const heavy = globSync(['heavy/*.test.ts', '*/*.heavy.ts'], { cwd: HERE })
  t.same(
    heavy.filter(file => !named.includes(file)),
    [],
  )
})

t.test('each group has its turn, which the commit says', async t => {
  const commits = Array.from({ length: 1_000 }, (_, at) => (at * 7_919).toString(16).padStart(40, '0'))
  const chosen = commits.map(commit => groupOf(commit.slice(32) + commit))
  t.same([...new Set(chosen)].toSorted(), Object.keys(GROUPS).toSorted())
  const commit = (): string => '2d02743900'
  t.same(wanted(['--turn'], commit), [groupOf('2d027439')])
  t.same(wanted(['secrets', 'kills'], commit), ['secrets', 'kills'])
  t.equal(wanted([], commit), null)
  t.throws(() => wanted(['secret'], commit), /secret: no group of heavy tests; there are .*secrets/)
})

t.test('no file lets the tests of later files of its suite run at the same time', async t => {
  const files = globSync('**/*.test.ts', { cwd: HERE })
  t.same(
    files.filter(file => /^t\.jobs\b/m.test(readFileSync(join(HERE, file), 'utf8'))),
    [],
  )
})

t.test('in a suite, an error that nobody catches fails the test that runs, and the others go on', async t => {
  const folder = t.testdir({
    'errors.test.mjs': `
      import t from 'tap'
      t.test('throws in a timer', async t => {
        setTimeout(() => { throw new Error('first') }, 0)
        await new Promise(() => undefined)
      })
      t.test('rejects in the background', async t => {
        await t.test('an inner one', async () => undefined)
        Promise.reject(new Error('second'))
        await new Promise(resolve => setTimeout(resolve, 1_000))
      })
      t.test('passes', async t => t.ok(true))
      t.test('listens itself', async t => {
        const told = new Promise(resolve => process.once('uncaughtException', resolve))
        setImmediate(() => { throw new Error('third') })
        t.match(await told, { message: 'third' })
      })`,
  })
  const flags = ['--import', join(HERE, '../scripts/tap-errors.ts')]
  const { stdout, status } = spawnSync(process.execPath, [...flags, join(folder, 'errors.test.mjs')], {
    encoding: 'utf8',
  })
  t.equal(status, 1)
  const results = [...stdout.matchAll(/^((?:not )?ok \d+ - .*?) #/gm)].map(([, text]) => text)
  // Failures come once more at the end.
  t.same(results.slice(0, 4), [
    'not ok 1 - throws in a timer',
    'not ok 2 - rejects in the background',
    'ok 3 - passes',
    'ok 4 - listens itself',
  ])
  t.match(stdout, /first[\s\S]*second/)
})
