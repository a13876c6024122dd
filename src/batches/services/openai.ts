/**
 * The batch service of OpenAI and compatible providers: uploads a file of lines, creates a batch for it, and reads
 * replies and errors from two files. Source: the Batch and Files APIs, as typed in the official SDK. Pure, except for
 * its calls.
 */
import { GatewayError } from '../../base/errors.ts'
import { randomText } from '../../base/ids.ts'
import { filled, type Json, record, recordOrEmpty, records, wholeNumber } from '../../base/json.ts'
import { tidyMessage } from '../../formats/failure.ts'
import type { BatchService, EndedLine, JobState, LostJob } from './service.ts'
import { idOf, type ServiceCalls } from './service-calls.ts'

/** The field of the batch's metadata with our mark. */
const MARK_KEY = 'sluice_job'
/** The only window that the API offers. */
const COMPLETION_WINDOW = '24h'
/** Version prefix of the paths in lines, independent of the provider's base URL. */
const VERSION_PREFIX = '/v1'
const PAGE_SIZE = 100
/** More pages than the jobs that anybody submits within a few minutes. */
const MAX_PAGES = 20
/** Allowed difference between the clocks of the gateway and the service. */
const MAX_CLOCK_DIFFERENCE_MS = 600_000

const BOUNDARY_CHARS = 32

export const openai: BatchService = {
  // The service accepts 200 MB, but the lines of a job are in memory at once.
  limits: { lines: 50_000, bytes: 16 * 1024 * 1024 },
  accepts: ({ headers }) => headers === undefined,
  line: (id, { path, body }) =>
    JSON.stringify({ custom_id: id, method: 'POST', url: `${VERSION_PREFIX}${path}`, body }),
  async submit(calls, { mark, path, lines }) {
    const { type, body } = multipart(mark, lines)
    const file = idOf((await calls.upload({ path: '/files' }, type, body))['id'])
    const batch = await calls.post(
      { path: '/batches' },
      {
        input_file_id: file,
        endpoint: `${VERSION_PREFIX}${path}`,
        completion_window: COMPLETION_WINDOW,
        metadata: { [MARK_KEY]: mark },
      },
    )
    return idOf(batch['id'])
  },
  async find(calls, job) {
    let after: string | null = null
    for (let pages = 0; pages < MAX_PAGES; pages++) {
      const query = { limit: String(PAGE_SIZE), ...(after === null ? {} : { after }) }
      const page = await calls.get({ path: '/batches', query })
      const batches = records(page['data'])
      const markedBatch = batches.find(batch => recordOrEmpty(batch['metadata'])[MARK_KEY] === job.mark)
      if (markedBatch !== undefined) return { name: idOf(markedBatch['id']) }
      const last = batches.at(-1)
      if (last === undefined || page['has_more'] !== true || isBefore(last, job)) return 'none'
      after = idOf(last['id'])
    }
    return 'none'
  },
  state: async (calls, name) => stateOf(await calls.get({ path: `/batches/${idOf(name)}` })),
  async cancel(calls, name) {
    await calls.post({ path: `/batches/${idOf(name)}/cancel` }, null)
  },
  async *lines(calls, name) {
    const batch = await calls.get({ path: `/batches/${idOf(name)}` })
    for (const id of [batch['output_file_id'], batch['error_file_id']]) {
      if (id == null) continue
      for await (const page of calls.lines({ path: `/files/${idOf(id)}/content` })) {
        yield page.map(lineOf).filter(line => line !== null)
      }
    }
  },
  async remove(calls, name) {
    const batch = await batchOrNull(calls, name)
    if (batch === null) return
    // The batch itself stays, but it contains no text of users.
    for (const key of ['input_file_id', 'output_file_id', 'error_file_id']) {
      if (batch[key] != null) await calls.remove({ path: `/files/${idOf(batch[key])}` })
    }
  },
}

async function batchOrNull(calls: ServiceCalls, name: string): Promise<Json | null> {
  try {
    return await calls.get({ path: `/batches/${idOf(name)}` })
  } catch (error) {
    if (error instanceof GatewayError && error.metadata?.['provider_status'] === 404) return null
    throw error
  }
}

/** A form with the file and its purpose. The boundary cannot be guessed, and no line of JSON begins like it. */
function multipart(mark: string, lines: readonly string[]): { readonly type: string; readonly body: string } {
  const boundary = randomText(BOUNDARY_CHARS)
  const part = (disposition: string, text: string) =>
    `--${boundary}\r\ncontent-disposition: form-data; ${disposition}\r\n\r\n${text}\r\n`
  const file = `name="file"; filename="${mark}.jsonl"\r\ncontent-type: application/jsonl`
  return {
    type: `multipart/form-data; boundary=${boundary}`,
    body: `${part('name="purpose"', 'batch')}${part(file, `${lines.join('\n')}\n`)}--${boundary}--\r\n`,
  }
}

function isBefore(batch: Json, { sinceMs }: LostJob): boolean {
  const createdAt = wholeNumber(batch['created_at'])
  return createdAt !== null && createdAt * 1000 < sinceMs - MAX_CLOCK_DIFFERENCE_MS
}

const ENDED_STATUSES: ReadonlySet<unknown> = new Set(['completed', 'failed', 'expired', 'cancelled'])

function stateOf(batch: Json): JobState {
  const { status } = batch
  if (!ENDED_STATUSES.has(status)) return { kind: 'running' }
  const error = status === 'failed' ? failureOf(batch) : null
  return {
    kind: 'ended',
    error,
    unrun: status === 'cancelled' || status === 'expired' ? status : null,
    isBusy: error?.metadata?.['provider_code'] === QUEUE_FULL,
  }
}

/** The code of a job for which the account has too many tokens in its queue. */
const QUEUE_FULL = 'token_limit_exceeded'

/** The reason why the service rejected the file. */
function failureOf(batch: Json): GatewayError {
  const [first] = records(recordOrEmpty(batch['errors'])['data'])
  const code = filled(first?.['code'])
  const message = filled(first?.['message'])
  return new GatewayError(
    'invalid_request',
    message === null ? 'The batch service refused the batch without giving a reason' : tidyMessage(message),
    { metadata: code === null ? {} : { provider_code: tidyMessage(code) } },
  )
}

/** Codes of lines that never ran. */
const UNRUN_CODES: ReadonlyMap<unknown, EndedLine['end']> = new Map([
  ['batch_expired', { kind: 'expired' }],
  ['batch_cancelled', { kind: 'cancelled' }],
])
/** Status of an error without one: the service itself is assumed to have failed. */
const DEFAULT_STATUS = 500

function lineOf(line: Json): EndedLine | null {
  const id = filled(line['custom_id'])
  if (id === null) return null
  const error = record(line['error'])
  const notRun = UNRUN_CODES.get(error?.['code'])
  if (notRun !== undefined) return { id, end: notRun }
  const response = record(line['response'])
  const status = wholeNumber(response?.['status_code']) ?? DEFAULT_STATUS
  if (response !== null) {
    const body = response['body'] ?? (error === null ? null : { error })
    return { id, end: { kind: 'reply', status: httpStatus(status), body: JSON.stringify(body) } }
  }
  return error === null
    ? null
    : { id, end: { kind: 'reply', status: DEFAULT_STATUS, body: JSON.stringify({ error }) } }
}

function httpStatus(status: number): number {
  return status >= 200 && status <= 599 ? status : DEFAULT_STATUS
}
