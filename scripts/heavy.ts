/**
 * Runs heavy tests: all of them if no argument is given, the named groups of test/heavy/groups.ts, or with `--turn` the
 * group whose turn it is. `npm run test:heavy -- secrets kills`. Groups that need npm or that wait run only if they are
 * named.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { ALONE, GROUPS, groupOf, NAMED } from '../test/heavy/groups.ts'

const ROOT = join(import.meta.dirname, '..')
/** Rounds of each kind of kill. */
const ROUNDS = { all: '20', turn: '3' }

/**
 * The groups that the words ask for; `null` for all, and those that want a machine of their own.
 * @throws Error that names the groups, for a word that is none
 */
export function wanted(words: readonly string[], commit: () => string): readonly string[] | null {
  if (words.length === 0) return null
  return words.map(word => {
    if (word === '--turn') return groupOf(commit())
    if (Object.hasOwn(GROUPS, word) || Object.hasOwn(NAMED, word)) return word
    throw new Error(
      `${word}: no group of heavy tests; there are ${[GROUPS, NAMED].flatMap(Object.keys).join(', ')}`,
    )
  })
}

/** The hash of the commit; where git does not tell it, always the same one. */
function head(): string {
  try {
    return execFileSync('git', ['rev-parse', 'HEAD'], { cwd: ROOT, encoding: 'utf8' }).trim()
  } catch {
    return '0'
  }
}

function main(words: readonly string[]): number {
  const groups = wanted(words, head)
  const files =
    groups === null
      ? [...Object.values(GROUPS).flat(), ...ALONE]
      : groups.flatMap(name => GROUPS[name] ?? NAMED[name] ?? [])
  const others = Object.keys(GROUPS).filter(name => groups?.includes(name) === false)
  process.stdout.write(
    `# Heavy tests: ${groups?.join(', ') ?? 'all'}${others.length > 0 ? ` (not ${others.join(', ')})` : ''}\n`,
  )
  const { status } = spawnSync(
    'npx',
    ['tap', '--disable-coverage', '--jobs=1', ...reporterOf(), ...files.map(file => `test/${file}`)],
    {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ROUNDS: groups === null ? ROUNDS.all : ROUNDS.turn, EXHAUSTIVE: '1', ...process.env },
    },
  )
  return status ?? 1
}

/** Where nobody looks at a terminal, lines. */
const reporterOf = (): readonly string[] => (process.stdout.isTTY ? [] : ['--reporter=tap'])

if (process.argv[1] === import.meta.filename) process.exitCode = main(process.argv.slice(2))
