/** Bodies on their way: on the disk without a name, within their bounds, and gone when they are closed. */
import { spawnSync } from 'node:child_process'
import { fstatSync, mkdtempSync, readdirSync, readSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import {
  type DecodeBody,
  type Upload,
  type UploadReader,
  Uploads,
  uploadsFolder,
} from '../../src/batches/uploads.ts'
import { someKey } from '../storage/records.ts'

const OWNER = { key: someKey(), announcedBytes: 1 }
const OTHERS = Array.from({ length: 4 }, () => ({ ...OWNER, key: someKey() }))

function start(t: Test, maxBytes = 1_000_000) {
  const root = mkdtempSync(join(tmpdir(), 'sluice-uploads-'))
  t.teardown(() => rmSync(root, { recursive: true, force: true }))
  const folder = join(root, 'uploads')
  return { folder, uploads: new Uploads({ folder, maxBytes }) }
}

const send =
  (...chunks: readonly string[]) =>
  async (reader: UploadReader) => {
    let at = 0
    for (const chunk of chunks) {
      await reader.write(Buffer.from(chunk), at)
      at += chunk.length
    }
  }

function contentOf({ file }: Upload): string {
  const bytes = Buffer.alloc(file.bytes)
  readSync(file.descriptor, bytes, 0, file.bytes, 0)
  return bytes.toString()
}

t.test('a body is a file without a name, for its owner alone', async t => {
  const { folder, uploads } = start(t)
  const upload = await uploads.receive(OWNER, async reader => {
    await reader.write(Buffer.from('{"a"'), 0)
    t.same(readdirSync(folder), [], 'while it arrives')
    await reader.write(Buffer.from(':1}'), 4)
  })
  t.equal(contentOf(upload), '{"a":1}')
  t.equal(fstatSync(upload.file.descriptor).nlink, 0)
  t.equal(fstatSync(upload.file.descriptor).mode & 0o777, 0o600)
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.equal(uploads.bytes, 7)
  await upload.close()
  t.equal(uploads.bytes, 0)
  t.throws(() => fstatSync(upload.file.descriptor), { code: 'EBADF' })
})

t.test('a compressed body is a file of what it says, and takes no more room than that', async t => {
  const { folder, uploads } = start(t)
  const decode: DecodeBody = async function* ({ bytes, pieces }) {
    t.equal(bytes, 6)
    for await (const piece of pieces()) yield Buffer.from(Buffer.from(piece).toString().repeat(2))
  }
  const upload = await uploads.receive({ ...OWNER, decode }, send('abc', 'def'))
  t.equal(contentOf(upload), 'abcdefabcdef')
  t.equal(uploads.bytes, 12)
  t.same(readdirSync(folder), [])
  await upload.close()
  t.equal(uploads.bytes, 0)

  const reason = new GatewayError('payload_too_large', 'too long')
  // biome-ignore lint/correctness/useYield: it fails before its first piece
  const failing: DecodeBody = async function* () {
    throw reason
  }
  await t.rejects(uploads.receive({ ...OWNER, decode: failing }, send('abc')), reason)
  t.equal(uploads.bytes, 0)
})

t.test('a body without bytes is one too', async t => {
  const { uploads } = start(t)
  const upload = await uploads.receive(OWNER, send())
  t.equal(upload.file.bytes, 0)
  await upload.close()
})

t.test('a body that breaks off leaves nothing, and its reason is told', async t => {
  const { folder, uploads } = start(t)
  const reason = new GatewayError('client_closed', 'gone')
  await t.rejects(
    uploads.receive(OWNER, async reader => {
      await reader.write(Buffer.from('half'), 0)
      throw reason
    }),
    reason,
  )
  await t.rejects(
    uploads.receive(OWNER, async () => {
      throw new TypeError('a fault of ours')
    }),
    { message: 'a fault of ours' },
  )
  t.equal(uploads.bytes, 0)
  t.same(readdirSync(folder), [])
})

t.test('a key has a quarter of the room, and others their own', async t => {
  const { uploads } = start(t, 40)
  const first = await uploads.receive(OWNER, send('12345678'))
  for (const chunks of [['1', '23'], ['123']]) {
    await t.rejects(uploads.receive(OWNER, send(...chunks)), {
      code: 'rate_limit_exceeded',
      message: /^This API key has reached its limit of concurrent large uploads/,
      retryAfterSeconds: 5,
    })
  }
  t.equal(uploads.bytes, 8)
  const second = await uploads.receive(OWNER, send('12'))
  const others = await Promise.all(
    OTHERS.slice(0, 3).map(other => uploads.receive(other, send('1234567890'))),
  )
  t.equal(uploads.bytes, 40)
  await t.rejects(uploads.receive({ ...OWNER, key: someKey() }, send('1')), {
    code: 'service_unavailable',
    message: 'Too many large request bodies are arriving at once; retry in a few seconds',
    retryAfterSeconds: 5,
  })
  for (const upload of [first, second, ...others]) await upload.close()
  await (await uploads.receive(OWNER, send('1234567890'))).close()
  t.equal(uploads.bytes, 0)
})

t.test('an organization of many keys leaves a part of the room to another', async t => {
  const { uploads } = start(t, 40)
  const many = Array.from({ length: 8 }, () => ({ ...OWNER, key: someKey() }))
  const sent = await Promise.all(many.map(each => uploads.receive(each, send('1234'))))
  const other = { ...OWNER, key: someKey({ organizationId: 'org_2' }) }
  const first = await uploads.receive(other, send('1234'))
  await t.rejects(uploads.receive({ ...OWNER, key: someKey() }, send('1')), {
    code: 'rate_limit_exceeded',
    message: /^Uploads of this organization hold most of the room/,
    retryAfterSeconds: 5,
  })
  const second = await uploads.receive(other, send('1234'))
  t.equal(uploads.bytes, 40)
  for (const upload of [...sent, first, second]) await upload.close()
  t.equal(uploads.bytes, 0)
})

t.test('a key has two large bodies on their way, whose next is refused, and others are not', async t => {
  const { uploads } = start(t)
  for (const announcedBytes of [null, 20_000_000]) {
    const gate = Promise.withResolvers<void>()
    const large = { ...OWNER, announcedBytes }
    const arriving = [1, 2].map(() => uploads.receive(large, () => gate.promise))
    await t.rejects(uploads.receive(large, send('x')), { code: 'rate_limit_exceeded', retryAfterSeconds: 5 })
    await (await uploads.receive(OWNER, send('x'))).close()
    for (const other of OTHERS) await (await uploads.receive({ ...other, announcedBytes }, send('x'))).close()
    gate.resolve()
    const [first, second] = await Promise.all(arriving)
    await first?.close()
    await first?.close()
    const third = await uploads.receive(large, send('x'))
    await t.rejects(
      uploads.receive(large, send('x')),
      { code: 'rate_limit_exceeded' },
      'a place is given back once',
    )
    await second?.close()
    await third.close()
    await t.rejects(
      uploads.receive(large, async () => {
        throw new TypeError('broken off')
      }),
    )
    await t.rejects(
      uploads.receive(large, async () => {
        throw new TypeError('broken off')
      }),
      { message: 'broken off' },
      'a body that fails gives its place back',
    )
    await (await uploads.receive(large, send('x'))).close()
  }
})

t.test(
  'chunks that are taken at once are written before it goes on, whatever is still on its way',
  async t => {
    const { uploads } = start(t, 40)
    const upload = await uploads.receive(OWNER, async reader => {
      const first = reader.write(Buffer.from('0123'), 0)
      const second = reader.write(Buffer.from('45'), 4)
      reader.writeNow(Buffer.from('67'), 6)
      reader.writeNow(Buffer.from('89'), 8)
      await Promise.all([first, second])
    })
    t.equal(contentOf(upload), '0123456789')
    await upload.close()
    const tooMuch = uploads.receive(OWNER, async reader => reader.writeNow(Buffer.from('0123456789a'), 0))
    await t.rejects(tooMuch, { code: 'rate_limit_exceeded' })
    t.equal(uploads.bytes, 0)
  },
)

t.test('what a killed process has left is removed, and nothing else', async t => {
  const { folder, uploads } = start(t)
  await (await uploads.receive(OWNER, send('x'))).close()
  writeFileSync(join(folder, 'upload-0123456789abcdef'), 'left')
  writeFileSync(join(folder, 'something'), 'else')
  const next = new Uploads({ folder, maxBytes: 100 })
  t.same(readdirSync(folder), ['something'])
  t.equal(next.bytes, 0)
  t.doesNotThrow(() => new Uploads({ folder: join(folder, 'none'), maxBytes: 1 }))
})

t.test('a folder that cannot be written to is told as unavailable', async t => {
  const { folder } = start(t)
  writeFileSync(folder, 'a file in its place')
  const uploads = new Uploads({ folder, maxBytes: 100 })
  await t.rejects(uploads.receive(OWNER, send('x')), { code: 'store_unavailable', retryAfterSeconds: 1 })
  t.equal(uploads.bytes, 0)
})

t.test('a disk that fills is told as unavailable, and has its room again', async t => {
  const { folder } = start(t)
  const disk = mkdtempSync(join(tmpdir(), 'sluice-disk-'))
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk])
  t.teardown(() => {
    if (status === 0) spawnSync('umount', ['-l', disk])
    rmSync(disk, { recursive: true, force: true })
  })
  if (status !== 0) {
    t.comment(`SKIPPED: mounting a file system needs root (${folder})`)
    return
  }
  const uploads = new Uploads({ folder: disk, maxBytes: 100_000_000 })
  const piece = 'x'.repeat(100_000)
  for (const _ of [1, 2]) {
    await t.rejects(uploads.receive(OWNER, send(...Array.from({ length: 20 }, () => piece))), {
      code: 'store_unavailable',
      cause: { code: 'ENOSPC' },
    })
    t.equal(uploads.bytes, 0)
    t.same(readdirSync(disk), [])
  }
  await (await uploads.receive(OWNER, send(piece))).close()
})

t.test('the folder stands beside the spool', async t => {
  t.equal(uploadsFolder('sqlite:/var/lib/sluice/gateway.db'), '/var/lib/sluice/uploads')
  t.equal(uploadsFolder('postgres://host/db'), join(process.cwd(), 'data/uploads'))
})
