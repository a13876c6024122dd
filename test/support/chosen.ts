/** Runs the test files of `TEST_FILES` (paths from the root, separated by blanks) in one process, as a suite does. */
import { join } from 'node:path'

for (const file of (process.env['TEST_FILES'] ?? '').split(' ')) {
  if (file !== '') await import(join(import.meta.dirname, '../..', file))
}
