/** Text of PDFs, and of files that only claim to be some. */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { createDeflate, deflateSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { pdfText } from '../../../src/features/tasks/pdf-text.ts'
import { createTaskPool } from '../../../src/features/tasks/pool/pool.ts'
import { TASKS } from '../../../src/features/tasks/table.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import { ENCRYPTED, writePdf } from '../../support/pdf.ts'
import type { Exploded } from './pdf-bomb.ts'

const run = promisify(execFile)
const EXPLODE = join(import.meta.dirname, 'pdf-bomb.ts')

const codeOf = (bytes: Uint8Array, pagesMax?: number): Promise<string> =>
  pdfText(pagesMax === undefined ? { bytes } : { bytes, pagesMax }).then(
    ({ pages }) => `${pages.length} pages`,
    (error: Error & { code?: string }) => error.code ?? error.message,
  )

// First of all, because the library is loaded once.
t.test('the code of the task is whole before its first document', async t => {
  const reading = await TASKS['pdf-text'].load()
  const loaded: string[] = []
  const hooks = registerHooks({
    load(url, context, next) {
      loaded.push(url)
      return next(url, context)
    },
  })
  t.teardown(() => hooks.deregister())
  t.same(await reading({ bytes: writePdf({ pages: ['one'] }) }), { pages: ['one'] })
  t.same(loaded, [])
})

const DAMAGE: Readonly<Record<string, () => Uint8Array>> = {
  'cut in half': () => writePdf({ pages: ['one', 'two'] }).slice(0, 300),
  'only a header': () => Buffer.from('%PDF-1.7\n'),
  'a tree that holds itself': () => writePdf({ pages: ['one'], tree: '/Kids [2 0 R] /Count 5' }),
  'a claim of two thousand million pages': () =>
    writePdf({ pages: ['one'], tree: '/Kids [4 0 R] /Count 2000000000' }),
  'a negative number of pages': () => writePdf({ pages: ['one'], tree: '/Kids [4 0 R] /Count -3' }),
  'arrays a hundred thousand deep': () =>
    writePdf({ pages: ['one'], stream: { dictionary: '', bytes: Buffer.from('['.repeat(100_000)) } }),
  'a stream that is not compressed as it says': () =>
    writePdf({
      pages: ['one'],
      stream: { dictionary: '/Filter /FlateDecode', bytes: Buffer.from('no zlib') },
    }),
  'an unknown filter': () =>
    writePdf({ pages: ['one'], stream: { dictionary: '/Filter /Nonsense', bytes: Buffer.from('x') } }),
  'a stream that unfolds to 256 MB': () =>
    writePdf({
      pages: ['one'],
      stream: {
        dictionary: '/Filter /FlateDecode',
        bytes: deflateSync(Buffer.alloc(256 * 1024 * 1024, 0x20)),
      },
    }),
}

t.test('the text of each page comes back in its place', async t => {
  const bytes = writePdf({ pages: ['First page', '', 'Third page\nwith two lines'] })
  t.same(await pdfText({ bytes }), { pages: ['First page', '', 'Third page\nwith two lines'] })
  t.match(new TextDecoder('latin1').decode(bytes.slice(0, 5)), '%PDF-', 'the bytes are still the caller’s')
})

t.test('something may stand before the header', async t => {
  const bytes = Buffer.concat([Buffer.from('HTTP junk\n'), writePdf({ pages: ['Here'] })])
  t.match(await codeOf(bytes), /^(1 pages|broken)$/)
})

t.test('what cannot be read is told by its reason', async t => {
  t.equal(await codeOf(Buffer.from('PK\u0003\u0004 a zip')), 'not_a_pdf')
  t.equal(await codeOf(new Uint8Array()), 'not_a_pdf')
  t.equal(await codeOf(writePdf({ pages: ['secret'], trailer: ENCRYPTED })), 'encrypted')
  t.equal(await codeOf(new Uint8Array(50 * 1024 * 1024 + 1)), 'too_large')
  t.equal(await codeOf(writePdf({ pages: ['1', '2', '3'] }), 2), 'too_many_pages')
  t.equal(await codeOf(Buffer.from('%PDF-1.7\nnothing of the kind')), 'broken')
})

t.test('a large page is no bomb', async t => {
  const drawing = Buffer.concat([
    Buffer.from('BT /F1 12 Tf 72 700 Td (Drawn) Tj ET\n'),
    Buffer.from('0 0 m 9 9 l S\n'.repeat(700_000)),
  ])
  const stream = { dictionary: '/Filter /FlateDecode', bytes: deflateSync(drawing) }
  const bytes = writePdf({ pages: ['', 'Second'], stream })
  t.same(await pdfText({ bytes }), { pages: ['Drawn', 'Second'] })
})

/** So many times 16 MiB, without ever having them. */
async function foldSpaces(times: number): Promise<Buffer> {
  const deflating = createDeflate({ level: 1 })
  const folded: Buffer[] = []
  deflating.on('data', (chunk: Buffer) => folded.push(chunk))
  const spaces = Buffer.alloc(16 * 1024 * 1024, 0x20)
  for (let written = 0; written < times; written++)
    await new Promise<void>(done => deflating.write(spaces, () => done()))
  deflating.end()
  await once(deflating, 'end')
  return Buffer.concat(folded)
}

t.test('a document that unfolds without end is given up before it fills the memory', async t => {
  const folded = await foldSpaces(32)
  const bombs: Readonly<Record<string, readonly [string, Buffer]>> = {
    once: ['/Filter /FlateDecode', folded],
    twice: ['/Filter [/FlateDecode /FlateDecode]', deflateSync(folded)],
    'by runs': [
      '/Filter [/FlateDecode /RunLengthDecode]',
      // 128 spaces for every two bytes.
      deflateSync(Buffer.alloc(8 * 1024 * 1024, Buffer.from([129, 0x20])), { level: 1 }),
    ],
  }
  const path = join(t.testdir({}), 'bomb.pdf')
  for (const [name, [dictionary, bytes]] of Object.entries(bombs)) {
    const bomb = writePdf({ pages: ['one'], stream: { dictionary, bytes } })
    writeFileSync(path, bomb)
    const { stdout } = await run(process.execPath, ['--disable-warning=ExperimentalWarning', EXPLODE, path])
    const { answer, grownMb } = JSON.parse(stdout) as Exploded
    t.equal(answer, 'too_large', name)
    t.comment(`${name}: ${bomb.length} bytes, ${grownMb.toFixed(0)} MB more`)
    t.ok(grownMb < 320, name)
  }
})

function startPool(t: Test) {
  const pool = createTaskPool({ threads: 1, clock: systemClock, metrics: createMetrics() })
  t.teardown(() => pool.close())
  return pool
}

t.test('damaged and hostile documents end in an answer, and the pool reads the next one', async t => {
  const pool = startPool(t)
  const sound = writePdf({ pages: ['sound'] })
  for (const [name, make] of Object.entries(DAMAGE)) {
    const startMs = performance.now()
    const answer = await pool.run('pdf-text', { bytes: make() }, { deadlineMs: 8_000 }).then(
      ({ pages }) => `${pages.length} pages`,
      (error: unknown) => {
        if (!(error instanceof TaskError)) throw error
        return error.failure?.code ?? error.outcome
      },
    )
    t.comment(`${name}: ${answer} in ${(performance.now() - startMs).toFixed(0)} ms`)
    t.not(answer, 'internal', name)
    t.same(await pool.run('pdf-text', { bytes: sound }, { deadlineMs: 120_000 }), { pages: ['sound'] })
  }
})
