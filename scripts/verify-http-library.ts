/**
 * Compares the binaries of the HTTP library with the checksums below, because a tampered binary would read every byte
 * from callers before our code does. Runs before a package or an image is built, and in CI. The checksums were taken
 * when the version was chosen.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** SHA-256 of the builds for Node 22, whose modules have version 127. Others are never loaded. */
const SUMS: Readonly<Record<string, string>> = {
  'uws_darwin_arm64_127.node': 'abbeea53d48e21c01808203e9f9835728f2cea720d2e5b154837ee3045b513be',
  'uws_darwin_x64_127.node': 'afd992dc1ca1e33cdc7ce0c72a60baf236e590a257fcecbbbce7bc1a35451387',
  'uws_linux_arm64_127.node': 'd4c4f8b2c28c5f6544b49e36d91b0beee238a5b90a07904a947f77061c8b814d',
  'uws_linux_arm_127.node': '0e1d4024b629a1fe17ec76cde8fe7e320101eb8bdcf7b2c4086933932e3cea23',
  'uws_linux_x64_127.node': '8cabc918bbf9a07323e54f89a33882491080b2eb35df0607f473ccdb1f3c31af',
  'uws_win32_x64_127.node': '585d6ee2dbfc750b1d5a59e6ceaef8a977e90ef3e298a82821d58b41cd72a8c0',
}

/** One line for each binary in the folder that is unknown or changed, and for the own one if it is missing. */
export function binaryFaults(
  folder: string,
  { platform, arch }: Pick<NodeJS.Process, 'platform' | 'arch'> = process,
): readonly string[] {
  const found = readdirSync(folder).filter(name => name.endsWith('_127.node'))
  const own = `uws_${platform}_${arch}_127.node`
  return [
    ...(own in SUMS && !found.includes(own) ? [`${own}: is missing`] : []),
    ...found
      .filter(name => sumOf(join(folder, name)) !== SUMS[name])
      .map(name => `${name}: is not the binary that was chosen`),
  ]
}

function sumOf(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex')
}

/** Where npm has installed the binaries. */
export function installedBinaries(): string {
  return fileURLToPath(new URL('bin', import.meta.resolve('uWebSockets.js')))
}

if (import.meta.main) {
  const faults = binaryFaults(installedBinaries())
  for (const line of faults) process.stderr.write(`${line}\n`)
  if (faults.length > 0) process.exitCode = 1
}
