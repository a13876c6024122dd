/** What every place for bytes must do, and what is particular to folders and buckets. */
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { bytesSource, type ContentSource, type FileContents } from '../../src/files/contents.ts'
import { createFolderContents } from '../../src/files/folder.ts'
import { createS3Contents } from '../../src/files/s3.ts'
import { fileId } from '../../src/ids.ts'
import { startS3Server } from '../support/s3-server.ts'

const NO_IDS = [
  '',
  '.',
  '..',
  '../x',
  '/etc/passwd',
  'gw_file_',
  `${fileId()}/..`,
  `${fileId()}\0`,
  `../${fileId()}`,
  'arriving-1',
]

async function bytesOf(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = []
  for await (const chunk of chunks) all.push(chunk)
  return Buffer.concat(all)
}

function brokenSource(bytes: number): ContentSource {
  return {
    bytes,
    async *chunks() {
      yield Buffer.alloc(bytes - 1)
      throw new RangeError('the body broke')
    },
  }
}

async function contentsContract(t: Test, contents: FileContents): Promise<void> {
  for (const size of [0, 1, 256 * 1024, 3_000_001]) {
    const id = fileId()
    const bytes = randomBytes(size)
    await contents.put(id, bytesSource(bytes))
    t.ok((await bytesOf(contents.read(id))).equals(bytes), `${size} bytes come back`)
    await contents.put(id, bytesSource(Buffer.from('other')))
    t.equal(String(await bytesOf(contents.read(id))), 'other')
    await contents.remove(id)
    await contents.remove(id)
    await t.rejects(bytesOf(contents.read(id)), { code: 'service_unavailable' })
  }
  const id = fileId()
  await t.rejects(contents.put(id, brokenSource(100)))
  await t.rejects(bytesOf(contents.read(id)), { code: 'service_unavailable' }, 'all bytes or none')
  for (const name of NO_IDS) {
    await t.rejects(
      async () => contents.put(name, bytesSource(Buffer.from('x'))),
      TypeError,
      JSON.stringify(name),
    )
    await t.rejects(async () => bytesOf(contents.read(name)), TypeError)
    await t.rejects(async () => contents.remove(name), TypeError)
  }
}

t.test('a folder keeps bytes, for its owner alone', async t => {
  const folder = join(t.testdir({}), 'a', 'files')
  const contents = createFolderContents(folder)
  await contentsContract(t, contents)
  t.same(readdirSync(folder), [], 'nothing is left behind')
  const id = fileId()
  await contents.put(id, bytesSource(Buffer.from('x')))
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.equal(statSync(join(folder, id)).mode & 0o777, 0o600)
})

t.test('a link, a pipe or a folder in the place of a file is not read, nor written through', async t => {
  const root = t.testdir({ secret: 'of the host', files: {} })
  const folder = join(root, 'files')
  const contents = createFolderContents(folder)
  const [link, pipe, inner] = [fileId(), fileId(), fileId()]
  symlinkSync(join(root, 'secret'), join(folder, link))
  execFileSync('mkfifo', [join(folder, pipe)])
  mkdirSync(join(folder, inner))
  for (const id of [link, pipe, inner]) await t.rejects(bytesOf(contents.read(id)))
  await contents.put(link, bytesSource(Buffer.from('new')))
  t.equal(String(await bytesOf(contents.read(link))), 'new')
  t.equal(execFileSync('cat', [join(root, 'secret')]).toString(), 'of the host')
  symlinkSync(join(root, 'secret'), join(folder, 'gw_file_000000000000000000000000'))
  await contents.remove('gw_file_000000000000000000000000')
  t.equal(execFileSync('cat', [join(root, 'secret')]).toString(), 'of the host')
})

t.test('a folder that cannot be used is told as such', async t => {
  const folder = join(t.testdir({}), 'files')
  writeFileSync(folder, 'a file')
  const contents = createFolderContents(folder)
  await t.rejects(contents.put(fileId(), bytesSource(Buffer.from('x'))), { code: 'service_unavailable' })
  rmSync(folder)
  chmodSync(join(folder, '..'), 0o700)
})

const SETTINGS = {
  bucket: 'bucket',
  prefix: 'some/prefix',
  region: 'eu-test-1',
  accessKeyId: 'AKID',
  secretAccessKey: 'its secret',
}

t.test('a bucket keeps bytes, below its prefix', async t => {
  const server = await startS3Server('AKID', 'its secret')
  t.teardown(() => server.close())
  const contents = createS3Contents({ ...SETTINGS, endpoint: server.url })
  await contentsContract(t, contents)
  t.same([...server.objects], [])
  const id = fileId()
  await contents.put(id, bytesSource(Buffer.from('x')))
  t.same([...server.objects.keys()], [`/bucket/some/prefix/${id}`])
  const plain = createS3Contents({ ...SETTINGS, prefix: '', endpoint: server.url })
  await plain.put(id, bytesSource(Buffer.from('x')))
  t.ok(server.objects.has(`/bucket/${id}`))
})

t.test(
  'a bucket that is busy is asked once more, and one that refuses is told without its words',
  async t => {
    const server = await startS3Server('AKID', 'its secret')
    t.teardown(() => server.close())
    const contents = createS3Contents({ ...SETTINGS, endpoint: server.url })
    const id = fileId()
    server.faults.push(503)
    await contents.put(id, bytesSource(Buffer.from('whole')))
    server.faults.push(500)
    t.equal(String(await bytesOf(contents.read(id))), 'whole')
    server.faults.push(503, 503)
    await t.rejects(contents.put(fileId(), bytesSource(Buffer.from('x'))), { code: 'service_unavailable' })
    const before = server.requests.length
    const stranger = createS3Contents({ ...SETTINGS, secretAccessKey: 'wrong', endpoint: server.url })
    await t.rejects(bytesOf(stranger.read(id)), {
      code: 'service_unavailable',
      message: 'Service temporarily unavailable',
    })
    t.equal(server.requests.length, before + 1, 'a refusal is final')
  },
)
