/**
 * Anthropic's batch service: Message Batches. The call itself carries the requests; the results come back as JSON
 * Lines. Source: the Message Batches API, as typed in the official SDK. Pure, except for its calls.
 */

import { filled, type Json, record, recordOrEmpty, records, wholeNumber } from '../../base/json.ts'
import { API_VERSION } from '../../formats/anthropic-messages/encode.ts'
import type { BatchService, EndedLine, FoundJob, JobState, LostJob } from './service.ts'
import { idOf, type ServiceCalls } from './service-calls.ts'

const PATH = '/messages/batches'
const PAGE_SIZE = 100
const MAX_PAGES = 20
/** Allowed difference between the clocks of the gateway and the service. */
const MAX_CLOCK_DIFFERENCE_MS = 600_000

export const anthropic: BatchService = {
  // The service accepts 256 MB, but the lines of a job are in memory at once.
  limits: { lines: 100_000, bytes: 16 * 1024 * 1024 },
  // A header applies to all requests of a job, so requests with their own beta flag are not accepted.
  accepts: ({ headers = {} }) =>
    Object.entries(headers).every(([name, value]) => VERSION_HEADERS[name.toLowerCase()] === value),
  line: (id, { body }) => {
    const { stream: _, ...params } = body
    return JSON.stringify({ custom_id: id, params })
  },
  async submit(calls, { lines }) {
    const batch = await calls.upload(
      { path: PATH },
      'application/json',
      `{"requests":[${lines.join(',')}]}`,
      VERSION_HEADERS,
    )
    return idOf(batch['id'])
  },
  async find(calls, job) {
    let isUnsure = false
    for await (const batch of recent(calls, job)) {
      const match = await matchJob(calls, batch, job)
      if (match === 'unsure') isUnsure = true
      else if (match !== 'none') return match
    }
    return isUnsure ? 'unsure' : 'none'
  },
  state: async (calls, name) => stateOf(await calls.get({ path: `${PATH}/${idOf(name)}` }, VERSION_HEADERS)),
  async cancel(calls, name) {
    await calls.post({ path: `${PATH}/${idOf(name)}/cancel` }, null, VERSION_HEADERS)
  },
  async *lines(calls, name) {
    // `results_url` of the batch is not used, because the key would be sent wherever a reply points to.
    for await (const page of calls.lines({ path: `${PATH}/${idOf(name)}/results` }, VERSION_HEADERS)) {
      yield page.map(lineOf).filter(line => line !== null)
    }
  },
  remove: async (calls, name) => calls.remove({ path: `${PATH}/${idOf(name)}` }, VERSION_HEADERS),
}

const VERSION_HEADERS: Readonly<Record<string, string>> = { 'anthropic-version': API_VERSION }

/** Jobs that were created since `sinceMs`, newest first. */
async function* recent(calls: ServiceCalls, { sinceMs }: LostJob): AsyncGenerator<Json, void, void> {
  let after: string | null = null
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const query = { limit: String(PAGE_SIZE), ...(after === null ? {} : { after_id: after }) }
    const page = await calls.get({ path: PATH, query }, VERSION_HEADERS)
    const batches = records(page['data'])
    for (const batch of batches) {
      const createdMs = Date.parse(filled(batch['created_at']) ?? '')
      if (createdMs < sinceMs - MAX_CLOCK_DIFFERENCE_MS) return
      yield batch
    }
    const last = batches.at(-1)
    if (last === undefined || page['has_more'] !== true) return
    after = idOf(last['id'])
  }
}

/** A job does not contain our mark. Only the ids in its results show that it is ours, once it has ended. */
async function matchJob(
  calls: ServiceCalls,
  batch: Json,
  { mark, lines, knownNames }: LostJob,
): Promise<FoundJob> {
  const name = idOf(batch['id'])
  if (knownNames.has(name) || countOf(batch) !== lines) return 'none'
  if (batch['processing_status'] !== 'ended') return 'unsure'
  for await (const page of anthropic.lines(calls, name)) {
    const [first] = page
    if (first !== undefined) return isOf(mark, first.id) ? { name } : 'none'
  }
  return 'none'
}

/** True for the id of a line in the job with this mark. */
function isOf(mark: string, id: string): boolean {
  return id.startsWith(`${mark}-`) && /^\d+$/.test(id.slice(mark.length + 1))
}

function countOf(batch: Json): number {
  const counts = Object.values(recordOrEmpty(batch['request_counts']))
  return counts.reduce((sum: number, count) => sum + (wholeNumber(count) ?? 0), 0)
}

function stateOf(batch: Json): JobState {
  return batch['processing_status'] === 'ended'
    ? { kind: 'ended', error: null, unrun: null, isBusy: false }
    : { kind: 'running' }
}

/** The statuses that a live request would have received, by error type. */
const STATUSES: Readonly<Record<string, number>> = {
  invalid_request_error: 400,
  authentication_error: 401,
  billing_error: 402,
  permission_error: 403,
  not_found_error: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  api_error: 500,
  timeout_error: 504,
  overloaded_error: 529,
}
const DEFAULT_STATUS = 500

function lineOf(line: Json): EndedLine | null {
  const id = filled(line['custom_id'])
  const result = record(line['result'])
  if (id === null || result === null) return null
  switch (result['type']) {
    case 'succeeded':
      return { id, end: { kind: 'reply', status: 200, body: JSON.stringify(result['message'] ?? null) } }
    case 'errored': {
      const reply = recordOrEmpty(result['error'])
      const type = filled(recordOrEmpty(reply['error'])['type']) ?? ''
      const status = Object.hasOwn(STATUSES, type) ? (STATUSES[type] ?? DEFAULT_STATUS) : DEFAULT_STATUS
      return { id, end: { kind: 'reply', status, body: JSON.stringify(reply) } }
    }
    case 'canceled':
      return { id, end: { kind: 'cancelled' } }
    case 'expired':
      return { id, end: { kind: 'expired' } }
    default:
      return null
  }
}
