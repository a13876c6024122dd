/** The simulated OpenAI batch and file APIs. Pure, except for the jobs. */
import { fieldsOf, textOf } from './ask.ts'
import {
  breaksOf,
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
import { listOperations } from './gemini-batches.ts'

export function uploadFile(batches: SimBatches, call: SimBatchCall): SimBatchReply {
  const parts = partsOf(call)
  if (parts === null || parts.length !== 2) return refusal(400, 'Send a form with file and purpose')
  const purpose = parts.find(part => part === 'batch')
  const text = parts.find(part => part !== 'batch')
  if (purpose === undefined || text === undefined) return refusal(400, 'purpose must be batch')
  const { id } = batches.addFile(text)
  const bytes = Buffer.byteLength(text)
  return ok({ id: `file-${id}`, object: 'file', bytes, purpose: 'batch', filename: 'lines.jsonl' })
}

export function makeBatch(batches: SimBatches, { text }: SimBatchCall): SimBatchReply {
  const body = parsed(text)
  const inputFile = textOf(body['input_file_id'])
  const file = batches.files.get(inputFile.replace(/^file-/, ''))
  if (file === undefined) return refusal(400, 'input_file_id: there is no such file')
  if (body['completion_window'] !== '24h') return refusal(400, 'completion_window must be 24h')
  const lines = linesIn(file.text).map(
    (line): SimJobLine => ({
      id: textOf(line['custom_id']),
      path: textOf(line['url']),
      body: fieldsOf(line['body']),
    }),
  )
  if (lines.some(({ path }) => path !== body['endpoint']))
    return refusal(400, 'url of a line must be the endpoint')
  const fault = batches.faultOf(textOf(lines[0]?.body['model']))
  if (fault.status !== undefined) return refusal(fault.status, 'Simulated failure')
  const fields = fieldsOf(body['metadata'])
  return ok(openaiBatch(batches.addJob({ prefix: 'batch_', api: 'openai', lines, fields, inputFile, fault })))
}

const OPENAI_STATES = ['validating', 'in_progress', 'finalizing'] as const

export function openaiBatch(job: SimJob): unknown {
  const runningStatus = OPENAI_STATES[Math.min(job.polls, OPENAI_STATES.length - 1)]
  const hasOutput = job.end !== null && job.end !== 'failed'
  return {
    id: job.id,
    object: 'batch',
    endpoint: job.lines[0]?.path ?? '',
    completion_window: '24h',
    created_at: Math.floor(job.createdMs / 1000),
    status: job.end ?? (job.isCancelling ? 'cancelling' : runningStatus),
    input_file_id: job.inputFile,
    ...(hasOutput
      ? { output_file_id: `file-${OUTPUT}${job.id}`, error_file_id: `file-err-${job.id}` }
      : { output_file_id: null, error_file_id: null }),
    request_counts: { total: job.lines.length, completed: 0, failed: 0 },
    metadata: job.fields,
    errors:
      job.end === 'failed'
        ? { object: 'list', data: [{ code: failureCode(job), message: 'Simulated failure', line: null }] }
        : null,
  }
}

function failureCode({ fault }: SimJob): string {
  return fault.end === 'busy' ? 'token_limit_exceeded' : 'invalid_json_line'
}

export function listBatches(batches: SimBatches, { query }: SimBatchCall): SimBatchReply {
  if (query.has('pageSize')) return listOperations(batches, query)
  const { page, hasMore } = pageOf(recent(batches, 'openai'), query.get('after'), numberIn(query, 'limit'))
  return ok({ object: 'list', data: page.map(openaiBatch), has_more: hasMore })
}

/** Successful replies are in the output file, all other outcomes in the error file. */
export function outputFile(
  batches: SimBatches,
  _: SimBatchCall,
  [id = '']: readonly string[],
): SimBatchReply {
  const [, kind, jobId = ''] = /^file-(out|err)-(\w+)$/.exec(id) ?? []
  const job = batches.jobs.get(jobId)
  const isGone = job === undefined || job.end === null || batches.removed.has(id)
  if (isGone || kind === undefined) return refusal(404, 'There is no such file')
  const isOutput = kind === 'out'
  return { status: 200, lines: openaiLines(batches, job, isOutput), breaksAfter: breaksOf(job, isOutput) }
}

function* openaiLines(batches: SimBatches, job: SimJob, isOutput: boolean): Generator<string, void, void> {
  for (const { id, end } of batches.ends(job)) {
    if (end === 'garbage') {
      if (isOutput) yield `{"custom_id":"${id}","response":`
      continue
    }
    const isGood = end.kind === 'reply' && end.status === 200
    if (isGood !== isOutput) continue
    const response =
      end.kind === 'reply' ? { status_code: end.status, request_id: `req_${id}`, body: end.document } : null
    const error =
      end.kind === 'reply' ? null : { code: `batch_${end.kind}`, message: 'This request never ran' }
    yield JSON.stringify({ id: `batch_req_${id}`, custom_id: id, response, error })
  }
}
