/**
 * `npm run build`: compiles `src` into `dist`, beside its files of other kinds. Modules that had types alone are left
 * out: nothing imports them any more.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, globSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')
const DIST = join(ROOT, 'dist')
/** All that the compiler leaves of a module of types. */
const EMPTY = 'export {};'

rmSync(DIST, { recursive: true, force: true })
execFileSync('npx', ['tsc', '-p', 'tsconfig.build.json'], { cwd: ROOT, stdio: 'inherit' })
for (const file of globSync('**/*.js', { cwd: DIST })) {
  const path = join(DIST, file)
  if (
    readFileSync(path, 'utf8')
      .replaceAll(/\/\*[\s\S]*?\*\//g, '')
      .trim() === EMPTY
  )
    rmSync(path)
}
cpSync(join(ROOT, 'src'), DIST, { recursive: true, filter: path => !path.endsWith('.ts') })
