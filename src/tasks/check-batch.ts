/**
 * Validates a POST /batches body, stored in a file: its structure, and the required fields of each request, but not the
 * request bodies (`check-batch-bodies.ts`). Works for a short time and tells how far it came, so that the files of
 * others get their turn. Task worker.
 */
import { GatewayError } from '../errors.ts'
import { type BatchCreation, checkBatchCreation } from '../protocol/management/batch-creation.ts'
import { BatchFault, type BatchProgress, BatchReader, modelOf } from './batches/batch-reader.ts'
import { type FileBytes, fileSource } from './batches/file-source.ts'
import type { JsonPlace } from './batches/json-scanner.ts'

export interface CheckBatchInput {
  readonly file: FileBytes
  readonly progress: BatchProgress
  /** After this long it ends behind the next request. */
  readonly budgetMs: number
}

/** A batch that was read to its end. */
export interface CheckedBatch {
  readonly fields: BatchCreation
  readonly model: string
  readonly requests: number
  readonly firstRequest: JsonPlace
}

export type CheckBatchOutput =
  | { readonly outcome: 'more'; readonly progress: BatchProgress }
  | ({ readonly outcome: 'whole' } & CheckedBatch)
  | { readonly outcome: 'fault'; readonly code: BatchFault['code']; readonly message: string }

export function checkBatch({ file, progress, budgetMs }: CheckBatchInput): CheckBatchOutput {
  const endMs = performance.now() + budgetMs
  const reader = new BatchReader(fileSource(file), progress, {
    onRequest: () => undefined,
    isEnough: () => performance.now() >= endMs,
  })
  try {
    const reached = reader.read()
    return reached.before === 'end'
      ? { outcome: 'whole', ...whole(reached) }
      : { outcome: 'more', progress: reached }
  } catch (thrown) {
    if (thrown instanceof BatchFault) return { outcome: 'fault', code: thrown.code, message: thrown.message }
    if (!(thrown instanceof GatewayError)) throw thrown
    return { outcome: 'fault', code: 'invalid_request', message: thrown.message }
  }
}

/** @throws BatchFault, GatewayError */
function whole(progress: BatchProgress): CheckedBatch {
  const { fields, firstRequest, requests } = progress
  const checked = checkBatchCreation(fields)
  if (firstRequest === null)
    throw new BatchFault('invalid_request', 'requests: is required and must be an array')
  return { fields: checked, model: modelOf(progress), requests, firstRequest }
}
