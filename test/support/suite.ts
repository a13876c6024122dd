/**
 * Runs the test files of a folder in one process. Loading the product costs more than most of them, and so it is
 * loaded once. Each file still runs alone with `npx tap FILE`.
 */
import { globSync } from 'node:fs'
import { join, relative } from 'node:path'
import { HEAVY_FILES } from '../heavy/groups.ts'

const TESTS = join(import.meta.dirname, '..')

/** Imports the test files at and below `folder` that are wanted and not heavy, in the order of their names. */
export async function importTests(
  folder: string,
  isWanted: (file: string) => boolean = () => true,
): Promise<void> {
  for (const file of globSync('**/*.test.ts', { cwd: folder }).sort()) {
    const path = join(folder, file)
    if (isWanted(file) && !HEAVY_FILES.has(relative(TESTS, path))) await import(path)
  }
}
