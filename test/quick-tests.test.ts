/** The choice of tests for changed files. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { allTests, choose } from '../scripts/quick-tests.ts'
import { SLOW_FILES } from './heavy/groups.ts'

const TESTS = [
  'test/pipeline/turn/attempt.test.ts',
  'test/pipeline/turn/hedge.test.ts',
  'test/features/plugins/fusion.test.ts',
  'test/features/tools/text-tools.test.ts',
  'test/contract/fusion.test.ts',
  'test/contract/plugins.test.ts',
  'test/contract/limits.test.ts',
  'test/contract/canary.test.ts',
  'test/support/clock.test.ts',
]
const TEXTS: Readonly<Record<string, string>> = {
  'test/pipeline/turn/hedge.test.ts': `import { Attempt } from '../../../src/pipeline/turn/attempt.ts'`,
  'test/contract/limits.test.ts': `import { x } from '../../../src/pipeline/turn/attempt.ts'`,
  'test/support/clock.test.ts': `import { TestClock } from '../support/test-clock.ts'`,
}
const tree = { tests: TESTS, read: (file: string) => TEXTS[file] ?? '' }

t.test('the test of its name comes first, then those that import the file', async t => {
  const { run } = choose(['src/pipeline/turn/attempt.ts'], tree)
  t.same(run.slice(0, 2), ['test/pipeline/turn/attempt.test.ts', 'test/pipeline/turn/hedge.test.ts'])
})

t.test('the contract file of a name is run, and the short ones of the folder', async t => {
  const { run } = choose(['src/features/plugins/fusion.ts'], tree)
  t.same(run.slice(0, 3), [
    'test/features/plugins/fusion.test.ts',
    'test/contract/fusion.test.ts',
    'test/contract/plugins.test.ts',
  ])
})

t.test('a test that is changed itself is run', async t => {
  t.equal(choose(['test/contract/plugins.test.ts'], tree).run[0], 'test/contract/plugins.test.ts')
})

t.test('what takes minutes is named and left', async t => {
  const { run, left } = choose(['src/pipeline/turn/attempt.ts', 'test/contract/canary.test.ts'], tree)
  t.same(left, ['test/contract/canary.test.ts', 'test/contract/limits.test.ts'])
  t.notOk(run.some(file => left.includes(file)))
})

t.test('the tests of the whole repository are always run', async t => {
  const { run, left } = choose([], tree)
  t.ok(run.includes('test/layers.test.ts') && run.includes('test/docs.test.ts'))
  t.same(left, [])
})

t.test('every file that can be chosen for a folder is there', async t => {
  const root = join(import.meta.dirname, '..')
  const tests = allTests()
  const folders = new Set(tests.map(test => `src/${test.split('/').slice(1, 3).join('/')}/none.ts`))
  t.ok(folders.size > 30)
  const { run, left } = choose([...folders], { tests, read: () => '' })
  t.same(
    [...run, ...left].filter(file => !existsSync(join(root, file))),
    [],
  )
  t.same(
    [...SLOW_FILES].filter(file => !tests.includes(`test/${file}`)),
    [],
  )
})
