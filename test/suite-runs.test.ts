/** `npm test`: each suite in a process of its own, and what failed is told. */
import { spawnSync } from 'node:child_process'
import { utimesSync } from 'node:fs'
import { join, relative } from 'node:path'
import t, { type Test } from 'tap'
import { isCompiled } from './support/product.ts'

const ROOT = join(import.meta.dirname, '..')

function run(t: Test, texts: Readonly<Record<string, string>>) {
  const folder = relative(ROOT, t.testdir(texts))
  const { status, stdout } = spawnSync(
    process.execPath,
    [
      '--disable-warning=ExperimentalWarning',
      'scripts/tests.ts',
      ...Object.keys(texts)
        .filter(name => name.endsWith('.suite.ts'))
        .map(name => join(folder, name)),
    ],
    { cwd: ROOT, encoding: 'utf8' },
  )
  return { status, told: stdout.replaceAll(`${folder}/`, '').replaceAll(/time=[\d.]+s/g, 'time=1s') }
}

const suite = (...points: readonly string[]) => `import t from 'tap'\n${points.join('\n')}\n`
const GOOD = suite("t.test('holds', async t => t.equal(1 + 1, 2, 'a sum'))")

t.test('suites that pass are one line each', async t => {
  const { status, told } = run(t, { 'one.suite.ts': GOOD, 'other.suite.ts': GOOD })
  t.equal(status, 0)
  t.same(told.trim().split('\n').toSorted(), [
    '# All passed.',
    'ok - one.suite.ts # time=1s',
    'ok - other.suite.ts # time=1s',
  ])
})

t.test('a suite that fails is told with its failed points, and the others still run', async t => {
  const { status, told } = run(t, {
    'bad.suite.ts': suite(
      "t.test('holds', async t => t.ok(true, 'a truth'))",
      "t.test('breaks', async t => t.equal(1 + 1, 3, 'a wrong sum'))",
    ),
    'good.suite.ts': GOOD,
  })
  t.equal(status, 1)
  t.match(told, /^not ok - bad\.suite\.ts # time=1s$/m)
  t.match(told, /^ +not ok 1 - a wrong sum\n +---\n(?:.*\n)*? +-3\n/m, 'with what differs')
  t.notMatch(told, /^ *ok \d+ - a truth/m)
  t.match(told, /^ok - good\.suite\.ts/m)
  t.match(told, /^# Failed: bad\.suite\.ts$/m)
})

t.test('a suite that fails once and passes alone is named, with what failed', async t => {
  const { status, told } = run(t, {
    'odd.suite.ts': suite(
      "import { existsSync, writeFileSync } from 'node:fs'",
      "const marker = new URL('marker', import.meta.url)",
      "t.ok(existsSync(marker), 'it has been here')",
      "writeFileSync(marker, '')",
    ),
  })
  t.equal(status, 0)
  t.match(told, /^not ok - odd\.suite\.ts # time=1s\nnot ok 1 - it has been here\n/m)
  t.match(told, /^ok - odd\.suite\.ts # time=1s\n# Unsteady, .*: odd\.suite\.ts\n# All passed\.$/m)
})

t.test('a suite waits for a file that takes long to load, though its other tests are done', async t => {
  const { status, told } = run(t, {
    'a.test.ts': suite('t.teardown(() => undefined)', "t.test('holds', async t => t.ok(true))"),
    'b.test.ts': suite(
      'await new Promise(resolve => setTimeout(resolve, 100))',
      "t.test('breaks', async t => t.ok(false, 'it has run'))",
    ),
    'all.suite.ts': `import { importTests } from '${join(ROOT, 'test/support/suite.ts')}'
await importTests(import.meta.dirname)
`,
  })
  t.equal(status, 1)
  t.match(told, /^not ok - all\.suite\.ts # time=1s\n(?:.*\n)*? +not ok 1 - it has run$/m)
})

t.test('what a suite leaves out is told with the reason', async t => {
  const skipped = (name: string) => `t.test('${name}', { skip: 'no server' }, async () => {})`
  const { status, told } = run(t, { 'one.suite.ts': suite(skipped('a'), skipped('b'), 't.ok(true)') })
  t.equal(status, 0)
  t.match(told, /^ok - one\.suite\.ts # time=1s\n {2}skipped 2: no server\n# All passed\.$/m)
})

t.test('a suite that ends in the middle fails, with its last words', async t => {
  const { status, told } = run(t, { 'gone.suite.ts': "process.stdout.write('so far'); process.exit(3)" })
  t.equal(status, 1)
  t.match(told, /^not ok - gone\.suite\.ts # time=1s\nso far$/m)
})

t.test(
  'tests start the compiled product unless a source is newer, modules of types alone included',
  async t => {
    const folder = t.testdir({
      src: { 'main.ts': '', tools: { 'types-alone.ts': '' } },
      dist: { 'main.js': '' },
    })
    const change = (file: string, seconds: number) => utimesSync(join(folder, file), seconds, seconds)
    change('src/main.ts', 1_000)
    change('src/tools/types-alone.ts', 1_000)
    change('dist/main.js', 2_000)
    t.ok(isCompiled(folder), 'what the build leaves out is not missed')
    change('src/tools/types-alone.ts', 3_000)
    t.notOk(isCompiled(folder))
    t.notOk(isCompiled(t.testdir({ src: { 'main.ts': '' } })), 'nothing is compiled')
  },
)
