/**
 * The batch APIs of the simulated provider. Each row answers one kind of call. The base URL is the same for all, so ids
 * distinguish them. Pure, except for the jobs.
 */
import {
  cancelJob,
  deleteFile,
  deleteJob,
  ofJob,
  type SimBatchAnswer,
  type SimBatchCall,
  type SimBatchReply,
} from './batch-calls.ts'
import type { SimBatches } from './batch-jobs.ts'
import { downloadFile, makeOperation, operation, uploadRelated } from './gemini-batches.ts'
import { listMessageBatches, makeMessageBatch, messageBatch, messageResults } from './message-batches.ts'
import { listBatches, makeBatch, openaiBatch, outputFile, uploadFile } from './openai-batches.ts'

const CALL_ROWS: readonly {
  readonly method: string
  readonly path: RegExp
  readonly answer: SimBatchAnswer
}[] = [
  // OpenAI
  { method: 'POST', path: /^\/files$/, answer: uploadFile },
  { method: 'GET', path: /^\/files\/([\w-]+)\/content$/, answer: outputFile },
  { method: 'DELETE', path: /^\/files\/([\w-]+)$/, answer: deleteFile },
  { method: 'POST', path: /^\/batches$/, answer: makeBatch },
  { method: 'GET', path: /^\/batches$/, answer: listBatches },
  { method: 'GET', path: /^\/batches\/(batch_\w+)$/, answer: ofJob(openaiBatch) },
  { method: 'POST', path: /^\/batches\/(batch_\w+)\/cancel$/, answer: cancelJob(openaiBatch) },
  // Anthropic
  { method: 'POST', path: /^\/messages\/batches$/, answer: makeMessageBatch },
  { method: 'GET', path: /^\/messages\/batches$/, answer: listMessageBatches },
  { method: 'GET', path: /^\/messages\/batches\/(\w+)$/, answer: ofJob(messageBatch) },
  { method: 'GET', path: /^\/messages\/batches\/(\w+)\/results$/, answer: messageResults },
  { method: 'POST', path: /^\/messages\/batches\/(\w+)\/cancel$/, answer: cancelJob(messageBatch) },
  { method: 'DELETE', path: /^\/messages\/batches\/(\w+)$/, answer: deleteJob('message_batch_deleted') },
  // Gemini
  { method: 'POST', path: /^\/upload\/files$/, answer: uploadRelated },
  { method: 'POST', path: /^\/models\/([^/]+):batchGenerateContent$/, answer: makeOperation },
  { method: 'GET', path: /^\/batches\/(gem\w+)$/, answer: ofJob(operation) },
  { method: 'POST', path: /^\/batches\/(gem\w+):cancel$/, answer: cancelJob(() => ({})) },
  { method: 'DELETE', path: /^\/batches\/(gem\w+)$/, answer: deleteJob(null) },
  { method: 'GET', path: /^\/download\/files\/([\w-]+):download$/, answer: downloadFile },
]

/** Null: the path does not belong to a batch service. */
export function answerBatchCall(batches: SimBatches, call: SimBatchCall): SimBatchReply | null {
  for (const { method, path, answer } of CALL_ROWS) {
    const match = method === call.method ? path.exec(call.path) : null
    if (match !== null) return answer(batches, call, match.slice(1))
  }
  return null
}
