/**
 * Runs the tests that cover the changed files, in about a minute: `npm run test:quick`, or with `-- REVISION` those for
 * all changes since that revision (by default, since the branch left main). Prints what it runs and what it leaves to
 * `npm test`.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { PROCESS_FILES } from '../test/contract/processes.ts'
import { HEAVY_FILES, SLOW_FILES } from '../test/heavy/groups.ts'

const ROOT = join(import.meta.dirname, '..')
/** As many take about a minute on two cores. */
const FILES_MAX = 24

/** Short contract files for folders of the source, for changes that no test file of the same name covers. */
const DOORS: Readonly<Record<string, readonly string[]>> = {
  callers: ['keys', 'account'],
  api: ['openapi', 'reading-models'],
  batches: ['batches', 'batch-refusals'],
  'providers/credentials': ['byok', 'provider-secrets'],
  dialects: ['responses', 'chat-completions', 'messages'],
  'base/fairness': ['end-user-shares'],
  'features/files': ['files', 'stored-files'],
  formats: ['special-fields', 'told-fields'],
  pipeline: ['responses', 'routing', 'hedging'],
  'features/guardrails': ['guardrails-input', 'guardrails-at-work'],
  'providers/health': ['routing'],
  'callers/limits': ['spending', 'overspend'],
  'features/plugins': ['plugins'],
  protocol: ['bad-requests', 'responses'],
  providers: ['providers', 'routing'],
  'features/sandbox': ['sandbox'],
  server: ['bad-requests', 'stream-borders', 'websocket'],
  'features/tools': ['datetime', 'tool-quality'],
  'storage/transcripts': ['resumable-streams', 'idempotency'],
  'providers/upstream': ['hostile-replies', 'timings'],
}

/** Tests that read the whole repository, in seconds. */
const HOUSE = ['dialect-branches', 'docs', 'layers', 'suites'].map(name => `test/${name}.test.ts`)

export interface Tree {
  /** All test files, from the root of the repository. */
  readonly tests: readonly string[]
  read(file: string): string
}

export interface Chosen {
  readonly run: readonly string[]
  /** Would cover a changed file too, and takes too long. */
  readonly left: readonly string[]
}

/** What to run for these files, the nearest first. */
export function choose(changed: readonly string[], { tests, read }: Tree): Chosen {
  const wanted = new Set<string>([...changed.filter(file => tests.includes(file))])
  const sources = changed.filter(file => file.startsWith('src/'))
  for (const source of sources) for (const test of sameName(source, tests)) wanted.add(test)
  const texts = new Map(tests.map(test => [test, read(test)]))
  for (const changedFile of changed) {
    // As an import writes it: the end of a path.
    const path = `/${changedFile}'`
    for (const [test, text] of texts) if (text.includes(path)) wanted.add(test)
  }
  for (const source of sources) for (const test of atTheDoor(source, tests)) wanted.add(test)
  const quick = [...wanted].filter(test => !isLong(test))
  return {
    run: [...quick.slice(0, FILES_MAX), ...HOUSE.filter(test => !quick.slice(0, FILES_MAX).includes(test))],
    left: [...quick.slice(FILES_MAX), ...[...wanted].filter(isLong)].filter(test => !HOUSE.includes(test)),
  }
}

/** `src/x/y.ts` has `test/x/y.test.ts`; a part of a folder that is tested as one has the file of the folder. */
function sameName(source: string, tests: readonly string[]): readonly string[] {
  const path = source.replace(/^src\//, 'test/').replace(/\.\w+$/, '')
  return [`${path}.test.ts`, `${dirname(path)}.test.ts`].filter(test => tests.includes(test))
}

/** Contract files that name the file, and those of its folder. */
function atTheDoor(source: string, tests: readonly string[]): readonly string[] {
  const name = basename(source).replace(/\.\w+$/, '')
  const named = tests.filter(test => test.startsWith('test/contract/') && basename(test).startsWith(name))
  const [, room = '', folder = ''] = source.split('/')
  const doors = DOORS[`${room}/${folder}`] ?? DOORS[room] ?? []
  return [...named, ...doors.map(door => `test/contract/${door}.test.ts`)]
}

function isLong(test: string): boolean {
  const path = test.replace(/^test\//, '')
  return (
    path.startsWith('heavy/') ||
    HEAVY_FILES.has(path) ||
    SLOW_FILES.has(path) ||
    PROCESS_FILES.some(file => path === `contract/${file}`)
  )
}

export const allTests = (): readonly string[] => globSync('test/**/*.test.ts', { cwd: ROOT }).sort()

function git(...words: readonly string[]): readonly string[] {
  return execFileSync('git', words, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
    .split('\n')
    .filter(line => line !== '')
}

/** Since the revision, or since the branch left main; what is not committed and what is new included. */
function changedSince(revision: string | undefined): readonly string[] {
  const base = revision ?? leftMain()
  return [
    ...new Set([...git('diff', '--name-only', base), ...git('ls-files', '--others', '--exclude-standard')]),
  ]
}

function leftMain(): string {
  try {
    return git('merge-base', 'main', 'HEAD')[0] ?? 'HEAD'
  } catch {
    return 'HEAD'
  }
}

function main([revision]: readonly string[]): number {
  const changed = changedSince(revision)
  const { run, left } = choose(changed, {
    tests: allTests(),
    read: file => readFileSync(join(ROOT, file), 'utf8'),
  })
  process.stdout.write(
    `# ${changed.length} changed files. Run:\n${run.map(file => `#   ${file}\n`).join('')}` +
      `# Left to npm test and npm run test:heavy: everything else${left.length > 0 ? ', of what covers them' : ''}\n` +
      left.map(file => `#   ${file}\n`).join(''),
  )
  if (!existsSync(join(ROOT, '.tap/plugins')))
    spawnSync('npx', ['tap', 'build'], { cwd: ROOT, stdio: 'ignore' })
  const { status } = spawnSync(
    'npx',
    [
      'tap',
      '--disable-coverage',
      ...(process.stdout.isTTY ? [] : ['--reporter=tap']),
      'test/support/chosen.ts',
    ],
    { cwd: ROOT, stdio: 'inherit', env: { ...process.env, TEST_FILES: run.join(' ') } },
  )
  return status ?? 1
}

if (process.argv[1] === import.meta.filename) process.exitCode = main(process.argv.slice(2))
