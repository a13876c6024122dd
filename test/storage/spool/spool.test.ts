/** The spool on real files: what is appended is readable at once, whatever the disk and the writer's end do. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createLog } from '../../../src/base/log/log.ts'
import {
  openSpool,
  readSpool,
  type SpoolOptions,
  type SpoolPiece,
  spoolFiles,
} from '../../../src/storage/spool/spool.ts'
import { claimAbandoned, claimSpoolFolder, spoolRoot } from '../../../src/storage/spool/spool-folder.ts'
import { parseLines, type UsageLine, wholeRecord } from '../../../src/storage/spool/usage-line.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'
import { keep, someUsage } from '../usage.ts'

const FLAGS = ['--disable-warning=ExperimentalWarning']
const source = (name: string) => JSON.stringify(join(import.meta.dirname, '../../../src/storage', name))

function setUp(t: Test, options: Partial<SpoolOptions> = {}) {
  const folder = t.testdir({})
  const clock = new TestClock()
  const lines: string[] = []
  const lost: UsageRecord[] = []
  const log = createLog('info', { write: line => void lines.push(line) })
  const spool = openSpool(folder, { clock, log, onLost: line => lost.push(recordIn(line)), ...options })
  return { folder, clock, lines, lost, spool }
}

const recordIn = (line: string): UsageRecord => wholeRecord(JSON.parse(line) as UsageLine)
const recordsIn = (piece: SpoolPiece | null): UsageRecord[] =>
  parseLines(piece?.lines ?? '').records.map(wholeRecord)

/** Everything that the files of the folder hold, in order. */
function everything(folder: string): UsageRecord[] {
  const records: UsageRecord[] = []
  for (const { path } of spoolFiles(folder)) {
    let offset = 0
    for (let piece = readSpool(path, offset); piece !== null; piece = readSpool(path, offset)) {
      records.push(...recordsIn(piece))
      offset = piece.offset
    }
  }
  return records
}

/** Number of lines that are no records. */
function spoilt(folder: string): number {
  let lines = 0
  for (const { path } of spoolFiles(folder)) {
    let offset = 0
    for (let piece = readSpool(path, offset); piece !== null; piece = readSpool(path, offset)) {
      lines += parseLines(piece.lines).invalidLines
      offset = piece.offset
    }
  }
  return lines
}

t.test('a record can be read as soon as it is told to be written, by its owner alone', async t => {
  const { folder, spool } = setUp(t)
  const records = [someUsage({ endUser: 'ü 日本 \n "' }), someUsage()]
  for (const record of records) {
    await keep(spool, record)
    t.same(everything(folder).at(-1), record)
    t.equal(spool.whenWritten(), null)
  }
  spool.close()
  t.same(everything(folder), records)
  const [file] = spoolFiles(folder)
  t.equal(statSync(file?.path ?? '').mode & 0o777, 0o600)
})

t.test('records of one turn are written together, in their order', async t => {
  const { folder, spool } = setUp(t)
  const records = Array.from({ length: 300 }, (_, at) =>
    someUsage({ endUser: at % 50 === 0 ? '日'.repeat(9_000) : null }),
  )
  for (const record of records) spool.append(record)
  t.same(everything(folder), [], 'not one by one')
  const writing = spool.whenWritten()
  t.equal(spool.whenWritten(), writing, 'all wait for the same')
  await writing
  t.same(everything(folder), records)
  t.equal(spool.whenWritten(), null)
  const last = someUsage()
  spool.append(last)
  spool.close()
  t.same(everything(folder).at(-1), last, 'also those of the turn in which it is closed')
})

t.test('the records of one turn take one write', async t => {
  // A new file begins after the write that has filled the old one.
  const { folder, spool } = setUp(t, { fileMaxBytes: 1_000 })
  const records = Array.from({ length: 50 }, () => someUsage())
  for (const record of records) spool.append(record)
  await spool.whenWritten()
  const [first, ...more] = spoolFiles(folder)
  t.same(recordsIn(readSpool(first?.path ?? '', 0)), records)
  t.same(
    more.map(({ path }) => statSync(path).size),
    [0],
  )
  spool.close()
})

t.test('a large record is written like others', async t => {
  const { folder, spool } = setUp(t)
  const record = someUsage({ endUser: '日'.repeat(60_000) })
  spool.append(record)
  spool.close()
  t.same(everything(folder), [record])
})

