/**
 * The batch service of the Gemini API: uploads a file of lines, creates a job for it, and reads the replies from
 * another file. Jobs are operations of that API. Source: the Gemini API reference (Batch API, Files). Pure, except for
 * its calls.
 */
import { GatewayError } from '../../base/errors.ts'
import { randomText } from '../../base/ids.ts'
import { filled, type Json, record, recordOrEmpty, records, wholeNumber } from '../../base/json.ts'
import { providerFailure } from '../../formats/failure.ts'
import type { BatchService, EndedLine, JobState, LostJob } from './service.ts'
import type { ServiceCalls } from './service-calls.ts'

const PAGE_SIZE = 100
const MAX_PAGES = 20
/** Allowed difference between the clocks of the gateway and the service. */
const MAX_CLOCK_DIFFERENCE_MS = 600_000

const BOUNDARY_CHARS = 32

const JOB_NAME = /^batches\/[A-Za-z0-9_-]{1,128}$/
const FILE_NAME = /^files\/[A-Za-z0-9_-]{1,128}$/
/** Maximum length of a page token, which has no documented limit. */
const TOKEN_MAX_CHARS = 4_096

export const gemini: BatchService = {
  // A file may have 2 GB and any number of lines, but the lines of a job are in memory at once.
  limits: { lines: 50_000, bytes: 16 * 1024 * 1024 },
  accepts: ({ headers }) => headers === undefined,
  line: (id, { body }) => JSON.stringify({ key: id, request: body }),
  async submit(calls, { mark, model, lines }) {
    const { type, body } = related(mark, lines)
    const uploaded = await calls.upload({ root: '/upload', path: '/files' }, type, body, {
      'x-goog-upload-protocol': 'multipart',
    })
    const fileName = fileOf(recordOrEmpty(uploaded['file'])['name'])
    const job = await calls.post(
      { path: `/models/${encodeURIComponent(model)}:batchGenerateContent` },
      { batch: { displayName: mark, inputConfig: { fileName } } },
    )
    return jobOf(job['name'])
  },
  async find(calls, job) {
    let token: string | null = null
    for (let pages = 0; pages < MAX_PAGES; pages++) {
      const query = { pageSize: String(PAGE_SIZE), ...(token === null ? {} : { pageToken: token }) }
      const page = await calls.get({ path: '/batches', query })
      const jobs = records(page['operations'])
      const markedJob = jobs.find(
        operation => recordOrEmpty(operation['metadata'])['displayName'] === job.mark,
      )
      if (markedJob !== undefined) return { name: jobOf(markedJob['name']) }
      token = filled(page['nextPageToken'])
      if (token === null || token.length > TOKEN_MAX_CHARS || isBefore(jobs.at(-1), job)) return 'none'
    }
    return 'none'
  },
  state: async (calls, name) => stateOf(await calls.get({ path: `/${jobOf(name)}` })),
  async cancel(calls, name) {
    await calls.post({ path: `/${jobOf(name)}:cancel` }, {})
  },
  async *lines(calls, name) {
    const job = await calls.get({ path: `/${jobOf(name)}` })
    const file = responsesFileOf(job)
    if (file === null) return
    const call = { root: '/download', path: `/${file}:download`, query: { alt: 'media' } }
    for await (const page of calls.lines(call)) yield page.map(lineOf).filter(line => line !== null)
  },
  async remove(calls, name) {
    const job = await jobOrNull(calls, name)
    if (job === null) return
    const input = recordOrEmpty(recordOrEmpty(job['metadata'])['inputConfig'])['fileName']
    for (const file of [input, responsesFileOf(job)]) {
      if (file != null) await calls.remove({ path: `/${fileOf(file)}` })
    }
    await calls.remove({ path: `/${jobOf(name)}` })
  },
}

async function jobOrNull(calls: ServiceCalls, name: string): Promise<Json | null> {
  try {
    return await calls.get({ path: `/${jobOf(name)}` })
  } catch (error) {
    if (error instanceof GatewayError && error.metadata?.['provider_status'] === 404) return null
    throw error
  }
}

/** Metadata and file in one body. The boundary cannot be guessed, and no line of JSON begins like it. */
function related(mark: string, lines: readonly string[]): { readonly type: string; readonly body: string } {
  const boundary = randomText(BOUNDARY_CHARS)
  const metadata = JSON.stringify({ file: { displayName: mark } })
  const part = (type: string, text: string) => `--${boundary}\r\ncontent-type: ${type}\r\n\r\n${text}\r\n`
  return {
    type: `multipart/related; boundary=${boundary}`,
    body: `${part('application/json; charset=utf-8', metadata)}${part('application/jsonl', `${lines.join('\n')}\n`)}--${boundary}--\r\n`,
  }
}

