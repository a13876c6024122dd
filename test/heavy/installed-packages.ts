/** npm packages in exact versions, for tests that run online: they are installed once and kept. */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

/** Packages stay here between runs. */
const CACHE = join(tmpdir(), 'sluice-agents')

/**
 * Installs the packages, by name and version, unless they are there.
 * @returns the folder that has them in `node_modules`
 */
export function installedPackages(versions: Readonly<Record<string, string>>): string {
  const wanted = Object.entries(versions).map(([name, version]) => `${name}@${version}`)
  const folder = join(CACHE, wanted.join('_').replaceAll('/', '+'))
  if (existsSync(folder)) return folder
  const making = `${folder}.making`
  rmSync(making, { recursive: true, force: true })
  mkdirSync(making, { recursive: true })
  writeFileSync(join(making, 'package.json'), '{"private":true}')
  execFileSync('npm', ['install', '--no-audit', '--no-fund', '--save-exact', ...wanted], {
    cwd: making,
    // Where a proxy looks into TLS, Node is told its certificate by a variable.
    env: plainEnvironment({ NODE_EXTRA_CA_CERTS: process.env['NODE_EXTRA_CA_CERTS'] ?? '' }),
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  renameSync(making, folder)
  return folder
}

/** Nothing of this process: the test runner hooks itself into children. */
export function plainEnvironment(more: Readonly<Record<string, string>>): Record<string, string> {
  return {
    PATH: `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`,
    HOME: process.env['HOME'] ?? tmpdir(),
    LANG: 'C.UTF-8',
    TERM: 'dumb',
    NO_COLOR: '1',
    DO_NOT_TRACK: '1',
    ...more,
  }
}