t.test('records of several buffers are all in the file, in their order; the latest are found', async t => {
  const { folder, spool } = setUp(t)
  const records = Array.from({ length: 6_000 }, (_, at) =>
    someUsage({ endUser: at % 500 === 0 ? 'ü'.repeat(50_000) : `user ${at} "日"` }),
  )
  for (const [at, record] of records.entries()) {
    spool.append(record)
    if (at % 1_000 === 999) await spool.whenWritten()
    const line = spool.find(record.id)
    t.same(line === null ? null : recordIn(line), record)
  }
  spool.close()
  t.same(everything(folder), records)
  t.equal(spoilt(folder), 0)
  t.equal(spool.find(records[0]?.id ?? ''), null, 'its place is taken')
  t.equal(spool.find('gen-nobody'), null)
})

t.test('a full file is left for a new one, and only then counts as complete', async t => {
  const { folder, spool } = setUp(t, { fileMaxBytes: 1_000 })
  const records = Array.from({ length: 10 }, () => someUsage())
  await keep(spool, ...records)
  const files = spoolFiles(folder)
  t.ok(files.length > 2)
  t.same(
    files.map(file => file.isComplete),
    files.map((_, at) => at < files.length - 1),
  )
  t.same(everything(folder), records)
  spool.close()
})

t.test('lines that a kill or a full disk left half written spoil nothing else', async t => {
  const { folder, spool } = setUp(t)
  const [one, two] = [someUsage(), someUsage()]
  await keep(spool, one)
  const path = spoolFiles(folder)[0]?.path ?? ''
  appendFileSync(path, '{"id":"gen-half\n[]\nnull\n{"id":1}\n')
  await keep(spool, two)
  const piece = readSpool(path, 0)
  t.equal(piece?.isLast, true)
  t.equal(parseLines(piece?.lines ?? '').invalidLines, 4)
  t.same(recordsIn(piece), [one, two])
  appendFileSync(path, '{"id":"gen-torn')
  t.equal(readSpool(path, piece?.offset ?? 0), null, 'what has no end yet is not read')
  appendFileSync(path, 'x'.repeat(1100 * 1024))
  t.same(
    parseLines(readSpool(path, piece?.offset ?? 0)?.lines ?? ''),
    { records: [], invalidLines: 1 },
    'nor waited for without a bound',
  )
  spool.close()
})

t.test('a file longer than a piece is read whole, piece by piece', async t => {
  const { folder, spool } = setUp(t)
  const records = Array.from({ length: 4_000 }, () => someUsage())
  await keep(spool, ...records)
  const path = spoolFiles(folder)[0]?.path ?? ''
  t.ok(recordsIn(readSpool(path, 0)).length < records.length)
  t.same(everything(folder), records)
  spool.close()
})

t.test(
  'a full disk costs no request: records wait in memory, in bounds, and are written when there is room',
  async t => {
    // A limit on the size of files is the kernel refusing a write in the middle of a line, as a full disk does.
    const folder = t.testdir({})
    const script = `
    import { createLog } from ${source('../base/log/log.ts')}
    import { openSpool, spoolFiles } from ${source('spool/spool.ts')}
    import { spawnSync } from 'node:child_process'
    import { readFileSync } from 'node:fs'
    process.on('SIGXFSZ', () => {})
    let retry
    const clock = { nowMs: Date.now, monotonicMs: () => performance.now(), after: (_, call) => { retry = call; return { cancel() {} } } }
    const lost = []
    const lines = []
    const waiting = []
    const log = createLog('info', { write: line => lines.push(JSON.parse(line).msg) })
    const spool = openSpool(process.argv[2], { clock, log, onLost: line => lost.push(JSON.parse(line).id), onWaiting: records => waiting.push(records) })
    const record = JSON.parse(process.argv[3])
    for (let at = 0; at < 1_200; at++) {
      spool.append({ ...record, id: 'gen-' + at })
      // Groups of one, of some, and one that fills the disk on its way.
      if (at % 3 === 0) await spool.whenWritten()
    }
    await spool.whenWritten()
    const [file] = spoolFiles(process.argv[2])
    const full = readFileSync(file.path, 'utf8')
    const raised = spawnSync('prlimit', ['--pid', String(process.pid), '--fsize=unlimited'])
    if (raised.status !== 0) throw new Error('the limit cannot be raised')
    const most = Math.max(...waiting)
    retry()
    spool.append({ ...record, id: 'gen-after' })
    spool.close()
    console.log(JSON.stringify({ lines, lost, torn: !full.endsWith('\\n'), most, waiting: waiting.at(-1) }))
  `
    const file = join(folder, 'full.ts')
    writeFileSync(file, script)
    const record = JSON.stringify(someUsage())
    // 64 KiB.
    const command = [
      '-c',
      'ulimit -S -f 128; exec "$@"',
      'sh',
      process.execPath,
      ...FLAGS,
      file,
      folder,
      record,
    ]
    const run = spawnSync('sh', command, { encoding: 'utf8' })
    t.equal(run.status, 0, run.stderr)
    const told = JSON.parse(run.stdout) as {
      lost: string[]
      lines: string[]
      torn: boolean
      most: number
      waiting: number
    }
    t.ok(told.torn, 'the disk took a part of a line')
    t.ok(told.lost.length > 0, 'beyond the bound the oldest are given up, and counted')
    t.same(told.lines, ['cannot write usage records; they are kept in memory', 'writing usage records again'])
    t.ok(told.most >= 1_000 && told.most <= 1_001, 'it tells how many wait')
    t.equal(told.waiting, 0)
    const kept = everything(folder).map(({ id }) => id)
    const all = [...Array.from({ length: 1_200 }, (_, at) => `gen-${at}`), 'gen-after']
    t.same([...kept, ...told.lost].toSorted(), all.toSorted(), 'each record is on disk or lost, none twice')
    t.equal(kept.at(-1), 'gen-after')
    t.equal(spoilt(folder), 1, 'the torn line spoils no other')
  },
)

