/** The table of all tasks. A new task is a file and a row here. */
import type { Task, TaskFunction } from './task.ts'

function evaluation<Input, Output>(load: () => Promise<TaskFunction<Input, Output>>): Task<Input, Output> {
  return { pool: 'evaluation', load }
}

function bulk<Input, Output>(load: () => Promise<TaskFunction<Input, Output>>): Task<Input, Output> {
  return { pool: 'bulk', load }
}

export const TASKS = {
  'judge-answer': evaluation(async () => (await import('./judge-answer.ts')).judgeAnswer),
  'evaluate-texts': evaluation(async () => (await import('./evaluate-texts.ts')).createEvaluator()),
  'repair-json': evaluation(async () => (await import('./repair-json.ts')).repairJson),
  'check-schema': evaluation(async () => (await import('./check-schema.ts')).checkSchema),
  'pdf-text': bulk(async () => (await import('./pdf-text.ts')).loadPdfText()),
  'page-text': bulk(async () => (await import('./page-text.ts')).pageText),
  'hash-file': bulk(async () => (await import('./hash-file.ts')).hashFile),
  'check-batch': bulk(async () => (await import('./check-batch.ts')).checkBatch),
  'store-batch': bulk(async () => {
    const [{ createBatchStoring }, { openStore }] = await Promise.all([
      import('./store-batch.ts'),
      import('../../storage/open.ts'),
    ])
    return createBatchStoring(openStore)
  }),
  'index-file': bulk(async () => {
    const [{ createFileIndexing }, { openStore }] = await Promise.all([
      import('./index-file.ts'),
      import('../../storage/open.ts'),
    ])
    return createFileIndexing(openStore)
  }),
  'search-files': bulk(async () => {
    const [{ createFileSearch }, { openStore }] = await Promise.all([
      import('./search-files.ts'),
      import('../../storage/open.ts'),
    ])
    return createFileSearch(openStore)
  }),
  'check-batch-bodies': bulk(async () => (await import('./check-batch-bodies.ts')).checkBatchBodies),
}
