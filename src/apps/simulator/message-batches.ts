/** The simulated Anthropic batch API. Pure, except for the jobs. */
import { fieldsOf, listOf, textOf } from './ask.ts'
import {
  breaksOf,
  iso,
  numberIn,
  ok,
  pageOf,
  parsed,
  recent,
  refusal,
  type SimBatchCall,
  type SimBatchReply,
} from './batch-calls.ts'
import type { SimBatches, SimJob, SimJobLine, SimLineEnd } from './batch-jobs.ts'

export function makeMessageBatch(batches: SimBatches, call: SimBatchCall): SimBatchReply {
  const requests = listOf(parsed(call.text)['requests']).map(fieldsOf)
  if (requests.length === 0) return refusal(400, 'requests must not be empty')
  const lines = requests.map(
    (request): SimJobLine => ({
      id: textOf(request['custom_id']),
      path: '/messages',
      body: fieldsOf(request['params']),
    }),
  )
  if (lines.some(({ id }) => !/^[\w-]{1,64}$/.test(id))) return refusal(400, 'custom_id is malformed')
  if (lines.some(({ body }) => body['stream'] === true)) return refusal(400, 'stream is not supported')
  const fault = batches.faultOf(textOf(lines[0]?.body['model']))
  if (fault.status !== undefined) return refusal(fault.status, 'Simulated failure')
  const settings = {
    prefix: 'msgbatch_',
    api: 'anthropic',
    lines,
    fields: {},
    inputFile: null,
    fault,
  } as const
  return ok(messageBatch(batches.addJob(settings), call))
}

export function messageBatch(job: SimJob, { origin }: SimBatchCall): unknown {
  const zero = { processing: 0, succeeded: 0, errored: 0, canceled: 0, expired: 0 }
  const { length } = job.lines
  return {
    id: job.id,
    type: 'message_batch',
    processing_status: job.end !== null ? 'ended' : job.isCancelling ? 'canceling' : 'in_progress',
    request_counts: job.end === null ? { ...zero, processing: length } : { ...zero, succeeded: length },
    created_at: iso(job.createdMs),
    expires_at: iso(job.createdMs + 86_400_000),
    ended_at: job.end === null ? null : iso(job.createdMs),
    cancel_initiated_at: job.isCancelling ? iso(job.createdMs) : null,
    archived_at: null,
    results_url: job.end === null ? null : `${origin}/v1/messages/batches/${job.id}/results`,
  }
}

export function listMessageBatches(batches: SimBatches, call: SimBatchCall): SimBatchReply {
  const { query } = call
  const { page, hasMore } = pageOf(
    recent(batches, 'anthropic'),
    query.get('after_id'),
    numberIn(query, 'limit'),
  )
  const [first, last] = [page[0]?.id ?? null, page.at(-1)?.id ?? null]
  return ok({
    data: page.map(job => messageBatch(job, call)),
    has_more: hasMore,
    first_id: first,
    last_id: last,
  })
}

export function messageResults(
  batches: SimBatches,
  _: SimBatchCall,
  [id = '']: readonly string[],
): SimBatchReply {
  const job = batches.jobs.get(id)
  if (job === undefined || job.end === null)
    return refusal(404, 'There is no such batch, or it has not ended')
  return { status: 200, lines: messageLines(batches, job), breaksAfter: breaksOf(job, true) }
}

/** A job that failed as a whole has no lines. */
function* messageLines(batches: SimBatches, job: SimJob): Generator<string, void, void> {
  for (const { id, end } of batches.ends(job)) {
    if (end === 'garbage') yield `{"custom_id":"${id}","result":`
    else yield JSON.stringify({ custom_id: id, result: resultOf(end) })
  }
}

function resultOf(end: SimLineEnd): unknown {
  if (end.kind !== 'reply') return { type: end.kind === 'cancelled' ? 'canceled' : 'expired' }
  return end.status === 200
    ? { type: 'succeeded', message: end.document }
    : { type: 'errored', error: { ...fieldsOf(end.document), request_id: null } }
}
