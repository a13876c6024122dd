/**
 * Runs the test files of a folder in one process. Loading the product takes longer than most of them, so it is loaded
 * once. Each file still runs alone with `npx tap FILE`.
 */
import { globSync } from 'node:fs'
import { join, relative } from 'node:path'
import t from 'tap'
import { HEAVY_FILES } from '../heavy/groups.ts'

const TESTS = join(import.meta.dirname, '..')
/** Some files start gateways before their first test. */
const LOAD_MS = 600_000

/**
 * Imports the files of the suite in `folder`, or the part of them that `TEST_PART` names. Their tests run once all files
 * are loaded: after a `t.teardown` outside of tests, tap ends the run as soon as no test is left, and would leave out
 * those of a file that is still loading.
 */
export async function importTests(
  folder: string,
  isWanted: (file: string) => boolean = () => true,
): Promise<void> {
  await t.test('all files load', { timeout: LOAD_MS }, async () => {
    for (const file of testFiles(folder, isWanted, process.env['TEST_PART'])) await import(join(folder, file))
  })
}

/**
 * The test files at and below `folder` that are wanted and not heavy, in the order of their names.
 * @param part `2/4`: every fourth of them, from the second one on
 */
export function testFiles(
  folder: string,
  isWanted: (file: string) => boolean,
  part = '1/1',
): readonly string[] {
  const [number, parts] = part.split('/').map(Number) as [number, number]
  return globSync('**/*.test.ts', { cwd: folder })
    .sort()
    .filter(file => isWanted(file) && !HEAVY_FILES.has(relative(TESTS, join(folder, file))))
    .filter((_, at) => at % parts === number - 1)
}
