/**
 * Checks the requests of a batch, which are in a file: the overall structure, and the required fields of each request,
 * but not the bodies of the requests (`check-batch-bodies.ts`). Works for a short time and reports how far it got, so
 * that files of other callers get their turn. Task worker.
 */
import { GatewayError } from '../../base/errors.ts'
import { type BatchCreation, checkBatchCreation } from '../../protocol/management/batch-creation.ts'
import { BatchFault, type BatchProgress, modelOf } from './batches/batch-progress.ts'
import { BatchReader } from './batches/batch-reader.ts'
import { type FileBytes, fileSource } from './batches/file-source.ts'
import type { JsonPosition } from './batches/json-scanner.ts'

interface CheckBatchInput {
  readonly file: FileBytes
  readonly progress: BatchProgress
  /** Milliseconds after which the check stops at the end of the current request. */
  readonly budgetMs: number
}

/** A completely read batch. */
export interface CheckedBatch {
  readonly fields: BatchCreation
  readonly model: string
  readonly requests: number
  readonly firstRequest: JsonPosition
}

/** The body of a batch whose requests are in a file of its workspace. */
interface BatchByFile {
  readonly fields: BatchCreation
  readonly fileId: string
}

export type CheckBatchOutput =
  | { readonly outcome: 'more'; readonly progress: BatchProgress }
  | ({ readonly outcome: 'whole' } & CheckedBatch)
  | ({ readonly outcome: 'by-file' } & BatchByFile)
  | { readonly outcome: 'fault'; readonly code: BatchFault['code']; readonly message: string }

export function checkBatch({ file, progress, budgetMs }: CheckBatchInput): CheckBatchOutput {
  const stopAtMs = performance.now() + budgetMs
  const reader = new BatchReader(fileSource(file), progress, {
    onRequest: () => undefined,
    isEnough: () => performance.now() >= stopAtMs,
  })
  try {
    const newProgress = reader.read()
    return newProgress.before === 'end'
      ? finalOutput(newProgress)
      : { outcome: 'more', progress: newProgress }
  } catch (thrown) {
    if (thrown instanceof BatchFault) return { outcome: 'fault', code: thrown.code, message: thrown.message }
    if (!(thrown instanceof GatewayError)) throw thrown
    return { outcome: 'fault', code: 'invalid_request', message: thrown.message }
  }
}

/** @throws BatchFault, GatewayError */
function finalOutput(progress: BatchProgress): CheckBatchOutput {
  const { form, firstRequest, requests } = progress
  const fields = form === 'params' ? MESSAGES_FIELDS : checkBatchCreation(progress.fields)
  const fileId = fields.input_file_id ?? null
  if (fileId === null) {
    if (fields.metadata != null)
      throw new BatchFault('invalid_request', 'metadata: is allowed only in batches with input_file_id')
    if (firstRequest === null)
      throw new BatchFault('invalid_request', 'requests: is required and must be an array')
  } else if (firstRequest === null) return { outcome: 'by-file', fields, fileId }
  else if (form !== 'lines')
    throw new BatchFault('invalid_request', 'input_file_id: must not be given together with requests')
  return { outcome: 'whole', fields, model: modelOf(progress), requests, firstRequest }
}

const MESSAGES_FIELDS: BatchCreation = { endpoint: '/v1/messages' }
