import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  expiryIn,
  FileSeal,
  openSealedFile,
  SealedFileError,
} from '../../../src/features/captures/sealed-file.ts'
import type { VaultKey } from '../../../src/providers/credentials/vault-keys.ts'

const key = (id: string): VaultKey => ({ id, secret: randomBytes(32) })
const MASTER = key('k1')
const UNKNOWN_KEY = /a master key that is not configured here/
const DAMAGED = /it was changed/
const PART = {
  captureId: 'cap_1',
  organizationId: 'org_1',
  name: 'node-process',
  expiresAt: '2026-01-02T00:00:00.000Z',
}

function written(folder: string, texts: readonly string[], keys: readonly VaultKey[] = [MASTER]): string {
  const sealer = new FileSeal(keys, PART)
  const path = join(folder, 'part.sealed')
  const chunks = texts.map((text, at) => sealer.seal(Buffer.from(text), at === texts.length - 1))
  writeFileSync(path, Buffer.concat([sealer.header, ...chunks]))
  return path
}

async function read(path: string, keys: readonly VaultKey[] = [MASTER], part = PART) {
  let text = ''
  let isWhole: boolean | null = null
  for await (const piece of openSealedFile(path, keys, part)) {
    if (piece.kind === 'text') text += piece.bytes.toString()
    else isWhole = piece.isWhole
  }
  return { text, isWhole }
}

t.test('what was sealed is read again, in chunks, and nothing of it is in the file', async t => {
  const long = 'x'.repeat(300_000)
  const path = written(t.testdir({}), ['one canary\n', long, ''])
  t.same(await read(path), { text: `one canary\n${long}`, isWhole: true })
  const bytes = readFileSync(path)
  t.notOk(bytes.includes('canary'))
  t.equal(expiryIn(bytes), PART.expiresAt)
  const sealer = new FileSeal([MASTER], PART)
  for (const length of [0, 1, 262_144, 262_145, 600_000])
    t.equal(sealer.seal(Buffer.alloc(length), false).length, FileSeal.sealedBytes(length), String(length))
})

t.test('an older master key opens what it has sealed; a stranger opens nothing', async t => {
  const path = written(t.testdir({}), ['secret'])
  t.equal((await read(path, [key('k2'), MASTER])).text, 'secret')
  await t.rejects(read(path, [key('k2')]), UNKNOWN_KEY)
  await t.rejects(read(path, [key('k1')]), DAMAGED, 'another key of the same name')
})

t.test('a file opens as the part of its own capture alone', async t => {
  const path = written(t.testdir({}), ['secret'])
  for (const other of [{ captureId: 'cap_2' }, { organizationId: 'org_2' }, { name: 'other' }])
    await t.rejects(read(path, [MASTER], { ...PART, ...other }), DAMAGED, JSON.stringify(other))
})

t.test('chunks that are changed, swapped, repeated or cut out do not open', async t => {
  const folder = t.testdir({})
  const sealer = new FileSeal([MASTER], PART)
  const [a, b, c] = ['a', 'b', 'c'].map((text, at) => sealer.seal(Buffer.from(text.repeat(10)), at === 2))
  if (a === undefined || b === undefined || c === undefined) throw new Error('three chunks')
  const fails = async (name: string, ...chunks: readonly Buffer[]) => {
    const path = join(folder, 'x.sealed')
    writeFileSync(path, Buffer.concat([sealer.header, ...chunks]))
    await t.rejects(read(path), SealedFileError, name)
  }
  await fails('swapped', b, a, c)
  await fails('repeated', a, a, b, c)
  await fails('cut out', a, c)
  await fails('appended', a, b, c, c)
  await fails(
    'a last one that is none',
    a,
    b,
    Buffer.concat([c.subarray(0, 4), Buffer.from([0]), c.subarray(5)]),
  )
  for (let at = 0; at < a.length; at++) {
    const changed = Buffer.from(a)
    changed[at] = (changed[at] ?? 0) ^ 1
    // A length that is longer than the file is a file without an end.
    if (at >= 4) await fails(`byte ${at}`, changed, b, c)
  }
  const later = Buffer.from(sealer.header.toString().replace('2026-01-02', '2027-01-02'))
  const path = join(folder, 'later.sealed')
  writeFileSync(path, Buffer.concat([later, a, b, c]))
  await t.rejects(read(path), DAMAGED, 'its expiry is bound too')
})

t.test('a file that was cut gives all whole chunks, and says that it has no end', async t => {
  const folder = t.testdir({})
  const path = written(folder, ['one', 'two', ''])
  const bytes = readFileSync(path)
  const header = bytes.indexOf('\n') + 1
  const seen = new Set<string>()
  for (let end = 0; end < bytes.length; end++) {
    const cut = join(folder, 'cut.sealed')
    writeFileSync(cut, bytes.subarray(0, end))
    const { text, isWhole } = await read(cut)
    if (isWhole !== false || !'onetwo'.startsWith(text)) t.fail(`cut at ${end}: ${text}`)
    seen.add(text)
  }
  t.same([...seen], ['', 'one', 'onetwo'])
  t.ok(header < 1_000)
})

t.test('a file that is none of ours is refused at once', async t => {
  const folder = t.testdir({
    a: '{}\n',
    b: 'x'.repeat(10_000),
    c: 'null\nx',
    d: '{"v":1,"key":"k1","wrapped":"","expires_at":""}\n',
  })
  for (const name of ['a', 'b', 'c', 'd']) await t.rejects(read(join(folder, name)), DAMAGED, name)
})
