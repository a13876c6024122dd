/** The simulated Gemini batch API. Pure, except for the jobs. */
import { fieldsOf, textOf } from './ask.ts'
import {
  breaksOf,
  iso,
  linesIn,
  numberIn,
  OUTPUT,
  ok,
  pageOf,
  parsed,
  partsOf,
  recent,
  refusal,
  type SimBatchCall,
  type SimBatchReply,
} from './batch-calls.ts'
import type { SimBatches, SimJob, SimJobLine } from './batch-jobs.ts'

export function uploadRelated(batches: SimBatches, call: SimBatchCall): SimBatchReply {
  const [metadata, text] = partsOf(call) ?? []
  if (metadata === undefined || text === undefined) return refusal(400, 'Send two parts: metadata and a file')
  const { id } = batches.addFile(text)
  const displayName = fieldsOf(parsed(metadata)['file'])['displayName']
  return ok({ file: { name: `files/${id}`, displayName, mimeType: 'application/jsonl', state: 'ACTIVE' } })
}

export function makeOperation(
  batches: SimBatches,
  { text }: SimBatchCall,
  [segment = '']: readonly string[],
): SimBatchReply {
  const model = decodeURIComponent(segment)
  const batch = fieldsOf(parsed(text)['batch'])
  const inputFile = textOf(fieldsOf(batch['inputConfig'])['fileName'])
  const file = batches.files.get(inputFile.replace(/^files\//, ''))
  if (file === undefined) return refusal(400, 'inputConfig.fileName: there is no such file')
  const path = `/models/${model}:generateContent`
  const lines = linesIn(file.text).map(
    (line): SimJobLine => ({ id: textOf(line['key']), path, body: fieldsOf(line['request']) }),
  )
  const fault = batches.faultOf(model)
  if (fault.status !== undefined) return refusal(fault.status, 'Simulated failure')
  const fields = { displayName: textOf(batch['displayName']) }
  return ok(operation(batches.addJob({ prefix: 'gem', api: 'gemini', lines, fields, inputFile, fault })))
}

const GEMINI_STATES = {
  completed: 'BATCH_STATE_SUCCEEDED',
  failed: 'BATCH_STATE_FAILED',
  expired: 'BATCH_STATE_EXPIRED',
  cancelled: 'BATCH_STATE_CANCELLED',
} as const

export function operation(job: SimJob): unknown {
  const { end } = job
  const hasOutput = end === 'completed' || ((job.fault.done ?? 0) > 0 && end !== null && end !== 'failed')
  return {
    name: `batches/${job.id}`,
    metadata: {
      '@type': 'type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch',
      ...job.fields,
      createTime: iso(job.createdMs),
      inputConfig: { fileName: job.inputFile },
      state: end === null ? `BATCH_STATE_${job.polls === 0 ? 'PENDING' : 'RUNNING'}` : GEMINI_STATES[end],
      ...(hasOutput ? { output: { responsesFile: `files/${OUTPUT}${job.id}` } } : {}),
    },
    ...(end === null ? {} : { done: true }),
    ...(end === 'completed' ? { response: { responsesFile: `files/${OUTPUT}${job.id}` } } : {}),
    ...(end === 'failed'
      ? { error: { code: job.fault.end === 'busy' ? 8 : 3, message: 'Simulated failure' } }
      : {}),
    ...(end === 'cancelled' ? { error: { code: 1, message: 'Cancelled' } } : {}),
  }
}

export function listOperations(batches: SimBatches, query: URLSearchParams): SimBatchReply {
  const { page, hasMore } = pageOf(
    recent(batches, 'gemini'),
    query.get('pageToken'),
    numberIn(query, 'pageSize'),
  )
  const next = hasMore ? { nextPageToken: page.at(-1)?.id } : {}
  return ok({ operations: page.map(operation), ...next })
}

export function downloadFile(
  batches: SimBatches,
  _: SimBatchCall,
  [id = '']: readonly string[],
): SimBatchReply {
  const job = batches.jobs.get(id.replace(/^out-/, ''))
  if (job === undefined || job.end === null || batches.removed.has(`files/${id}`)) {
    return refusal(404, 'There is no such file')
  }
  return { status: 200, lines: geminiLines(batches, job), breaksAfter: breaksOf(job, true) }
}

/** Cancelled lines are not included. */
function* geminiLines(batches: SimBatches, job: SimJob): Generator<string, void, void> {
  for (const { id, end } of batches.ends(job)) {
    if (end === 'garbage') yield `{"key":"${id}","response":`
    else if (end.kind === 'reply') {
      yield JSON.stringify(
        end.status === 200
          ? { key: id, response: end.document }
          : { key: id, error: { code: rpcCode(end.status), message: 'Simulated failure' } },
      )
    } else if (end.kind === 'expired') {
      yield JSON.stringify({ key: id, error: { code: 4, message: 'The deadline has passed' } })
    }
  }
}

function rpcCode(status: number): number {
  return status === 400 ? 3 : 14
}
