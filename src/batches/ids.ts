/**
 * Ids of the responses and records that batch lines produce. They are derived, so that a line that runs again after a
 * crash has the same ids, and its usage record is stored once. Pure.
 */
import { hash } from 'node:crypto'
import type { BatchRecord } from '../storage/batches.ts'

/** 96 bits, so that no two lines of all batches share an id. */
const DIGEST_CHARS = 24

/**
 * Generation id of one try of a line: `gen-batch-<unix seconds of the batch>-<24 hexadecimal characters>`. `tryCount`:
 * number of earlier tries, so that each counted try has a usage record of its own.
 */
export function lineGenerationId(
  { id, createdAt }: Pick<BatchRecord, 'id' | 'createdAt'>,
  number: number,
  tryCount: number,
): string {
  return `gen-batch-${Math.floor(Date.parse(createdAt) / 1000)}-${digest(`${id}/${number}/${tryCount}`)}`
}

/** Id of the result of a line: `batch_req_` and 24 hexadecimal characters. */
export function resultId(batchId: string, number: number): string {
  return `batch_req_${digest(`${batchId}/${number}`)}`
}

function digest(text: string): string {
  return hash('sha256', text).slice(0, DIGEST_CHARS)
}
