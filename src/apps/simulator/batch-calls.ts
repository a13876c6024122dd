/** Request handling that the simulated batch services share. Pure, except for the jobs. */
import { parseJson } from '../../base/json.ts'
import { fieldsOf, type SimFields } from './ask.ts'
import type { SimBatches, SimJob } from './batch-jobs.ts'

export interface SimBatchCall {
  readonly method: string
  /** Without version and query. */
  readonly path: string
  readonly query: URLSearchParams
  readonly contentType: string
  /** The address that the client used for the provider. */
  readonly origin: string
  readonly text: string
}

/** The reply: a document, or JSON Lines as text. */
export type SimBatchReply =
  | { readonly status: number; readonly document: unknown }
  | { readonly status: 200; readonly lines: Iterable<string>; readonly breaksAfter: number }

export type SimBatchAnswer = (
  batches: SimBatches,
  call: SimBatchCall,
  found: readonly string[],
) => SimBatchReply

/** Jobs per page, unless the call sets a limit. */
const DEFAULT_PAGE_SIZE = 20
const MAX_PAGE_SIZE = 100

export function refusal(status: number, message: string): SimBatchReply {
  return { status, document: { error: { code: status, type: 'invalid_request_error', message } } }
}

export function ok(document: unknown): SimBatchReply {
  return { status: 200, document }
}

export function ofJob(show: (job: SimJob, call: SimBatchCall) => unknown): SimBatchAnswer {
  return (batches, call, [id = '']) => {
    const job = batches.jobs.get(id)
    if (job === undefined) return refusal(404, 'No such batch')
    return ok(show(batches.poll(job), call))
  }
}

export function cancelJob(show: (job: SimJob, call: SimBatchCall) => unknown): SimBatchAnswer {
  return (batches, call, [id = '']) => {
    const job = batches.jobs.get(id)
    if (job === undefined) return refusal(404, 'No such batch')
    if (job.end !== null) return refusal(400, 'The batch has ended')
    return ok(show(batches.cancel(job), call))
  }
}

export function deleteJob(type: string | null): SimBatchAnswer {
  return (batches, _, [id = '']) => {
    const job = batches.jobs.get(id)
    if (job === undefined) return refusal(404, 'No such batch')
    if (job.end === null) return refusal(400, 'The batch is still running: cancel it first')
    batches.jobs.delete(id)
    return ok(type === null ? {} : { id, type })
  }
}

/** The text of each part of a multipart body. Null: the body is not multipart. */
export function partsOf({ contentType, text }: SimBatchCall): readonly string[] | null {
  const boundary = /boundary="?([^";]+)"?/.exec(contentType)?.[1]
  if (boundary === undefined) return null
  // A boundary is at the beginning of a line.
  return `\r\n${text}`
    .split(`\r\n--${boundary}`)
    .slice(1, -1)
    .map(part => part.slice(part.indexOf('\r\n\r\n') + 4))
}

export function parsed(text: string): SimFields {
  return fieldsOf(parseJson(text))
}

export function linesIn(text: string): readonly SimFields[] {
  return text
    .split('\n')
    .filter(line => line !== '')
    .map(parsed)
}

export function recent({ jobs }: SimBatches, api: SimJob['api']): readonly SimJob[] {
  return [...jobs.values()].filter(job => job.api === api).reverse()
}

/** A page of the jobs after an id. */
export function pageOf(jobs: readonly SimJob[], after: string | null, limit: number | null) {
  const from = after === null ? 0 : jobs.findIndex(({ id }) => id === after) + 1
  const size = Math.min(MAX_PAGE_SIZE, limit ?? DEFAULT_PAGE_SIZE)
  return { page: jobs.slice(from, from + size), hasMore: jobs.length > from + size }
}

export function numberIn(query: URLSearchParams, name: string): number | null {
  const text = query.get(name)
  return text === null ? null : Number(text)
}

export function iso(ms: number): string {
  return new Date(ms).toISOString()
}

/** Prefix of the id of a job's result file. */
export const OUTPUT = 'out-'

export function breaksOf({ fault }: SimJob, applies: boolean): number {
  return applies ? (fault.breaksAfter ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY
}

/** Returns false if there is no such file. Result files are named after their job. */
function removeFile(batches: SimBatches, id: string, prefix: RegExp): boolean {
  const name = id.replace(prefix, '')
  const [, jobId] = /^(?:out|err)-(\w+)$/.exec(name) ?? []
  if (jobId === undefined) return batches.files.delete(name)
  if (!batches.jobs.has(jobId) || batches.removed.has(id)) return false
  batches.removed.add(id)
  return true
}

export function deleteFile(
  batches: SimBatches,
  _: SimBatchCall,
  [id = '']: readonly string[],
): SimBatchReply {
  // Ids of OpenAI begin with `file-`; names of Gemini begin with `files/`, which is already part of the path.
  const isOpenai = id.startsWith('file-')
  const wasRemoved = removeFile(batches, isOpenai ? id : `files/${id}`, /^file(?:-|s\/)/)
  if (!wasRemoved) return refusal(404, 'There is no such file')
  return ok(isOpenai ? { id, object: 'file', deleted: true } : {})
}
