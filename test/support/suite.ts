/**
 * Runs the test files of a folder in one process. Loading the product costs more than most of them, and so it is
 * loaded once. Each file still runs alone with `npx tap FILE`.
 */
import { globSync } from 'node:fs'
import { join } from 'node:path'

/** Imports the test files at and below `folder` that are wanted, in the order of their names. */
export async function importTests(
  folder: string,
  isWanted: (file: string) => boolean = () => true,
): Promise<void> {
  for (const file of globSync('**/*.test.ts', { cwd: folder }).sort()) {
    if (isWanted(file)) await import(join(folder, file))
  }
}