t.test('a folder is taken over only when its process has ended', async t => {
  const root = join(t.testdir({}), 'spool')
  const own = claimSpoolFolder(root)
  t.equal(statSync(own.path).mode & 0o777, 0o700)
  t.same(claimAbandoned(root), [], 'not even by ourselves')
  const script = join(t.testdirName, 'other.ts')
  writeFileSync(
    script,
    `import { claimSpoolFolder } from ${source('spool/spool-folder.ts')}
     const folder = claimSpoolFolder(process.argv[2])
     console.log(folder.path)
     setInterval(() => {}, 1000)`,
  )
  const other = spawn(process.execPath, [...FLAGS, script, root])
  t.teardown(() => other.kill('SIGKILL'))
  const [printed] = (await once(other.stdout, 'data')) as [Buffer]
  const path = printed.toString().trim()
  writeFileSync(join(path, 'w.000000.jsonl'), '')
  t.same(claimAbandoned(root), [], 'it lives')
  other.kill('SIGKILL')
  await once(other, 'exit')
  const [claimed, ...more] = claimAbandoned(root)
  t.equal(claimed?.path, path)
  t.same(more, [])
  t.same(claimAbandoned(root), [], 'claimed once at a time')
  claimed?.release()
  t.ok(existsSync(path), 'what is left in it stays')
  const [again] = claimAbandoned(root)
  t.equal(again?.path, path)
  again?.release()
  own.release()
  t.notOk(existsSync(own.path))
  t.notOk(existsSync(`${own.path}.lock`))
})

t.test('a folder whose lock is missing is taken over, other files are left alone', async t => {
  const root = t.testdir({ '1-x': {}, 'note.txt': 'x' })
  mkdirSync(join(root, '2-y'))
  const claimed = claimAbandoned(root)
  t.equal(claimed.length, 2)
  for (const folder of claimed) folder.release()
  t.same(readdirSync(root), ['note.txt'])
})

t.test('the spool is beside the embedded database', async t => {
  t.equal(spoolRoot('sqlite:/var/lib/sluice/gateway.db'), '/var/lib/sluice/spool')
  t.equal(spoolRoot('postgres://u:p@host/db'), join(process.cwd(), 'data/spool'))
})

t.test(
  'a record that waits for the disk when the spool closes is told as lost',
  { skip: existsSync('/dev/full') ? false : 'there is no full device' },
  t => {
    const folder = t.testdir({})
    symlinkSync('/dev/full', join(folder, 'full.000000.jsonl'))
    const lost: UsageRecord[] = []
    const clock = new TestClock()
    const log = createLog('silent', { write: () => undefined })
    const spool = openSpool(folder, { clock, log, onLost: line => lost.push(recordIn(line)), writer: 'full' })
    const record = someUsage()
    spool.append(record)
    t.same(lost, [])
    spool.close()
    t.same(lost, [record])
    t.equal(clock.armed, 0)
    t.end()
  },
)