/** @throws GatewayError if the value cannot be a part of a path */
function nameOf(value: unknown, form: RegExp): string {
  if (typeof value === 'string' && form.test(value)) return value
  throw new GatewayError('provider_unavailable', 'The batch service sent an invalid name')
}

function jobOf(value: unknown): string {
  return nameOf(value, JOB_NAME)
}

function fileOf(value: unknown): string {
  return nameOf(value, FILE_NAME)
}

function isBefore(job: Json | undefined, { sinceMs }: LostJob): boolean {
  const createdMs = Date.parse(filled(recordOrEmpty(job?.['metadata'])['createTime']) ?? '')
  return createdMs < sinceMs - MAX_CLOCK_DIFFERENCE_MS
}

/** The file is in the reply of the operation, or in the output of the batch. Null: the job has none. */
function responsesFileOf(job: Json): string | null {
  const response = recordOrEmpty(job['response'])
  const output = recordOrEmpty(recordOrEmpty(job['metadata'])['output'])
  const file = response['responsesFile'] ?? output['responsesFile']
  return file == null ? null : fileOf(file)
}

/** Final states, with either prefix that the service uses. */
const ENDED_STATE = /^(?:BATCH|JOB)_STATE_(?:SUCCEEDED|FAILED|CANCELLED|EXPIRED)$/
const FAILED_STATE = /_FAILED$/
const UNRUN_STATES: ReadonlyMap<string, 'cancelled' | 'expired'> = new Map(
  ['BATCH', 'JOB'].flatMap((prefix): [string, 'cancelled' | 'expired'][] => [
    [`${prefix}_STATE_CANCELLED`, 'cancelled'],
    [`${prefix}_STATE_EXPIRED`, 'expired'],
  ]),
)
/** Codes of google.rpc. */
const CANCELLED = 1

function stateOf(job: Json): JobState {
  const state = filled(recordOrEmpty(job['metadata'])['state']) ?? ''
  if (job['done'] !== true && !ENDED_STATE.test(state)) return { kind: 'running' }
  const error = record(job['error'])
  const hasFailed =
    FAILED_STATE.test(state) || (error !== null && error['code'] !== CANCELLED && !ENDED_STATE.test(state))
  return {
    kind: 'ended',
    error: hasFailed ? failureOf(error) : null,
    unrun: UNRUN_STATES.get(state) ?? (error?.['code'] === CANCELLED ? 'cancelled' : null),
    isBusy: hasFailed && error?.['code'] === RESOURCE_EXHAUSTED,
  }
}

const RESOURCE_EXHAUSTED = 8

/** HTTP statuses and names of the codes of google.rpc, as the API itself maps them. */
const RPC_CODES: Readonly<Record<number, { readonly status: number; readonly name: string }>> = {
  1: { status: 499, name: 'CANCELLED' },
  3: { status: 400, name: 'INVALID_ARGUMENT' },
  4: { status: 504, name: 'DEADLINE_EXCEEDED' },
  5: { status: 404, name: 'NOT_FOUND' },
  7: { status: 403, name: 'PERMISSION_DENIED' },
  8: { status: 429, name: 'RESOURCE_EXHAUSTED' },
  9: { status: 400, name: 'FAILED_PRECONDITION' },
  14: { status: 503, name: 'UNAVAILABLE' },
  16: { status: 401, name: 'UNAUTHENTICATED' },
}
const UNKNOWN_CODE = { status: 500, name: 'UNKNOWN' } as const

function rpcOf(error: Json | null) {
  return RPC_CODES[wholeNumber(error?.['code']) ?? -1] ?? UNKNOWN_CODE
}

function failureOf(error: Json | null): GatewayError {
  const { status, name } = rpcOf(error)
  return providerFailure({ status, code: name, message: filled(error?.['message']) })
}

function lineOf(line: Json): EndedLine | null {
  const id = filled(line['key']) ?? filled(recordOrEmpty(line['metadata'])['key'])
  if (id === null) return null
  const response = record(line['response'])
  if (response !== null) return { id, end: { kind: 'reply', status: 200, body: JSON.stringify(response) } }
  const error = record(line['error']) ?? record(line['status'])
  if (error === null) return null
  const { status, name } = rpcOf(error)
  if (status === 499) return { id, end: { kind: 'cancelled' } }
  const body = { error: { code: status, message: filled(error['message']) ?? '', status: name } }
  return { id, end: { kind: 'reply', status, body: JSON.stringify(body) } }
}
