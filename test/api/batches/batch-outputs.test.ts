/** Results as files: how much of them is read. */
import t from 'tap'
import { OutputSizes, openOutput, outputDocument } from '../../../src/api/batches/batch-outputs.ts'
import { RequestAbort } from '../../../src/base/signal.ts'
import type { BatchRecord, StoredResult } from '../../../src/storage/batches.ts'
import type { Store } from '../../../src/storage/store.ts'

const BATCH = {
  id: `batch_${'a'.repeat(24)}`,
  organizationId: 'org_1',
  status: 'completed',
  createdAt: '2026-01-01T00:00:00.000Z',
  finalizedAt: '2026-01-01T00:00:00.000Z',
  inputFile: { id: 'file-1', metadata: null },
  total: 10,
  completed: 9,
  failed: 1,
} as unknown as BatchRecord

/** `onPage`: called with the number of each page, which has one result. */
function openPages(kind: 'output' | 'errors', onPage: (page: number) => 'more' | 'end' | 'gone') {
  let pages = 0
  const batches = {
    async results(_: string, after: number): Promise<readonly StoredResult[] | null> {
      const next = onPage(++pages)
      if (next !== 'more') return next === 'end' ? [] : null
      const result = '{"id":"1","response":{},"error":null}'
      return [{ customId: 'a', number: after + 1, outcome: 'completed', result } as StoredResult]
    },
  }
  const output = openOutput({ batches } as unknown as Store, BATCH, kind)
  if (output === null) throw new Error('the batch has it')
  return output
}

t.test('results are read no further once their client has left', async t => {
  const signal = new RequestAbort()
  let read = 0
  const output = openPages('errors', page => {
    read = page
    if (page === 3) signal.abort(new Error('left'))
    return page > 10 ? 'end' : 'more'
  })
  await t.rejects(output.chunks(signal)[Symbol.asyncIterator]().next(), { message: 'left' })
  t.equal(read, 3)
})

t.test('a file is read once for its size, however many ask', async t => {
  let read = 0
  const output = openPages('output', page => {
    read = page
    return page > 3 ? 'end' : 'more'
  })
  const sizes = new OutputSizes()
  const all = await Promise.all(Array.from({ length: 20 }, () => outputDocument(output, sizes)))
  const { bytes } = await outputDocument(output, sizes)
  t.ok(bytes > 0)
  t.same(new Set(all.map(each => each.bytes)), new Set([bytes]))
  t.equal(read, 4)
})

t.test('a size that could not be learned is asked for again', async t => {
  const output = openPages('output', page => (page === 1 ? 'gone' : page < 4 ? 'more' : 'end'))
  const sizes = new OutputSizes()
  await t.rejects(sizes.of(output), { message: 'Batch not found' })
  t.ok((await sizes.of(output)) > 0)
})

t.test('a file whose batch is deleted among its unanswered lines does not look complete', async t => {
  let isDeleted = false
  const batches = {
    results: (): Promise<readonly StoredResult[] | null> => Promise.resolve(isDeleted ? null : []),
    // The Store says the same for a removed batch as for the end of the lines.
    unansweredLines(_: string, after: number) {
      isDeleted = after >= 0
      return Promise.resolve(isDeleted ? null : { items: [{ number: 0, customId: 'a' }], last: 0 })
    },
  }
  const expired = { ...BATCH, status: 'expired', total: 2, completed: 0, failed: 0 } as BatchRecord
  const output = openOutput({ batches } as unknown as Store, expired, 'errors')
  if (output === null) throw new Error('the batch has it')
  const lines = output.chunks(new RequestAbort())[Symbol.asyncIterator]()
  t.match(Buffer.from((await lines.next()).value).toString(), /"custom_id":"a"/)
  await t.rejects(lines.next(), { message: 'Batch not found' })
})
