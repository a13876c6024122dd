/** The description of the machine in a report. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cpus, release, totalmem } from 'node:os'
import { join } from 'node:path'

export function machine(): Record<string, string> {
  const all = cpus()
  return {
    CPU: `${all.length} × ${all[0]?.model.trim() ?? 'unknown'}`,
    memory: `${(totalmem() / 1024 ** 3).toFixed(1)} GiB`,
    kernel: `Linux ${release()}`,
  }
}

const PACKAGES = ['uWebSockets.js', 'autocannon'] as const

export function versions(root: string): Record<string, string> {
  return {
    Node: process.versions.node,
    ...Object.fromEntries(PACKAGES.map(name => [name, packageVersion(root, name)])),
  }
}

function packageVersion(root: string, name: string): string {
  try {
    const text = readFileSync(join(root, 'node_modules', name, 'package.json'), 'utf8')
    return (JSON.parse(text) as { version: string }).version
  } catch {
    return 'unknown'
  }
}

/** The commit of a working tree, and whether it differs from it. */
export function commitOf(root: string): { commit: string; dirty: boolean } {
  try {
    const git = (...words: string[]): string =>
      execFileSync('git', words, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
    // Results of an earlier run do not change what is measured.
    const changes = git('status', '--porcelain', '--', '.', ':!bench/results', ':!bench/RESULTS.md')
    return { commit: git('rev-parse', '--short', 'HEAD'), dirty: changes !== '' }
  } catch {
    return { commit: 'unknown', dirty: false }
  }
}
