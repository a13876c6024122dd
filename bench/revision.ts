/** Checks out the source trees of revisions, each in a folder of its own; the repository itself stays unchanged. */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join, resolve } from 'node:path'

/** Sources of a revision that git knows, without packages. @param root the repository */
export function extract(root: string, revision: string, folder: string): string {
  const tree = join(folder, `tree-${revision.replace(/[^\w.-]/g, '_')}`)
  if (existsSync(tree)) return tree
  mkdirSync(tree, { recursive: true })
  const script =
    'git archive --format=tar "$1" bin src package.json package-lock.json >"$2.tar" && tar -xf "$2.tar" -C "$2"'
  execFileSync('sh', ['-ec', script, 'sh', revision, tree], { cwd: root })
  return tree
}

/** Gives a tree the packages of the working tree. */
export function linkPackages(root: string, tree: string): void {
  const link = join(tree, 'node_modules')
  if (!existsSync(link)) symlinkSync(join(root, 'node_modules'), link)
}

/**
 * A tree that can be started: a folder as it is; a revision with the packages that its own lock file names.
 * @param root the repository
 */
export function runnable(root: string, revision: string, folder: string): string {
  const given = resolve(revision)
  if (existsSync(join(given, 'src/main.ts'))) return given
  const tree = extract(root, revision, folder)
  if (existsSync(join(tree, 'node_modules'))) return tree
  const lockOf = (at: string): string => readFileSync(join(at, 'package-lock.json'), 'utf8')
  if (lockOf(tree) === lockOf(root)) linkPackages(root, tree)
  else execFileSync('npm', ['ci', '--omit=dev', '--ignore-scripts'], { cwd: tree, stdio: 'ignore' })
  return tree
}
