/**
 * Starts the product for tests: compiled, if the build is not older than the sources, because that start costs half as
 * much; otherwise from the sources. `npm test` compiles first.
 */
import { globSync, statSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')

/** Arguments of `node` before the entry file. */
export const PRODUCT_FLAGS: readonly string[] = ['--disable-warning=ExperimentalWarning']

/** What a started product needs of the environment. Its warm-up and its cache of code have tests of their own. */
export const PRODUCT_ENVIRONMENT = {
  PATH: process.env['PATH'] ?? '',
  GATEWAY_WARM_UP_MS: '0',
  NODE_DISABLE_COMPILE_CACHE: '1',
} as const

export const MAIN = entry('main')
export const CLI = entry('cli')

function entry(name: string): string {
  return join(ROOT, isCompiled(ROOT) ? `dist/${name}.js` : `src/${name}.ts`)
}

/** True if no source is newer than the compiled product, which is made whole. @param root has `src` and `dist` */
export function isCompiled(root: string): boolean {
  const changedMs = (file: string): number => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
  const madeMs = changedMs(join(root, 'dist/main.js'))
  return globSync('src/**/*.ts', { cwd: root }).every(file => changedMs(join(root, file)) <= madeMs)
}
