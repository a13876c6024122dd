/**
 * /messages/batches: creates, lists, reads, cancels and deletes batches in the form of the Messages API. They are the
 * batches of /batches whose endpoint is /v1/messages, in another form.
 */

import { GatewayError, refuseField } from '../../base/errors.ts'
import { isTerminal } from '../../batches/states.ts'
import { CLIENT_LIST_DEFAULT } from '../../protocol/limits.ts'
import type { BatchRecord } from '../../storage/batches.ts'
import { streamChunks } from '../chunk-stream.ts'
import { limitOf, listDocument, parameter } from '../management/paging.ts'
import type { ApiRequest, Handler, RawHandler } from '../operation.ts'
import { type ResultDocument, type ResultTexts, resultChunks } from './batch-outputs.ts'
import {
  acceptBatch,
  type BatchDeps,
  cancelNamedBatch,
  removeBatch,
  requireBatch,
  workspaceOf,
} from './batches.ts'

const ENDPOINT = '/v1/messages'

export function createMessageBatch(deps: BatchDeps): RawHandler {
  return async (request, reply) => {
    const batch = await acceptBatch(deps, request, reply, 'params')
    reply.json(200, messageBatch(batch))
  }
}

export function listMessageBatches({ store }: BatchDeps): Handler {
  return async ({ query, key }, reply) => {
    const limit = limitOf(query, CLIENT_LIST_DEFAULT)
    const after = parameter(query, 'after_id')
    const before = parameter(query, 'before_id')
    if (after !== undefined && before !== undefined)
      throw refuseField('before_id', 'must be left out when after_id is given')
    const filter = {
      organizationId: key.organizationId,
      workspaceId: workspaceOf(key),
      endpoint: ENDPOINT,
      ...(after === undefined ? {} : { after }),
      ...(before === undefined ? {} : { before }),
    } as const
    const page = await store.batches.list(filter, limit)
    if (page === null)
      throw refuseField(
        after === undefined ? 'before_id' : 'after_id',
        'must be the id of a batch in this workspace',
      )
    reply.json(200, listDocument(page.items.map(messageBatch), page.hasMore))
  }
}

export function findMessageBatch(deps: BatchDeps): Handler {
  return async (request, reply) => reply.json(200, messageBatch(await requireMessageBatch(deps, request)))
}

export function cancelMessageBatch(deps: BatchDeps): Handler {
  return async (request, reply) => {
    await requireMessageBatch(deps, request)
    reply.json(200, messageBatch(await cancelNamedBatch(deps, request)))
  }
}

export function deleteMessageBatch(deps: BatchDeps): Handler {
  return async (request, reply) => {
    const batch = await requireMessageBatch(deps, request)
    await removeBatch(deps, request, batch)
    reply.json(200, { id: batch.id, type: 'message_batch_deleted' })
  }
}

export function readMessageResults(deps: BatchDeps): Handler {
  return async (request, reply) => {
    const batch = await requireMessageBatch(deps, request)
    if (!isTerminal(batch.status)) {
      throw new GatewayError(
        'conflict',
        `The batch has no results yet, because its processing_status is ${progressOf(batch)}: wait until it is ended`,
      )
    }
    await streamChunks(
      reply,
      request.context.signal,
      'application/x-jsonl',
      resultChunks(deps.store, batch, RESULT_TEXTS, request.context.signal),
    )
  }
}

const RESULT_TEXTS: ResultTexts = {
  ofResult({ customId, result }) {
    const { response, error } = JSON.parse(result) as ResultDocument
    return lineOf(
      customId,
      error === null
        ? { type: 'succeeded', message: response?.body }
        : {
            type: 'errored',
            error: {
              type: 'error',
              error: { type: error.type, message: error.message },
              request_id: null,
            },
          },
    )
  },
  ofUnanswered: (customId, _, { status }) =>
    lineOf(customId, { type: status === 'expired' ? 'expired' : 'canceled' }),
}

function lineOf(customId: string, result: object): string {
  return JSON.stringify({ custom_id: customId, result })
}

/** Finds the batch of the path. @throws GatewayError `not_found`, also for batches of other endpoints */
async function requireMessageBatch(deps: BatchDeps, request: ApiRequest): Promise<BatchRecord> {
  const batch = await requireBatch(deps, request)
  if (batch.endpoint === ENDPOINT) return batch
  throw new GatewayError(
    'not_found',
    `The batch was not created for ${ENDPOINT}: read it with GET /v1/batches/${batch.id}`,
  )
}

function progressOf({ status }: BatchRecord): 'in_progress' | 'canceling' | 'ended' {
  if (isTerminal(status)) return 'ended'
  return status === 'cancelling' ? 'canceling' : 'in_progress'
}

/** The batch in the form of the Messages API. */
function messageBatch(batch: BatchRecord) {
  const { id, status, total, completed, failed } = batch
  const hasEnded = isTerminal(status)
  const unanswered = total - completed - failed
  return {
    id,
    type: 'message_batch',
    processing_status: progressOf(batch),
    request_counts: {
      processing: hasEnded ? 0 : unanswered,
      succeeded: completed,
      errored: failed,
      canceled: hasEnded && status !== 'expired' ? unanswered : 0,
      expired: status === 'expired' ? unanswered : 0,
    },
    created_at: batch.createdAt,
    expires_at: batch.expiresAt,
    ended_at: batch.finalizedAt,
    cancel_initiated_at: batch.cancellingAt,
    archived_at: null,
    waiting: batch.waiting,
    // A relative path, which clients resolve against their base URL: only they know how they reach the gateway.
    results_url: hasEnded ? `/v1/messages/batches/${id}/results` : null,
  }
}
