/** Results as files, of a batch whose pages never end. */
import t from 'tap'
import { openOutput, outputDocument } from '../../../src/api/batches/batch-outputs.ts'
import { RequestAbort } from '../../../src/signal.ts'
import type { BatchRecord, StoredResult } from '../../../src/storage/batches.ts'
import type { Store } from '../../../src/storage/store.ts'

const BATCH = {
  id: `batch_${'a'.repeat(24)}`,
  status: 'completed',
  inputFile: { id: 'file-1', metadata: null },
  total: 10,
  completed: 9,
  failed: 1,
} as unknown as BatchRecord

t.test('results are read no further once their client has left', async t => {
  for (const [kind, isRead] of [
    ['output', true],
    ['errors', false],
  ] as const) {
    const signal = new RequestAbort()
    let pages = 0
    const batches = {
      async results(_: string, after: number): Promise<readonly StoredResult[]> {
        if (++pages === 3) signal.abort(new Error('left'))
        if (pages > 10) throw new Error('read on')
        const result = '{"id":"1","response":{},"error":null}'
        return [{ customId: 'a', number: after + 1, outcome: 'completed', result } as StoredResult]
      },
    }
    const output = openOutput({ batches } as unknown as Store, BATCH, kind)
    if (output === null) throw new Error('the batch has it')
    const reading: Promise<unknown> = isRead
      ? outputDocument(output, signal)
      : output.chunks(signal)[Symbol.asyncIterator]().next()
    await t.rejects(reading, { message: 'left' }, kind)
    t.equal(pages, 3)
  }
})
